"""Finding the weights of a model among named arrays, whatever these are called there.

A weight has the path of the model's text, and perhaps another name in weight files. A stack of layers,
one array with a leading axis here, may be an array for each layer there, and matrices may be transposed.
Nothing else is converted.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Protocol

import numpy as np

from dlc.errors import ModelError
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Weight
from dlc.runtime.weights.files import missing_weight

__all__ = ["Arrays", "by_key", "by_path", "typed"]

Shape = tuple[int, ...]


class Arrays(Protocol):
    """Tensors by name: those of a file, or those that a caller gives."""

    def __contains__(self, name: object, /) -> bool: ...

    def __iter__(self) -> Iterator[str]: ...

    def __getitem__(self, name: str, /) -> Tensor: ...


def by_key(weight: Weight, arrays: Arrays, where: str) -> Tensor:
    """The weight in a file: under the names that it has there, else under the model's own path.

    `where` is what messages call the file. Raises ModelError: D0504 if it is not there, D0505 if it has
    another dtype or shape.
    """
    if _has_key(weight, arrays):
        return _under_key(weight, arrays, where)
    if weight.name in arrays:
        return _fitting(arrays[weight.name], weight.name, weight, weight.shape, where)
    raise missing_weight(where, next(iter(weight.parts), weight.file_key), arrays)


def by_path(weight: Weight, arrays: Arrays, where: str) -> Tensor:
    """The weight among arrays that are called by the model's own paths, else by the names in files."""
    if weight.name in arrays:
        return _fitting(arrays[weight.name], weight.name, weight, weight.shape, where)
    if _has_key(weight, arrays):
        return _under_key(weight, arrays, where)
    raise missing_weight(where, weight.name, arrays)


def _has_key(weight: Weight, arrays: Arrays) -> bool:
    if weight.parts:
        return any(part in arrays for part in weight.parts)
    return weight.file_key in arrays


def _under_key(weight: Weight, arrays: Arrays, where: str) -> Tensor:
    """The weight from the array or the arrays that files have for it."""
    copies = weight.shape[: weight.stacked] if weight.parts else ()
    shape = weight.shape[len(copies) :]
    stored = (*shape[:-2], shape[-1], shape[-2]) if weight.transposed else shape
    found: list[Tensor] = []
    for name in weight.parts or (weight.file_key,):
        if name not in arrays:
            raise missing_weight(where, name, arrays)
        found.append(_fitting(arrays[name], name, weight, stored, where))
    bits = [tensor.bits.swapaxes(-1, -2) if weight.transposed else tensor.bits for tensor in found]
    whole = np.stack(bits).reshape(weight.shape) if weight.parts else bits[0]
    return Tensor.from_bits(whole, weight.dtype)


def _fitting(tensor: Tensor, name: str, weight: Weight, shape: Shape, where: str) -> Tensor:
    """The tensor, if it has the weight's dtype and the shape."""
    if (tensor.dtype, tensor.shape) == (weight.dtype, shape):
        return tensor
    way_out = "use weights made for this model, or declare what the file has"
    if tensor.dtype != weight.dtype and tensor.shape == shape:
        way_out = f"convert it to {weight.dtype} where it is made"
    elif tensor.shape != shape and tensor.shape == (*shape[:-2], *shape[:-3:-1]):
        way_out = f'it may have to be transposed: names {{ "{name}" = {weight.name}.T }}'
    elif prod(tensor.shape) == prod(shape):
        way_out = "reshape it where it is made, or declare the shape that the file has"
    raise ModelError(
        f"{where}: {name} is {typed(tensor.dtype, tensor.shape)}, "
        f"where the model has {typed(weight.dtype, shape)}",
        code="D0505",
        help=way_out,
    )


def typed(dtype: str, shape: Shape) -> str:
    """A type as the language writes it: `f32[4, 4]`, `i32`."""
    return f"{dtype}[{', '.join(map(str, shape))}]" if shape else dtype
