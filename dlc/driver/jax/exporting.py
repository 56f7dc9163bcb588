"""Functions of JAX by `jax.export`, with the axes whose size each call chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, signature
from typing import TYPE_CHECKING, TypeAlias, cast

from dlc.errors import Unsupported, UsageError

if TYPE_CHECKING:
    from jax.export import Exported, SymbolicScope

Axes: TypeAlias = "Mapping[int, str] | Sequence[Axes] | Mapping[str, Axes] | str | None"
"""What is asked of one argument: names of axes by number, or a shape in JAX's words such as `"B, 2*T"`;
of one that holds several arrays the same, nested alike."""
Dynamic: TypeAlias = "Mapping[str, Axes] | Sequence[Axes] | None"
"""What is asked of all arguments: by name, or in order."""


def exported(function: Callable[..., object], args: Sequence[object], dynamic: Dynamic) -> Exported:
    """A function as `jax.export` gives it. Raises Unsupported (D0719) with what JAX says of it."""
    import jax
    from jax import export

    try:
        specs = _specs(function, args, dynamic)
        jitted = function if hasattr(function, "trace") else jax.jit(function)
        return export.export(jitted, platforms=["cpu"])(*specs)
    except UsageError:
        raise
    except Exception as error:  # what JAX raises here has no common class
        told = str(error).strip().splitlines()
        raise Unsupported(
            f"jax.export does not export {name_of(function)}: {told[0] if told else error!r}",
            code="D0719",
            help="jax.export.export(jax.jit(f))(x) shows what it says in full",
        ) from error


def name_of(function: object) -> str:
    """The name of a function in messages."""
    name = getattr(function, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else "function"


def _specs(
    function: Callable[..., object], args: Sequence[object], dynamic: Dynamic
) -> Sequence[object]:
    """The arguments as types, with dims for the axes that were named."""
    import jax
    from jax import export

    types = jax.eval_shape(lambda *given: given, *args)
    if dynamic is None:
        return types
    scope = export.SymbolicScope()
    wanted = _in_order(function, len(args), dynamic)
    return [_with_dims(type, one, scope) for type, one in zip(types, wanted, strict=True)]


def _in_order(function: Callable[..., object], count: int, dynamic: Dynamic) -> list[Axes]:
    """What is asked of each argument. Raises UsageError (D0901) for one that the function does not have."""
    if not isinstance(dynamic, Mapping):
        given = list(dynamic or ())
        return [*given, *[None] * (count - len(given))][:count]
    inputs = list(_positional(function))[:count]
    unknown = [name for name in dynamic if name not in inputs]
    if unknown:
        raise UsageError(
            f"{name_of(function)} has no argument {unknown[0]}",
            code="D0901",
            help=f"it has {', '.join(inputs) or 'none'}",
        )
    found = [dynamic.get(name) for name in inputs]
    return [*found, *[None] * (count - len(found))]


def _positional(function: Callable[..., object]) -> Iterator[str]:
    for parameter in signature(function).parameters.values():
        if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
            yield parameter.name


def _with_dims(type: object, wanted: Axes, scope: SymbolicScope) -> object:
    """The type of an array, or of all arrays inside of lists and dictionaries, with dims."""
    import jax
    from jax import export

    if isinstance(type, Mapping):
        table = cast("Mapping[str, object]", type)
        each = cast("Mapping[str, Axes]", wanted if isinstance(wanted, Mapping) else {})
        return {key: _with_dims(part, each.get(key), scope) for key, part in table.items()}
    if isinstance(type, list | tuple):
        parts = cast("Sequence[object]", type)
        given = list(wanted) if isinstance(wanted, list | tuple) else []
        given += [None] * (len(parts) - len(given))
        found = [_with_dims(part, one, scope) for part, one in zip(parts, given, strict=True)]
        return tuple(found) if isinstance(type, tuple) else found
    if wanted is None or not isinstance(type, jax.ShapeDtypeStruct):
        return type
    shape = export.symbolic_shape(_shape_text(type.shape, wanted), scope=scope, like=type.shape)
    return jax.ShapeDtypeStruct(shape, type.dtype)


def _shape_text(shape: Sequence[object], wanted: Axes) -> str:
    """A shape in JAX's words: names where an axis has one, `_` where its size is fixed."""
    if isinstance(wanted, str):
        return wanted
    rank = len(shape)
    names = ["_"] * rank
    pairs = wanted.items() if isinstance(wanted, Mapping) else enumerate(wanted or ())
    for axis, name in pairs:
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise UsageError(
                f"dynamic names axis {axis} of an array that has {rank} axes", code="D0901"
            )
        if name is not None:
            names[axis] = str(name)
    return ", ".join(names) + ("," if rank == 1 else "")
