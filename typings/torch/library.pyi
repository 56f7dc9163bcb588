from collections.abc import Callable, Sequence

class CustomOpDef:
    def register_fake(self, function: Callable[..., object]) -> object: ...
    def register_autograd(
        self, backward: Callable[..., object], *, setup_context: Callable[..., None]
    ) -> None: ...

def custom_op(
    name: str, function: Callable[..., object], *, mutates_args: Sequence[str], schema: str
) -> CustomOpDef: ...
