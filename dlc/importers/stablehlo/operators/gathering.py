"""Gathers: slices of an operand at computed starts, which are moved inside of it."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.importers.stablehlo.facts import IndexNumbers
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.importers.stablehlo.operators.slices import dynamic_slice
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import I64, DType, TensorType


class Indexed:
    """How a gather reads or a scatter writes: by an index tensor for each axis of `axes`.

    The index tensors have the axes of the indices that number slices, `batch`, and then an axis for each
    axis of the operand in `parts`, which numbers the elements of a slice along it; axes of the operand in
    `whole` are taken as they are.
    """

    def __init__(
        self,
        context: NodeContext,
        operand: TensorType,
        indices: Value,
        numbers: IndexNumbers,
        sizes: Sequence[Size],
    ) -> None:
        self._context = context
        self._operand = operand
        self._sizes = tuple(sizes)
        self.numbers = numbers
        self.batch: Shape = _without(tensor_type(indices).shape, numbers.vector)
        self.starts = self._starts(indices)
        shape = operand.shape
        self.whole = [
            axis
            for axis, size in enumerate(shape)
            if axis not in numbers.batch and self._sizes[axis] == size and not self._is_read(axis)
        ]
        self.axes = [axis for axis in range(len(shape)) if axis not in self.whole]
        lacking = (*numbers.collapsed, *numbers.batch)
        self.parts = [axis for axis in self.axes if axis not in lacking]
        self.shape: Shape = (*self.batch, *[self._sizes[axis] for axis in self.parts])

    def _is_read(self, axis: int) -> bool:
        """Whether an axis of which a slice has all must be indexed since it is to be left out."""
        return axis in self.numbers.collapsed

    def _starts(self, indices: Value) -> dict[int, Value]:
        """The start of each slice along each indexed axis, as integers of 32 bits or more."""
        emit, vector = self._context.emit, self.numbers.vector
        type = tensor_type(indices)
        wide = indices if type.dtype.kind == "int" and type.dtype.bits >= 32 else None
        indices = wide or array.wide_index(emit, indices)
        if vector == type.rank:
            return dict.fromkeys(self.numbers.indexed, indices)
        return {
            axis: reshape(emit, array.slice_axis(emit, indices, vector, k, k + 1), self.batch)
            for k, axis in enumerate(self.numbers.indexed)
        }

    def last(self, axis: int) -> Size:
        """The last start along an axis at which a slice is inside the operand."""
        return self._operand.shape[axis] - self._sizes[axis]

    def index(self, axis: int, start: Value | None) -> Value:
        """The index tensor of an axis, from the starts of its slices."""
        emit = self._context.emit
        dtype = tensor_type(start).dtype if start is not None else self._dtype
        type = TensorType(dtype, self.shape)
        if axis in self.numbers.batch:
            return self._batch_index(axis, type)
        found = None
        if start is not None:
            rank = len(self.batch)
            found = start
            if len(self.shape) > rank:
                found = emit(array.Broadcast(start, self.shape, tuple(range(rank))))
        if axis in self.parts and self._sizes[axis] != 1:
            place = len(self.batch) + self.parts.index(axis)
            within = array.iota(emit, type, place, dtype)
            found = within if found is None else emit(array.Add(found, within))
        return array.fill(emit, 0, type) if found is None else found

    def _batch_index(self, axis: int, type: TensorType) -> Value:
        """The axis of the indices that is walked together with an axis of the operand."""
        numbers = self.numbers
        place = numbers.index_batch[numbers.batch.index(axis)]
        place -= place > numbers.vector
        return array.iota(self._context.emit, type, place, type.dtype)

    @property
    def _dtype(self) -> DType:
        starts = list(self.starts.values())
        return tensor_type(starts[0]).dtype if starts else I64

    def laid_out(self) -> tuple[int, ...]:
        """The axes of the operand that a slice has, in the order of the index tensors and what is left."""
        return (*self.parts, *self.whole)


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def clamped(context: NodeContext, start: Value, last: Size) -> Value:
    """Starts between 0 and the last one."""
    emit = context.emit
    known = context.known.integers(start)
    if known is not None and isinstance(last, int) and ((known >= 0) & (known <= last)).all():
        return start
    type = tensor_type(start)
    low = emit(array.Maximum(start, array.fill(emit, 0, type)))
    return emit(array.Minimum(low, numbers(emit, last, type)))


def _gather(context: NodeContext) -> Made:
    sizes = context.sizes(2) if len(context.operands) > 2 else context.integers("slice_sizes")
    given = context.given("dimension_numbers")
    assert isinstance(given, IndexNumbers)
    x = context.value(0)
    found = Indexed(context, tensor_type(x), context.value(1), given, sizes)
    if not found.batch and not given.batch:
        return _one_slice(context, x, found, sizes)
    gathered = _gathered(context, x, found)
    return _in_place(context.emit, gathered, found, context)


def _one_slice(context: NodeContext, x: Value, indexed: Indexed, sizes: Sequence[Size]) -> Value:
    """The only slice that is read: a dynamic slice without the axes that are left out."""
    emit, collapsed = context.emit, indexed.numbers.collapsed
    zero = array.fill(emit, 0, TensorType(I64))
    starts = [indexed.starts.get(axis, zero) for axis in range(tensor_type(x).rank)]
    part = dynamic_slice(context, x, starts, sizes)
    kept = tuple([size for axis, size in enumerate(sizes) if axis not in collapsed])
    return reshape(emit, part, kept)


def _gathered(context: NodeContext, x: Value, indexed: Indexed) -> Value:
    """The axes of the batch, those of the parts of slices, and those that are taken whole."""
    emit = context.emit
    if not indexed.axes:
        count, rank = len(indexed.batch), tensor_type(x).rank
        shape = (*indexed.batch, *tensor_type(x).shape)
        return emit(array.Broadcast(x, shape, tuple(range(count, count + rank))))
    empty = [axis for axis in indexed.axes if tensor_type(x).shape[axis] == 0]
    if empty or 0 in indexed.shape:
        rest = [tensor_type(x).shape[axis] for axis in indexed.whole]
        return array.fill(emit, 0, tensor_type(x).with_shape((*indexed.shape, *rest)))
    indices: list[Value] = []
    for axis in indexed.axes:
        start = indexed.starts.get(axis)
        if start is not None:
            start = clamped(context, start, indexed.last(axis))
        indices.append(indexed.index(axis, start))
    return emit(array.Gather(x, _alike(emit, indices), tuple(indexed.axes)))


def _alike(emit: Builder, indices: Sequence[Value]) -> tuple[Value, ...]:
    """Index tensors of one dtype."""
    dtypes = {tensor_type(index).dtype for index in indices}
    dtype = dtypes.pop() if len(dtypes) == 1 else I64
    return tuple([in_dtype(emit, index, dtype) for index in indices])


def _in_place(emit: Builder, gathered: Value, indexed: Indexed, context: NodeContext) -> Value:
    """The gathered slices with their axes where the result has them."""
    window, count = indexed.numbers.window, len(indexed.batch)
    laid = indexed.laid_out()
    if len(laid) != len(window):
        raise context.wrong(f"has {len(window)} axes of slices, and slices have {len(laid)}")
    rank = count + len(window)
    others = [axis for axis in range(rank) if axis not in window]
    # Axis k of the result is axis order[k] of what was gathered.
    order = [0] * rank
    for place, axis in enumerate(others):
        order[axis] = place
    rising = sorted(laid)
    for place, axis in zip(window, rising, strict=True):
        order[place] = count + laid.index(axis)
    return transpose(emit, gathered, tuple(order))


IMPORTERS: dict[str, Importer] = {
    "stablehlo.dynamic_gather": _gather,
    "stablehlo.gather": _gather,
}
