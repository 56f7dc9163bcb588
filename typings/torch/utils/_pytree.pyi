from collections.abc import Callable, Sequence

def tree_flatten(tree: object) -> tuple[list[object], object]: ...
def tree_unflatten(leaves: Sequence[object], spec: object) -> object: ...

SERIALIZED_TYPE_TO_PYTHON_TYPE: dict[str, type]

def register_pytree_node(
    kind: type,
    parts: Callable[..., object],
    whole: Callable[..., object],
    *,
    serialized_type_name: str,
    to_dumpable_context: Callable[[object], object],
    from_dumpable_context: Callable[[object], object],
) -> None: ...
