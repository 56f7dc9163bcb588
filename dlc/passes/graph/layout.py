"""Layout assignment: pictures are stored with channels last (NHWC), whatever the model says.

A convolution or pooling with channels first becomes one with channels last between two transposes. Then
transposes sink through the operations that follow, until they meet the transpose of the next convolution
and both cancel. Layout is never part of a type: the transposes that remain are explicit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc.dialects import array
from dlc.dialects.array.convolution_layouts import LAYOUTS
from dlc.dialects.array.elementwise import tensor_type
from dlc.ir.clone import clone
from dlc.ir.core import OPS, Builder, Op, Value
from dlc.ir.dims import Shape
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
    """A reduction of a transposed tensor: the axes that are left may be in another order."""
    if not isinstance(op.source.op, array.Transpose):
        return False
    emit, axes = rewriter.before(op), op.source.op.axes
    reduced = tuple(sorted(axes[axis] for axis in op.axes))
    result = emit(type(op)(op.source.op.source, reduced))
    kept = [axes[axis] for axis in op.kept]
    order = tuple([sorted(kept).index(axis) for axis in kept])
    rewriter.replace(op, emit(array.Transpose(result, order)), relation=EQUAL)
    return True


def sink_through_reshape(op: array.Reshape, rewriter: Rewriter) -> bool:
    """A reshape of a transposed tensor that splits axes, or merges those that are neighbours in its source.

    Axes that it merges in another order than there are swapped by a transpose that stays: so a channel
    shuffle moves runs of channels within a pixel.
    """
    if not isinstance(op.source.op, array.Transpose):
        return False
    axes, source = op.source.op.axes, op.source.op.source
    groups = regrouped(tensor_type(op.source).shape, op.shape)
    if groups is None:
        return False
    runs = [[axes[axis] for axis in before] for before, _ in groups]
    if any(sorted(run) != list(range(min(run), min(run) + len(run))) for run in runs):
        return False
    order = sorted(range(len(groups)), key=lambda number: min(runs[number]))
    if order == list(range(len(groups))):
        return False
    emit = rewriter.before(op)
    within = tuple([axis for number in order for axis in runs[number]])
    if within != tuple(range(len(axes))):
        source = emit(array.Transpose(source, within))
    moved = [axis for number in order for axis in groups[number][1]]
    inner = emit(array.Reshape(source, tuple([op.shape[axis] for axis in moved])))
    result = emit(array.Transpose(inner, array.inverse(tuple(moved))))
    rewriter.replace(op, result, relation=EQUAL)
    return True


def regrouped(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]] | None:
    """The smallest groups of neighbouring axes that a reshape turns into each other, in order.

    None where a group has no axis on one side, or sizes with names are split or merged.
    """
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        old, new = [i], [j]
        small, large = before[i], after[j]
        i, j = i + 1, j + 1
        while small != large:
            if not (isinstance(small, int) and isinstance(large, int)):
                return None
            if small < large and i < len(before):
                old.append(i)
                small, i = small * before[i], i + 1
            elif small > large and j < len(after):
                new.append(j)
                large, j = large * after[j], j + 1
            else:
                return None
        groups.append((old, new))
    # Axes of size 1 at the end belong to the last group.
    if not groups or any(size != 1 for size in (*before[i:], *after[j:])):
        return None
    old, new = groups[-1]
    old.extend(range(i, len(before)))
    new.extend(range(j, len(after)))
    return groups


RULES: dict[type[Op], list[Pattern[Any]]] = {
    array.Convolution: [channels_last],
    array.Reshape: [sink_through_reshape],
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
