"""Operators on tensors whose sizes are computed when the model runs, such as a picture resized to its box.

Such a tensor is a formula of its elements (`DelayedTensor`), which operators take and make; it becomes a
tensor once its sizes are known again: when it is cut or padded to the size of something else, joined with
a tensor, or reduced. So there is no need for a bound, nor for storage of the largest size. Operators that
are not here refuse such a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects import array
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.onnx.delayed_tensor import DelayedTensor, Extent, Formula, Maker, Undecided
from dlc.importers.onnx.facts import Tensor
from dlc.importers.onnx.node_context import AnyValue, Constant, Importer, NodeContext, NodeResults
from dlc.importers.onnx.operators import delayed_reductions, elementwise
from dlc.importers.onnx.operators.delayed_resize import resized
from dlc.importers.onnx.operators.extents import (
    added,
    agreed,
    at_least_one,
    clamped,
    everywhere,
    greater,
    is_known,
    lesser,
    listed,
    multiplied,
    number,
    subtracted,
    vector,
    with_checks,
    within,
    zero_unless,
)
from dlc.importers.onnx.operators.shapes import FAR, forwards, slice_axes
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Shape, product
from dlc.ir.intervals import interval
from dlc.ir.types import F32, I64, DType, TensorType

DECIDING = {"ConstantOfShape": (0,), "Resize": (3,), "Slice": (1, 2)}
"""The operands of operators that may be computed sizes."""


def imported(context: NodeContext) -> NodeResults | None:
    """The results of a node that takes or makes a tensor whose sizes are computed; None for others."""
    kind = context.node.kind
    takes = [each for each in context.operands if isinstance(each, DelayedTensor)]
    if context.node.domain or not (takes or _deciding(context)):
        return None
    if kind in RULES:
        result = RULES[kind](context)
    elif kind in elementwise.IMPORTERS and len(context.node.outputs) == 1:
        result = _elementwise(context)
    else:
        raise takes[0].undecided()
    return _computed(context.emit, result) if isinstance(result, DelayedTensor) else result


def _deciding(context: NodeContext) -> list[int]:
    """Which operands are sizes that are computed."""
    if context.node.kind == "Resize" and context.opset < 11:
        return []
    return [
        index
        for index in DECIDING.get(context.node.kind, ())
        if isinstance(context.any_value(index), Value)
    ]


def _computed(emit: Builder, delayed: DelayedTensor) -> AnyValue:
    """The tensor itself, if its sizes are known."""
    shape = tuple([extent for extent in delayed.sizes if not isinstance(extent, Value)])
    if len(shape) < len(delayed.sizes):
        return delayed
    type = TensorType(I64, shape)
    return delayed.element(emit, shape, [array.iota(emit, type, k) for k in range(len(shape))])


def _as_delayed(context: NodeContext, index: int) -> DelayedTensor:
    """An operand as a formula of its elements. Raises Undecided for a tensor that may have none."""
    found = context.any_value(index)
    if isinstance(found, DelayedTensor):
        return found
    value = context.value(index)
    type = array.tensor_type(value)
    axes = tuple(range(type.rank))
    maker, which = _maker(context)
    if any((interval(size, context.regions.bounds)[0] or 0) < 1 for size in type.shape):
        raise Undecided(maker, which)

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        if not axes:
            return emit(array.Broadcast(value, shape, ())) if shape else value
        inside = [clamped(emit, *pair) for pair in zip(indices, type.shape, strict=True)]
        return emit(array.Gather(value, tuple(inside), axes))

    return DelayedTensor(type.dtype, type.shape, element, maker, which)


def _maker(context: NodeContext) -> tuple[Maker, int]:
    """The node that has a computed size as an operand, and which one."""
    for each in context.operands:
        if isinstance(each, DelayedTensor):
            return each.maker, each.index
    return context, _deciding(context)[0]


def _source(context: NodeContext) -> DelayedTensor:
    """The first operand, whose size is computed; another one that has such a size is refused."""
    found = context.any_value(0)
    if isinstance(found, DelayedTensor):
        return found
    raise Undecided(*_maker(context))


# Elements -----------------------------------------------------------------------------------------


def _elementwise(context: NodeContext) -> NodeResults:
    """What the operator makes of the elements at the same places of all operands."""
    count = len(context.operands)
    parts = [
        None if context.any_value(k) is None else _as_delayed(context, k) for k in range(count)
    ]
    there = [part for part in parts if part is not None]
    rank = max(len(part.sizes) for part in there)
    sizes: list[Extent] = []
    checks: list[list[Value]] = []
    for behind in range(-rank, 0):
        found = [part.sizes[behind] for part in there if len(part.sizes) >= -behind]
        size, zeros = agreed(context, [each for each in found if each != 1] or [1])
        sizes.append(size)
        checks.append(zeros)

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        checked = [with_checks(emit, *pair) for pair in zip(indices, checks, strict=True)]
        zero = array.fill(emit, 0, TensorType(I64, shape))
        operands = [
            None if part is None else part.element(emit, shape, _stretched(part, checked, zero))
            for part in parts
        ]
        return _one(context.emitting(emit, operands))

    dtype = _dtype(context, rank, element)
    return _delayed(there).then(sizes, element, there, dtype)


def _delayed(parts: Sequence[DelayedTensor]) -> DelayedTensor:
    """One whose sizes are not all known; the first if there is none."""
    return next((part for part in parts if not all(map(is_known, part.sizes))), parts[0])


def _stretched(part: DelayedTensor, indices: Sequence[Value], zero: Value) -> list[Value]:
    """The indices in an operand, whose last axes are those of the result; one of size 1 has one index."""
    own = indices[len(indices) - len(part.sizes) :]
    return [zero if size == 1 else index for index, size in zip(own, part.sizes, strict=True)]


def _one(context: NodeContext) -> Value:
    found = elementwise.IMPORTERS[context.node.kind](context)
    assert isinstance(found, Value | Constant), found
    return context.as_value(found)


def _dtype(context: NodeContext, rank: int, formula: Formula) -> DType:
    """The dtype of elements: of one that is computed, and left out."""
    block = Block()
    emit = Builder(block, context.emit.location)
    index = array.fill(emit, 0, TensorType(I64, (1,)))
    dtype = array.tensor_type(formula(emit, (1,), [index] * rank)).dtype
    block.clear()
    return dtype


def _constant_of_shape(context: NodeContext) -> NodeResults:
    emit = context.emit
    filled = context.tensor("value")
    dtype = F32 if filled is None else filled.dtype
    fill = 0.0 if filled is None else _only(context, filled)

    sizes = listed(context, 0)
    checks: list[Value] = []
    for extent in sizes:
        if isinstance(extent, Value):
            below = emit(array.Compare(extent, array.constant_like(emit, 0, extent), "lt"))
            checks.append(zero_unless(emit, below))

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        zero = array.fill(emit, 0, TensorType(I64, shape))
        only = array.fill(emit, fill, TensorType(dtype, (1,)))
        return emit(array.Gather(only, (with_checks(emit, zero, checks),), (0,)))

    return DelayedTensor(dtype, tuple(sizes), element, context, 0)


def _only(context: NodeContext, tensor: Tensor) -> float:
    if tensor.array.size != 1:
        raise context.wrong(f"has a value of {tensor.array.size} elements")
    return tensor.array.reshape(()).item()


# Places -------------------------------------------------------------------------------------------


def _shape(context: NodeContext) -> NodeResults:
    sizes = _source(context).sizes
    part = sizes[context.integer("start", 0) : context.integer("end", len(sizes))]
    known = [extent for extent in part if not isinstance(extent, Value)]
    return Constant.of_sizes(known) if len(known) == len(part) else vector(context.emit, part)


def _gather(context: NodeContext) -> NodeResults:
    source = _source(context)
    axis = context.axis(context.integer("axis", 0), len(source.sizes))
    index = _place(context, source.sizes[axis])
    type = array.tensor_type(index)
    behind = axis + type.rank

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        if type.rank:
            pairs = zip(indices[axis:behind], type.shape, strict=True)
            place = tuple([clamped(emit, *pair) for pair in pairs])
            taken = emit(array.Gather(index, place, tuple(range(type.rank))))
        else:
            taken = emit(array.Broadcast(index, shape, ())) if shape else index
        return source.element(emit, shape, (*indices[:axis], taken, *indices[behind:]))

    sizes = (*source.sizes[:axis], *type.shape, *source.sizes[axis + 1 :])
    return source.then(sizes, element)


def _place(context: NodeContext, extent: Extent) -> Value:
    """The indices of a Gather, counted from the start of an axis."""
    index = context.needed(1)
    if not isinstance(index, Constant) or index.is_symbolic or not isinstance(extent, int):
        return within(context.emit, in_dtype(context.emit, context.value(1), I64), extent)
    places = index.array.astype(np.int64)
    if np.any(places < -extent) or np.any(places >= extent):
        raise context.wrong("takes an element that is not there")
    return context.as_value(Constant(np.where(places < 0, places + extent, places), I64))


def _slice(context: NodeContext) -> NodeResults:
    source = _as_delayed(context, 0)
    starts, ends = (_limits(context, *which) for which in ((1, "starts"), (2, "ends")))
    axes, strides = slice_axes(context, len(source.sizes), (len(starts), len(ends)))
    if min(strides) < 1:
        raise Undecided(*_maker(context))
    sizes = list(source.sizes)
    places: dict[int, tuple[Extent, int]] = {}
    for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
        low, high = _cut(context, start, end, sizes[axis])
        places[axis] = (low, stride)
        sizes[axis] = _every(context, subtracted(context.emit, high, low), stride)

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        moved = list(indices)
        for axis, (low, stride) in places.items():
            if stride != 1:
                step = array.constant_like(emit, stride, moved[axis])
                moved[axis] = emit(array.Multiply(moved[axis], step))
            if low != 0:
                first = everywhere(emit, low, moved[axis])
                moved[axis] = emit(array.Add(moved[axis], first))
        return source.element(emit, shape, moved)

    return source.then(sizes, element)


def _limits(context: NodeContext, index: int, name: str) -> list[Extent]:
    return [*(context.list(name) or ())] if context.opset < 10 else listed(context, index)


def _cut(context: NodeContext, start: Extent, end: Extent, size: Extent) -> tuple[Extent, Extent]:
    """Where a slice begins and ends in an axis."""
    if not (isinstance(start, Value) or isinstance(end, Value) or isinstance(size, Value)):
        return forwards(context, start, end, 1, size)
    low, high = _inside(context, start, size), _inside(context, end, size)
    return low, high if low == 0 else greater(context, low, high)


def _inside(context: NodeContext, index: Extent, size: Extent) -> Extent:
    """An index, perhaps counted from the end, as one from 0 to the size."""
    emit = context.emit
    if isinstance(index, int) and abs(index) >= FAR:
        return 0 if index < 0 else size
    if isinstance(index, int) and index >= 0:
        return index and lesser(context, index, size)
    place = number(emit, index)
    zero = array.constant_like(emit, 0, place)
    is_behind = emit(array.Compare(place, zero, "lt"))
    from_end = emit(array.Add(place, number(emit, size)))
    place = emit(array.Select(is_behind, from_end, place))
    return lesser(context, emit(array.Maximum(place, zero)), size)


def _every(context: NodeContext, extent: Extent, stride: int) -> Extent:
    """How many elements there are where every `stride`-th of an extent is taken."""
    if stride == 1:
        return extent
    raised = number(context.emit, added(context.emit, extent, stride - 1))
    step = array.constant_like(context.emit, stride, raised)
    return context.emit(array.FloorDivide(raised, step))


def _concat(context: NodeContext) -> NodeResults:
    emit = context.emit
    rank = len(_as_delayed(context, _first(context)).sizes)
    axis = context.axis(context.integer("axis"), rank)
    whole: list[Extent] = [0] * rank
    checks: list[list[Value]] = [[]] * rank
    shapes = [_sizes(context, k) for k in range(len(context.operands))]
    for other in range(rank):
        if other != axis:
            whole[other], checks[other] = agreed(context, [shape[other] for shape in shapes])
    parts = [_as_delayed(context, k) for k, shape in enumerate(shapes) if shape[axis] != 0]
    starts: list[Extent] = []
    for part in parts:
        starts.append(whole[axis])
        whole[axis] = added(emit, whole[axis], part.sizes[axis])

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        checked = [with_checks(emit, *pair) for pair in zip(indices, checks, strict=True)]
        found: Value | None = None
        for part, start in zip(parts, starts, strict=True):
            first = everywhere(emit, start, checked[axis])
            place = emit(array.Subtract(checked[axis], first))
            place = clamped(emit, place, part.sizes[axis])
            own = part.element(emit, shape, (*checked[:axis], place, *checked[axis + 1 :]))
            if found is None:
                found = own
            else:
                is_here = emit(array.Compare(checked[axis], first, "ge"))
                found = emit(array.Select(is_here, own, found))
        assert found is not None
        return found

    return _delayed(parts).then(whole, element, parts)


def _first(context: NodeContext) -> int:
    """The first operand whose size is computed."""
    return next(k for k, each in enumerate(context.operands) if isinstance(each, DelayedTensor))


def _sizes(context: NodeContext, index: int) -> Sequence[Extent]:
    found = context.any_value(index)
    return found.sizes if isinstance(found, DelayedTensor) else context.type(index).shape


# Axes ---------------------------------------------------------------------------------------------


def _axes_given(context: NodeContext) -> Sequence[int]:
    if context.opset < 13:
        return context.list("axes") or ()
    return () if context.operand(1) is None else context.integers(1)


def _unsqueeze(context: NodeContext) -> NodeResults:
    source, named = _source(context), _axes_given(context)
    rank = len(source.sizes) + len(named)
    axes = context.axes(named, rank)
    rest = iter(source.sizes)
    kept = [k for k in range(rank) if k not in axes]
    sizes = tuple([1 if k in axes else next(rest) for k in range(rank)])

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        return source.element(emit, shape, [indices[k] for k in kept])

    return source.then(sizes, element)


def _squeeze(context: NodeContext) -> NodeResults:
    source, rank = _source(context), len(_source(context).sizes)
    axes = context.axes(_axes_given(context), rank)
    if not axes or any(source.sizes[axis] != 1 for axis in axes):
        raise Undecided(*_maker(context))  # which axes are left would depend on the call

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        rest, zero = iter(indices), array.fill(emit, 0, TensorType(I64, shape))
        own = [zero if axis in axes else next(rest) for axis in range(rank)]
        return source.element(emit, shape, own)

    sizes = tuple([size for axis, size in enumerate(source.sizes) if axis not in axes])
    return source.then(sizes, element)


def _transpose(context: NodeContext) -> NodeResults:
    source, rank = _source(context), len(_source(context).sizes)
    order = context.permutation(context.list("perm") or tuple(range(rank))[::-1], rank)

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        return source.element(emit, shape, [indices[order.index(axis)] for axis in range(rank)])

    sizes = tuple([source.sizes[axis] for axis in order])
    return source.then(sizes, element)


def _reshape(context: NodeContext) -> NodeResults:
    """Axes at the front that stay, and the others in row-major order."""
    emit, source = context.emit, _source(context)
    wanted = listed(context, 1)
    if not context.flag("allowzero"):
        wanted = [source.sizes[k] if size == 0 else size for k, size in enumerate(wanted)]
    kept = 0
    while kept < min(len(wanted), len(source.sizes)) and _same(wanted[kept], source.sizes[kept]):
        kept += 1
    old, new = source.sizes[kept:], wanted[kept:]
    whole = _product(emit, old)
    if new == [-1]:
        new = [whole]
    if any(size == -1 for size in new):
        raise Undecided(*_maker(context))
    _, checks = agreed(context, [_product(emit, new), whole])

    def element(emit: Builder, shape: Shape, indices: Sequence[Value]) -> Value:
        place: Value = array.fill(emit, 0, TensorType(I64, shape))
        for index, size in zip(indices[kept:], new, strict=True):
            rows = emit(array.Multiply(place, everywhere(emit, size, place)))
            place = emit(array.Add(rows, index))
        place = with_checks(emit, place, checks)
        own: list[Value] = []
        for size in reversed(old):
            divisor = at_least_one(emit, size, place)
            own.append(emit(array.Remainder(place, divisor)))
            place = emit(array.FloorDivide(place, divisor))
        return source.element(emit, shape, (*indices[:kept], *reversed(own)))

    return source.then((*source.sizes[:kept], *new), element)


def _same(one: Extent, other: Extent) -> bool:
    return one is other or one == other


def _product(emit: Builder, extents: Sequence[Extent]) -> Extent:
    whole: Extent = product([extent for extent in extents if not isinstance(extent, Value)])
    for extent in extents:
        if isinstance(extent, Value):
            whole = multiplied(emit, whole, extent)
    return whole


RULES: dict[str, Importer] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Gather": _gather,
    "Identity": _source,
    "Reshape": _reshape,
    "Resize": resized,
    "Shape": _shape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    **delayed_reductions.RULES,
}
