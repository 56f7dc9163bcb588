"""Finding the weights of a model among named arrays.

A weight has a path in the model text, and may have another name in weight files (`names`, `key`). The
weights of a stack of layers, one array with a leading axis in the model, may be one array for each layer
in a file, matrices may be transposed, and one array of a file may hold several weights side by side.
Floats that the model has wider are widened, which is exact; nothing else is converted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Protocol, TypeAlias

import numpy as np

from dlc.errors import ModelError
from dlc.errors.warn import warn
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Weight
from dlc.runtime.weights.files import missing_weight

__all__ = ["Arrays", "Narrowed", "by_key", "by_path", "typed", "warn_of_unused"]

Shape: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[slice, ...]

MOST_NAMED = 5
"""Arrays without a use that a warning names."""

_FLOATS = ("f64", "f32", "bf16", "f16")
_NARROWER = {"f32": ("bf16", "f16"), "f64": ("f32", "bf16", "f16")}
"""The floats of which each value is one of a wider dtype, too."""


class Arrays(Protocol):
    """Tensors by name, of a file or from a caller."""

    def __contains__(self, name: object, /) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def __getitem__(self, name: str, /) -> Tensor: ...


def by_key(weight: Weight, arrays: Arrays, where: str) -> Tensor:
    """The weight in a file: by its name in weight files, else by its path.

    `where` names the file in messages. Raises ModelError: D0504 if the weight is missing, D0505 if it has
    another dtype or shape.
    """
    if _has_key(weight, arrays):
        return _under_key(weight, arrays, where)
    if weight.name in arrays:
        return _fitting(arrays[weight.name], weight.name, weight, {weight.shape: ()}, where)
    raise missing_weight(where, next(iter(weight.parts), weight.file_key), arrays)


def by_path(weight: Weight, arrays: Arrays, where: str) -> Tensor:
    """The weight among named arrays: by its path, else by its name in weight files."""
    if weight.name in arrays:
        return _fitting(arrays[weight.name], weight.name, weight, {weight.shape: ()}, where)
    if _has_key(weight, arrays):
        return _under_key(weight, arrays, where)
    raise missing_weight(where, weight.name, arrays)


def _has_key(weight: Weight, arrays: Arrays) -> bool:
    if weight.parts:
        return any(part in arrays for part in weight.parts)
    return weight.file_key in arrays


def _under_key(weight: Weight, arrays: Arrays, where: str) -> Tensor:
    """The weight from its array or arrays in a weight file."""
    places = _places(weight.file_shape, weight.portion)
    tensors: list[Tensor] = []
    for name in weight.parts or (weight.file_key,):
        if name not in arrays:
            raise missing_weight(where, name, arrays)
        tensors.append(_fitting(arrays[name], name, weight, places, where))
    bits = [each.bits.swapaxes(-1, -2) if weight.transposed else each.bits for each in tensors]
    stacked = np.stack(bits).reshape(weight.shape) if weight.parts else bits[0]
    return Tensor.from_bits(stacked, weight.dtype)


def _places(shape: Shape, portion: Sequence[int]) -> dict[Shape, Place]:
    """The shapes that an array with a weight of this shape may have, and where the weight lies in it."""
    if not portion:
        return {shape: ()}
    first, last, whole, *axes = portion
    places: dict[Shape, Place] = {}
    for axis in axes or range(len(shape)):
        unit = shape[axis] // (last - first)
        place = *[slice(None)] * axis, slice(first * unit, last * unit)
        places[*shape[:axis], whole * unit, *shape[axis + 1 :]] = place
    return places


def _fitting(
    tensor: Tensor, name: str, weight: Weight, places: Mapping[Shape, Place], where: str
) -> Tensor:
    """The weight in a tensor of one of these shapes, if its dtype is as wide as that of the tensor.

    Raises ModelError (D0505).
    """
    place = places.get(tensor.shape)
    if place is not None and tensor.dtype in (weight.dtype, *_NARROWER.get(weight.dtype, ())):
        part = Tensor.from_bits(tensor.bits[place], tensor.dtype)
        return part if part.dtype == weight.dtype else part.astype(weight.dtype)
    way_out = "use weights made for this model, or declare what the file has"
    turned = tensor.shape[:-2] + tensor.shape[:-3:-1]
    if tensor.dtype != weight.dtype and place is not None:
        way_out = f"convert it to {weight.dtype} where it is made"
        if tensor.dtype in ("f64", "f32") and weight.dtype in ("f32", "bf16", "f16"):
            way_out += ", or write narrow:FILE for the file to round it"
    elif place is None and turned in places:
        target = weight.name if weight.transposed else f"{weight.name}.T"
        target = f"(.., {target}, ..)" if weight.portion else target
        way_out = f'it may have to be transposed: names {{ "{name}" = {target} }}'
    elif weight.portion and place is None:
        way_out = "the weights of one array lie side by side: names lists all of them, in order"
    elif prod(tensor.shape) in map(prod, places):
        way_out = "reshape it where it is made, or declare the shape that the file has"
    shapes = " or ".join([typed(weight.dtype, shape) for shape in places])
    raise ModelError(
        f"{where}: {name} is {typed(tensor.dtype, tensor.shape)}, where the model has {shapes}",
        code="D0505",
        help=way_out,
    )


def warn_of_unused(where: str, names: Iterable[str], used: Collection[str]) -> None:
    """Warn of arrays that the model does not use.

    What a checkpoint has for training alone, `$optimizer.net.0.w.m`, is none of them.
    """
    extra = [name for name in names if name not in used and not name.startswith("$")]
    more = f" and {len(extra) - MOST_NAMED} more" if len(extra) > MOST_NAMED else ""
    if extra:
        warn(f"{where}: the model does not use {', '.join(extra[:MOST_NAMED])}{more}")


class Narrowed:
    """Arrays whose floats are rounded to the dtype that a weight has, as `narrow:FILE` asks."""

    def __init__(self, arrays: Arrays, weight: Weight) -> None:
        self._arrays = arrays
        self._dtype = weight.dtype

    def __contains__(self, name: object, /) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __getitem__(self, name: str, /) -> Tensor:
        tensor = self._arrays[name]
        floats = tensor.dtype in _FLOATS and self._dtype in _FLOATS
        return tensor.astype(self._dtype) if floats else tensor


def typed(dtype: str, shape: Shape) -> str:
    """A type in the syntax of the language: `f32[4, 4]`, `i32`."""
    return f"{dtype}[{', '.join(map(str, shape))}]" if shape else dtype
