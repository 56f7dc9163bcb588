"""Facts about the values of a graph: numbers, weights, and values computed from these alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import copysign

import numpy as np

from dlc.dialects import array, nn, weight
from dlc.dialects.array import tensor_type
from dlc.dialects.measured import dims_of
from dlc.export.model_text.terms import Code, Index, Item, Weight
from dlc.importers.onnx.facts import Array
from dlc.ir.attributes import decode
from dlc.ir.core import Block, Evaluation, Op, Value
from dlc.ir.dims import Shape
from dlc.ir.types import F64, DType, TensorType

NEW = Code("new")
ALL = Code(":")
MAX_PLAIN = 1e6
"""Whole numbers below are written without a point."""
SMALL = 64
"""A value computed from weights is stored if it has no more elements than they, or than this."""

LARGER = 64
LEAST = 1 << 16
"""A value computed from weights is folded if it has at most LARGER times their elements, or LEAST."""
PADDED = (array.ReduceWindow, nn.Conv)
"""Operations that may read any number of elements beside those of their operands."""


@dataclass(frozen=True, slots=True)
class _Extent:
    """The elements and the bytes of the weights that a value follows from."""

    elements: int
    bytes: int


class Graph:
    """The operations of a function, with the numbers of its weights by symbol."""

    def __init__(
        self,
        block: Block,
        arrays: Mapping[str, Array],
        origins: Mapping[str, str],
        untrained: Collection[str] = (),
    ) -> None:
        self.origins = origins
        """The names of the weight symbols in the file that they come from."""
        self._untrained = untrained
        self._at = Evaluation(None, arrays)
        self._arrays: dict[Value, Array] = {}
        self._fixed: dict[Value, _Extent] = {}
        for op in [inner for outer in block for inner in outer.walk()]:
            extent = self._fixed_extent(op)
            if extent is not None:
                self._fixed.update(dict.fromkeys(op.results, extent))

    def _fixed_extent(self, op: Op) -> _Extent | None:
        """The extent of the weights on which alone an operation depends; None if it has other operands.

        None also for one that makes far more than they have: it is computed by the call.
        """
        types = [result.type for result in op.results]
        if op.regions or not op.pure or isinstance(op, PADDED) or dims_of(op):
            return None
        if not all(isinstance(type, TensorType) and type.is_static for type in types):
            return None
        made = sum(int(tensor_type(result).size) for result in op.results)  # pyright: ignore[reportArgumentType]
        if isinstance(op, weight.Get | array.Constant):
            return _Extent(made, made * tensor_type(op.result).dtype.bytes)
        if not isinstance(op, array.Fill) and not op.operands:
            return None
        if any(value not in self._fixed for value in op.operands):
            return None
        extents = [self._fixed[value] for value in op.operands]
        size = sum(extent.elements for extent in extents) or 1
        extent = _Extent(size, sum(extent.bytes for extent in extents) or 1)
        return extent if made <= max(LARGER * size, LEAST) else None

    # What is known ----------------------------------------------------------------------------

    def is_stored(self, value: Value) -> bool:
        """Whether a value follows from weights alone and may be stored in their place.

        Integers that are widened, as quantised weights are before a product, are stored as they were.
        """
        extent = self._fixed.get(value)
        if extent is None:
            return False
        type = tensor_type(value)
        size = int(type.size)  # pyright: ignore[reportArgumentType]
        if type.dtype.is_integer and size > SMALL and size * type.dtype.bytes > extent.bytes:
            return False
        return size <= max(extent.elements, SMALL)

    def array(self, value: Value) -> Array:
        """The elements of a value that follows from weights alone."""
        pending = [value]
        while pending:
            current = pending[-1]
            op = current.op
            assert op is not None and current in self._fixed
            missing = [operand for operand in op.operands if operand not in self._arrays]
            if current in self._arrays or not missing:
                pending.pop()
                self._evaluate(op)
            else:
                pending += missing
        return self._arrays[value]

    def _evaluate(self, op: Op) -> None:
        if op.results[0] in self._arrays:
            return
        result = op.evaluate(self._at, *[self._arrays[operand] for operand in op.operands])
        results = result if isinstance(result, tuple) else (result,)
        self._arrays.update(zip(op.results, results, strict=True))

    def weight(self, value: Value, *, trained: bool = True, flipped: Sequence[int] = ()) -> Weight:
        """A stored value as a weight, perhaps with its elements reversed along axes."""
        elements = self.array(value)
        dtype = tensor_type(value).dtype
        if flipped:
            elements = np.flip(elements, tuple(flipped))
        symbol = _symbol(value)
        origin = (value.name or "") if symbol is None else self.origins.get(symbol, symbol)
        is_trained = trained and dtype.is_float and symbol not in self._untrained
        return Weight(elements, dtype, origin, is_trained)

    def number(self, value: Value) -> bool | int | float | None:
        """The number that is in every place of a value; None where they differ or are not known."""
        op = value.op
        match op:
            case array.Fill():
                return op.value
            case array.Constant() if op.value.is_splat:
                first = decode(op.value.array.ravel()[:1], op.value.type.dtype)
                number: object = first[0].item()
                assert isinstance(number, bool | int | float)
                return number
            case array.Broadcast() | array.Reshape() | array.Transpose():
                return self.number(op.source)
            case _:
                return None

    def is_used_only_by(self, value: Value, users: set[Op]) -> bool:
        """Whether nothing else needs a value."""
        return all(user in users for user in value.uses)

    # Stretching -------------------------------------------------------------------------------

    def operands(
        self, values: Sequence[Value], shape: Shape, *, all_numbers: bool = False
    ) -> list[Item]:
        """Operands of an element-wise operation whose result has this shape, as short as may be.

        Numbers stand for tensors of one number, and what the language stretches by itself is not
        stretched in the text; at least one tensor stays, and all of the shape can be told from them.
        """
        items: list[Item] = [self._short(value, shape) for value in values]
        if all(not isinstance(item, Value | Index) for item in items) and not all_numbers:
            items[0] = values[0]
        if not all_numbers and _joint([_shape(item) for item in items]) != shape:
            items[0] = values[0]
            if _joint([_shape(item) for item in items]) != shape:
                items = list(values)
        return items

    def _short(self, value: Value, shape: Shape) -> Item:
        number = self.number(value)
        if number is None:
            return unstretched(value, shape)
        shortest = short(number, tensor_type(value).dtype)
        plain = isinstance(shortest, float) and shortest.is_integer() and abs(shortest) < MAX_PLAIN
        return int(shortest) if plain and (shortest or copysign(1, shortest) > 0) else shortest


def _symbol(value: Value) -> str | None:
    """The first weight that a value follows from."""
    pending = [value]
    while pending:
        op = pending.pop().op
        if isinstance(op, weight.Get):
            return op.symbol.name
        if op is not None:
            pending += reversed(op.operands)
    return None


def short(number: float, dtype: DType) -> float:
    """A number of a tensor of this dtype, as the shortest that rounds to the same element."""
    if not isinstance(number, float) or dtype is F64 or not dtype.is_float:
        return number
    with np.errstate(over="ignore"):
        return float(str(np.float32(number)))


def unstretched(value: Value, shape: Shape) -> Value | Index:
    """The operand that is broadcast to the value; the value itself if it is not a broadcast."""
    op = value.op
    if not isinstance(op, array.Broadcast):
        return value
    inner = op.source
    squeezed = inner.op
    if isinstance(squeezed, array.Reshape) and _stretches(squeezed.source, inner, op):
        return squeezed.source
    own = tensor_type(inner).rank
    if op.axes == tuple(range(len(shape) - own, len(shape))):
        return inner
    first = op.axes[0]
    entries = tuple([ALL if axis in op.axes else NEW for axis in range(first, len(shape))])
    return Index(inner, entries)


def _stretches(source: Value, squeezed: Value, op: array.Broadcast) -> bool:
    """Whether the language makes `op` of `source`, which loses its axes of size 1 before."""
    own, shape = tensor_type(source).shape, op.shape
    lead = len(shape) - len(own)
    if lead < 0:
        return False
    kept = [k for k, size in enumerate(own) if size == shape[lead + k]]
    return (
        all(size == 1 for k, size in enumerate(own) if k not in kept)
        and tensor_type(squeezed).shape == tuple([own[k] for k in kept])
        and op.axes == tuple([lead + k for k in kept])
    )


def _shape(item: Item) -> Shape:
    match item:
        case Value():
            return tensor_type(item).shape
        case Index(source=Value() as source, places=places):
            rest = iter(tensor_type(source).shape)
            return tuple([1 if place == NEW else next(rest) for place in places])
        case _:
            return ()


def _joint(shapes: Sequence[Shape]) -> Shape | None:
    """The shape that shapes stretch to, as far as they do."""
    rank = max(map(len, shapes), default=0)
    shape: list[int | object] = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            return None
        shape.append(sizes.pop() if sizes else 1)
    return tuple(shape)  # pyright: ignore[reportReturnType]
