"""Axes of inputs whose size each call chooses: what users say, as `torch.export` takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, TypeAlias, cast

from dlc.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

Axes: TypeAlias = "Mapping[int, object] | Sequence[object] | bool | None"
"""What is asked of one input: by axis, or for each axis in order; True for all."""
Dynamic: TypeAlias = "Mapping[str, Axes] | Sequence[Axes] | bool | None"
"""What is asked of all inputs: by name, or in order; True for all axes of all of them."""


def dynamic_shapes(
    dynamic: Dynamic, module: torch.nn.Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object] | None:
    """The argument of `torch.export.export` of that name.

    Raises UsageError (D0901) for an input that the module does not have.
    """
    if dynamic is None or dynamic is False:
        return None
    arguments = signature(module.forward).bind(*args, **kwargs).arguments
    wanted = _by_name(dynamic, list(arguments))
    return {name: _axes_of(value, wanted.get(name)) for name, value in arguments.items()}


def _by_name(dynamic: Dynamic, inputs: Sequence[str]) -> Mapping[str, object]:
    if isinstance(dynamic, Mapping):
        unknown = [name for name in dynamic if name not in inputs]
        if unknown:
            listed = ", ".join(inputs) or "none"
            raise UsageError(
                f"the module has no input {unknown[0]}", code="D0901", help=f"it has {listed}"
            )
        return dynamic
    if isinstance(dynamic, bool) or dynamic is None:
        return dict.fromkeys(inputs, dynamic)
    return dict(zip(inputs, dynamic, strict=False))


def _axes_of(value: object, wanted: object) -> object:
    """What is asked of a tensor, or of each tensor inside of lists and dictionaries."""
    rank = getattr(value, "dim", None)
    if callable(rank):
        return _of_tensor(cast("int", rank()), wanted)
    if isinstance(value, list | tuple):
        parts = cast("Sequence[object]", value)
        alike = [wanted] * len(parts)
        each = cast("Sequence[object]", wanted) if isinstance(wanted, list | tuple) else alike
        found = [_axes_of(part, one) for part, one in zip(parts, each, strict=False)]
        return tuple(found) if isinstance(value, tuple) else found
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        alike = dict.fromkeys(table, wanted)
        each = cast("Mapping[str, object]", wanted) if isinstance(wanted, Mapping) else alike
        return {key: _axes_of(part, each.get(key)) for key, part in table.items()}
    return None


def _of_tensor(rank: int, wanted: object) -> dict[int, object] | None:
    from torch.export import Dim

    if wanted is True:
        return dict.fromkeys(range(rank), Dim.AUTO)
    pairs = _pairs(wanted)
    return {axis % rank: _dim(given) for axis, given in pairs if given is not None} or None


def _pairs(wanted: object) -> list[tuple[int, object]]:
    """The axes with what is asked of them."""
    if isinstance(wanted, Mapping):
        return list(cast("Mapping[int, object]", wanted).items())
    if isinstance(wanted, list | tuple):
        return list(enumerate(cast("Sequence[object]", wanted)))
    return []


def _dim(given: object) -> object:
    """A name or True makes an axis dynamic; what `torch.export` has for it is taken as it is."""
    from torch.export import Dim

    return Dim.DYNAMIC if isinstance(given, str) or given is True else given


def size_names(dynamic: Dynamic, program: ExportedProgram) -> dict[str, str]:
    """The names that were asked for, by PyTorch's names of the sizes."""
    shapes: dict[str, Sequence[object]] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs:
            shapes[node.name] = getattr(node.meta.get("val"), "shape", ())
    found: dict[str, str] = {}
    for name, wanted in _by_name(dynamic, [*shapes, *_other_names(dynamic, shapes)]).items():
        shape = shapes.get(name, ())
        for axis, given in _pairs(wanted):
            symbol = str(shape[axis]) if -len(shape) <= axis < len(shape) else ""
            called = given if isinstance(given, str) else getattr(given, "__name__", None)
            if symbol.isidentifier() and isinstance(called, str):
                found.setdefault(symbol, called)
    return found


def _other_names(dynamic: Dynamic, shapes: Mapping[str, object]) -> list[str]:
    """Inputs that are not one tensor: the sizes inside of them keep PyTorch's names."""
    return [name for name in dynamic if name not in shapes] if isinstance(dynamic, Mapping) else []
