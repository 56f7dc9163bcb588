"""Operators that take and put elements at places, order them, or tell where they are."""

from __future__ import annotations

import math

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.importers.onnx.step import FOLDED, Constant, Importer, NodeResults, Step
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import BOOL, F64, I64, TensorType

MODES = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}
"""The reductions of an update with the element that it replaces, by their names in ONNX."""


MOST = 1 << 20
"""Elements of a constant in which `NonZero` and `Compress` look for the places while importing."""


def from_start(step: Step, index: Value, size: Size) -> Value:
    """Indices of an axis, of which negative ones count from the end, as such that do not."""
    emit = step.emit
    negative = emit(array.Compare(index, array.constant_like(emit, 0, index), "lt"))
    behind = emit(array.Add(index, numbers(emit, size, array.tensor_type(index))))
    return emit(array.Select(negative, behind, index))


# Taking -------------------------------------------------------------------------------------------


def _gather(step: Step) -> NodeResults:
    shape = step.type(0).shape
    axis = step.axis(step.integer("axis", 0), len(shape))
    known = step.operand(1)
    if isinstance(known, Constant) and known.array.size == 1:
        (place,) = known.sizes
        if isinstance(place, int) and place < 0:
            place = shape[axis] + place
        part = array.slice_axis(step.emit, step.value(0), axis, place, place + 1)
        return reshape(step.emit, part, (*shape[:axis], *known.array.shape, *shape[axis + 1 :]))
    index = from_start(step, step.value(1), shape[axis])
    return _taken(step.emit, step.value(0), index, axis)


def _taken(emit: Builder, x: Value, index: Value, axis: int) -> Value:
    """The elements of an axis at these indices, whose axes stand where it stood."""
    rank, front = array.tensor_type(x).rank, array.tensor_type(index).rank
    taken = emit(array.Gather(x, (index,), (axis,)))
    order = (*range(front, front + axis), *range(front), *range(front + axis, front + rank - 1))
    return transpose(emit, taken, order)


def _gather_elements(step: Step) -> NodeResults:
    axis = step.axis(step.integer("axis", 0), step.type(0).rank)
    index = from_start(step, step.value(1), step.type(0).shape[axis])
    return array.take_along(step.emit, step.value(0), index, axis)


def _gather_nd(step: Step) -> NodeResults:
    """Each row of the indices names a place; `batch_dims` leading axes go along with the data."""
    batch = step.integer("batch_dims", 0)
    places = _rows_of_places(step, batch)
    front = array.tensor_type(places[0])
    counted = [array.iota(step.emit, front, axis) for axis in range(batch)]
    axes = tuple(range(batch + len(places)))
    return step.emit(array.Gather(step.value(0), (*counted, *places), axes))


def _rows_of_places(step: Step, first: int = 0) -> list[Value]:
    """The last axis of the indices as one tensor for each axis that it names, from `first` on."""
    index = in_dtype(step.emit, step.value(1), I64)
    shape = array.tensor_type(index).shape
    count = shape[-1] if shape else 0
    sizes = step.type(0).shape
    if not isinstance(count, int) or not 0 < count <= len(sizes) - first:
        raise step.wrong(f"has rows of {count} indices for a tensor with {len(sizes)} axes")
    found: list[Value] = []
    for k in range(count):
        part = array.slice_axis(step.emit, index, len(shape) - 1, k, k + 1)
        found.append(from_start(step, reshape(step.emit, part, shape[:-1]), sizes[first + k]))
    return found


# Putting ------------------------------------------------------------------------------------------


def _mode(step: Step) -> str:
    name = step.text("reduction", "none")
    if name not in MODES:
        raise step.unsupported(f"with reduction {name!r} is not imported")
    return MODES[name]


def _scatter_elements(step: Step) -> NodeResults:
    axis = step.axis(step.integer("axis", 0), step.type(0).rank)
    index = from_start(step, step.value(1), step.type(0).shape[axis])
    return array.put_along(
        step.emit, step.value(0), step.value(2), index, axis, _mode(step), unique=False
    )


def _scatter_nd(step: Step) -> NodeResults:
    places = _rows_of_places(step)
    axes = tuple(range(len(places)))
    return step.emit(array.Scatter(step.value(0), step.value(2), places, axes, _mode(step)))


# Order and totals ---------------------------------------------------------------------------------


def _top_k(step: Step) -> NodeResults:
    axis = step.axis(step.integer("axis", -1), step.type(0).rank)
    if step.opset < 10:
        k: Size = step.integer("k")
    else:
        (k,) = step.sizes(1)
    best = array.TopK(step.value(0), axis, k, step.flag("largest", default=True))
    values, places = step.emit.all(best)
    return values, step.emit(array.Cast(places, I64))


def _cumulative(make: type[array.CumulativeSum | array.CumulativeProduct]) -> Importer:
    def apply(step: Step) -> NodeResults:
        (given,) = step.integers(1)
        axis = step.axis(given, step.type(0).rank)
        flags = step.flag("reverse"), step.flag("exclusive")
        return step.emit(make(step.value(0), axis, *flags))

    return apply


# Where things are ---------------------------------------------------------------------------------


def _one_hot(step: Step) -> NodeResults:
    """The second value where an index names the place along a new axis, elsewhere the first."""
    emit = step.emit
    index = in_dtype(emit, step.value(0), I64)
    type = array.tensor_type(index)
    depth = int(step.floats(1)[0])
    axis = step.axis(step.integer("axis", -1), type.rank + 1)
    shape = (*type.shape[:axis], depth, *type.shape[axis:])
    kept = tuple([k for k in range(len(shape)) if k != axis])
    wide = emit(array.Broadcast(from_start(step, index, depth), shape, kept))
    here = emit(array.Compare(array.iota(emit, TensorType(I64, shape), axis), wide, "eq"))
    pair = step.value(2)
    off, on = [
        emit(
            array.Broadcast(reshape(emit, array.slice_axis(emit, pair, 0, k, k + 1), ()), shape, ())
        )
        for k in range(2)
    ]
    return emit(array.Select(here, on, off))


def _triangle(step: Step) -> NodeResults:
    emit, x, type = step.emit, step.value(0), step.type(0)
    if type.rank < 2:
        raise step.wrong(f"takes matrices, found {type.text}")
    diagonal = 0 if step.operand(1) is None else step.integers(1)[0]
    places = type.with_dtype(I64)
    row = plus(emit, array.iota(emit, places, type.rank - 2), diagonal)
    column = array.iota(emit, places, type.rank - 1)
    predicate = "ge" if step.flag("upper", default=True) else "le"
    kept = emit(array.Compare(column, row, predicate))
    return emit(array.Select(kept, x, array.fill(emit, 0, type)))


def _nonzero(step: Step) -> NodeResults:
    """One row for each axis, one column for each element."""
    known = step.operand(0)
    if isinstance(known, Constant) and _is_counted_now(known):
        places = np.argwhere(decode(known.array, known.dtype)).astype(np.int64)
        return Constant(np.ascontiguousarray(places.T), I64)
    rows, _ = step.emit.all(array.NonZero(step.value(0), _fresh(step)))
    return transpose(step.emit, rows, (1, 0))


def _compress(step: Step) -> NodeResults:
    emit, x = step.emit, step.value(0)
    if "axis" in step.node.attributes:
        axis = step.axis(step.integer("axis"), step.type(0).rank)
    else:
        x, axis = reshape(emit, x, (step.type(0).size,)), 0
    known = step.operand(1)
    if isinstance(known, Constant) and _is_counted_now(known):
        index = Constant(np.flatnonzero(known.array).astype(np.int64), I64)
        return _taken(emit, x, step.as_value(index), axis)
    mask = step.value(1)
    chosen, size = array.tensor_type(mask).shape[0], array.tensor_type(x).shape[axis]
    if chosen != size:
        # A short mask leaves out the rest.
        x = array.slice_axis(emit, x, axis, 0, chosen)
    return array.compress(emit, x, mask, axis, _fresh(step))[0]


def _is_counted_now(known: Constant) -> bool:
    """Whether what is not 0 in a constant is looked for while importing."""
    return not known.is_symbolic and known.array.size <= MOST


def _fresh(step: Step) -> str:
    """The name of a size that this node brings."""
    return f"n_{step.node.line}"


def _range(step: Step) -> NodeResults:
    start, limit, delta = (step.constant(index) for index in range(3))
    if any(constant.is_symbolic for constant in (start, limit, delta)):
        if not _is_number(start, 0) or not _is_number(delta, 1):
            raise step.unsupported("to the size of a tensor starts at 0 and counts by 1")
        return array.iota(step.emit, TensorType(I64, (limit.sizes[0],)), 0, start.dtype)
    first, last, by = (step.floats(index)[0] for index in range(3))
    if not by or not math.isfinite((last - first) / by):
        raise step.wrong(f"counts from {first} to {last} by {by}")
    dtype, count = start.dtype, max(math.ceil((last - first) / by), 0)
    if count > FOLDED:
        emit, type = step.emit, TensorType(F64 if dtype.is_float else I64, (count,))
        listed = plus(emit, times(emit, array.iota(emit, type, 0, type.dtype), by), first)
        return in_dtype(emit, listed, dtype)
    found = np.arange(count) * by + first
    return Constant(encode(found, dtype) if dtype.is_float else found.astype(dtype.numpy), dtype)


def _is_number(known: Constant, number: int) -> bool:
    return not known.is_symbolic and decode(known.array, known.dtype).tolist() in (number, [number])


def _eye(step: Step) -> NodeResults:
    type = step.type(0)
    if type.rank != 2:
        raise step.wrong(f"makes a matrix, not {type.text}")
    emit, places = step.emit, type.with_dtype(I64)
    row = plus(emit, array.iota(emit, places, 0), step.integer("k", 0))
    same = emit(array.Compare(array.iota(emit, places, 1), row, "eq"))
    dtype = type.dtype if "dtype" not in step.node.attributes else step.dtype("dtype")
    return same if dtype is BOOL else emit(array.Cast(same, dtype))


# Blocks of pixels ---------------------------------------------------------------------------------


def _depth_to_space(step: Step) -> NodeResults:
    batch, depth, height, width = _picture(step)
    block = step.integer("blocksize")
    inner = depth // (block * block)
    if step.text("mode", "DCR") == "DCR":
        apart, order = (batch, block, block, inner, height, width), (0, 3, 4, 1, 5, 2)
    else:
        apart, order = (batch, inner, block, block, height, width), (0, 1, 4, 2, 5, 3)
    parts = transpose(step.emit, reshape(step.emit, step.value(0), apart), order)
    return reshape(step.emit, parts, (batch, inner, height * block, width * block))


def _space_to_depth(step: Step) -> NodeResults:
    batch, depth, height, width = _picture(step)
    block = step.integer("blocksize")
    apart = (batch, depth, height // block, block, width // block, block)
    by_depth = step.text("mode", "DCR") == "CRD"
    order = (0, 1, 3, 5, 2, 4) if by_depth else (0, 3, 5, 1, 2, 4)
    parts = transpose(step.emit, reshape(step.emit, step.value(0), apart), order)
    shape = (batch, block * block * depth, height // block, width // block)
    return reshape(step.emit, parts, shape)


def _picture(step: Step) -> tuple[Size, Size, Size, Size]:
    shape = step.type(0).shape
    if len(shape) != 4:
        raise step.wrong(f"takes pictures of 4 axes, found {step.type(0).text}")
    return shape[0], shape[1], shape[2], shape[3]


IMPORTERS: dict[str, Importer] = {
    "Compress": _compress,
    "CumProd": _cumulative(array.CumulativeProduct),
    "CumSum": _cumulative(array.CumulativeSum),
    "DepthToSpace": _depth_to_space,
    "EyeLike": _eye,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": _nonzero,
    "OneHot": _one_hot,
    "Range": _range,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "SpaceToDepth": _space_to_depth,
    "TopK": _top_k,
    "Trilu": _triangle,
}
