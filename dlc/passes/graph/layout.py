"""Layout assignment: pictures are stored with channels last (NHWC), whatever the model says.

A convolution or pooling with channels first becomes one with channels last between two transposes. Then
transposes sink through the operations that follow, until they meet the transpose of the next convolution
and both cancel. Layout is never part of a type: the transposes that remain are explicit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc.dialects import array
from dlc.dialects.array.convolution import LAYOUTS
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.clone import clone
from dlc.ir.core import OPS, Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Pattern, Rewriter
from dlc.passes.graph.canonicalize import RULES as CANONICAL
from dlc.passes.graph.canonicalize import fold, graph_blocks

Axes = tuple[int, ...]


@define_pass("layout")
def layout(module: Op, context: Context) -> None:
    """Store pictures with channels last, and sink transposes until they cancel."""
    patterns: dict[type[Op], list[Pattern[Any]]] = {
        cls: [*rules] for cls, rules in CANONICAL.items()
    }
    for cls, rules in RULES.items():
        patterns.setdefault(cls, []).extend(rules)
    for cls in (array.Transpose, array.Reshape, array.Broadcast):
        patterns.setdefault(cls, []).append(fold)
    context.rewriter.run(graph_blocks(module), patterns)


def channels_last(op: array.Convolution, rewriter: Rewriter) -> bool:
    """Replace a convolution with channels first by one with channels last."""
    kind = LAYOUTS[op.dims]
    if kind.channels_last:
        return False
    emit = rewriter.before(op)
    to_last = (0, *kind.spatial, kind.channel)
    picture = emit(array.Transpose(op.source, to_last))
    order = (*kind.kernel_spatial, kind.kernel_in, kind.kernel_out)
    kernel = emit(array.Transpose(op.kernel, order))
    new = array.Convolution(
        picture,
        kernel,
        op.strides,
        op.padding,
        op.dilations,
        op.source_dilations,
        op.groups,
        op.dims[0] + op.dims[2:] + op.dims[1],
    )
    result = emit(array.Transpose(emit(new), array.inverse(to_last)))
    rewriter.replace(op, result, relation=EQUAL)
    return True


# Sinking. `axes` are those of a transpose: axis k of its result is axis axes[k] of its source.


def _axes_of(values: Sequence[Value]) -> Axes | None:
    """The axes of the first transpose among these values; None if there is none."""
    for value in values:
        if isinstance(value.op, array.Transpose):
            return value.op.axes
    return None


def untransposed(emit: Builder, value: Value, axes: Axes) -> Value | None:
    """The value of which `value` is the transpose by `axes`; None if that takes a copy."""
    type = tensor_type(value)
    back = array.inverse(axes)
    shape = tuple([type.shape[axis] for axis in back])
    match value.op:
        case array.Transpose(source=source, axes=operand_axes) if operand_axes == axes:
            return source
        case array.Fill(value=number):
            return emit(array.Fill(number, type.with_shape(shape)))
        case array.Broadcast(source=source, axes=operand_axes):
            target_axes = [axes[place] for place in operand_axes]
            order = tuple(sorted(range(len(target_axes)), key=target_axes.__getitem__))
            if order != tuple(range(len(target_axes))):
                source = emit(array.Transpose(source, order))
            return emit(array.Broadcast(source, shape, tuple(sorted(target_axes))))
        case _:
            return None


def sink_through_elements(op: Op, rewriter: Rewriter) -> bool:
    """A function of transposed tensors is the function, transposed."""
    axes = _axes_of(op.operands)
    if axes is None:
        return False
    emit = rewriter.before(op)
    operands: list[Value] = []
    for operand in op.operands:
        plain = untransposed(emit, operand, axes)
        if plain is None:
            return False
        operands.append(plain)
    result = emit(clone(op, operands))
    rewriter.replace(op, emit(array.Transpose(result, axes)), relation=EQUAL)
    return True


def sink_through_windows(op: array.ReduceWindow, rewriter: Rewriter) -> bool:
    """A pooling of a transposed picture."""
    if not isinstance(op.source.op, array.Transpose):
        return False
    emit, axes = rewriter.before(op), op.source.op.axes
    back = array.inverse(axes)
    result = emit(
        array.ReduceWindow(
            op.source.op.source,
            op.function,
            tuple([op.window[axis] for axis in back]),
            tuple([op.strides[axis] for axis in back]),
            tuple([op.padding[axis] for axis in back]),
            tuple([op.dilations[axis] for axis in back]),
        )
    )
    rewriter.replace(op, emit(array.Transpose(result, axes)), relation=EQUAL)
    return True


def sink_through_concatenation(op: array.Concatenate, rewriter: Rewriter) -> bool:
    """A concatenation of tensors that are all transposed in the same way."""
    axes = _axes_of(op.operands)
    if axes is None:
        return False
    emit = rewriter.before(op)
    sources = [untransposed(emit, operand, axes) for operand in op.operands]
    whole = [source for source in sources if source is not None]
    if len(whole) < len(sources):
        return False
    result = emit(array.Concatenate(tuple(whole), axes[op.axis]))
    rewriter.replace(op, emit(array.Transpose(result, axes)), relation=EQUAL)
    return True


def sink_through_pad(op: array.Pad, rewriter: Rewriter) -> bool:
    """A transposed tensor with a border."""
    if not isinstance(op.source.op, array.Transpose):
        return False
    emit, axes = rewriter.before(op), op.source.op.axes
    back = array.inverse(axes)
    low, high = (tuple([values[axis] for axis in back]) for values in (op.low, op.high))
    interior = tuple([op.interior[axis] for axis in back])
    result = emit(array.Pad(op.source.op.source, op.value, low, high, interior))
    rewriter.replace(op, emit(array.Transpose(result, axes)), relation=EQUAL)
    return True


def sink_through_slice(op: array.Slice, rewriter: Rewriter) -> bool:
    """A part of a transposed tensor."""
    if not isinstance(op.source.op, array.Transpose):
        return False
    emit, axes = rewriter.before(op), op.source.op.axes
    back = array.inverse(axes)
    starts, limits = (tuple([values[axis] for axis in back]) for values in (op.starts, op.limits))
    steps = tuple([op.steps[axis] for axis in back])
    result = emit(array.Slice(op.source.op.source, starts, limits, steps))
    rewriter.replace(op, emit(array.Transpose(result, axes)), relation=EQUAL)
    return True


def sink_through_reduction(op: array.Reduction, rewriter: Rewriter) -> bool:
    """A reduction of a transposed tensor: the axes that are left may stand in another order."""
    if not isinstance(op.source.op, array.Transpose):
        return False
    emit, axes = rewriter.before(op), op.source.op.axes
    reduced = tuple(sorted(axes[axis] for axis in op.axes))
    result = emit(type(op)(op.source.op.source, reduced))
    kept = [axes[axis] for axis in op.kept]
    order = tuple([sorted(kept).index(axis) for axis in kept])
    rewriter.replace(op, emit(array.Transpose(result, order)), relation=EQUAL)
    return True


RULES: dict[type[Op], list[Pattern[Any]]] = {
    array.Convolution: [channels_last],
    array.ReduceWindow: [sink_through_windows],
    array.Concatenate: [sink_through_concatenation],
    array.Pad: [sink_through_pad],
    array.Slice: [sink_through_slice],
    **{
        cls: [sink_through_elements]
        for cls in OPS.values()
        if issubclass(cls, array.Elementwise | array.Cast | array.Compare | array.Select)
    },
    **{cls: [sink_through_reduction] for cls in OPS.values() if issubclass(cls, array.Reduction)},
}
"""The rules of this pass, by the operation that they look at."""
