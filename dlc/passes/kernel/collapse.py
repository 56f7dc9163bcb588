"""Dimension collapsing: neighbouring axes that every access traverses as one become one.

An element-wise kernel over `[32, 28, 28, 16]` is one over 401408 elements; with a bias along the last
axis it is one over `[25088, 16]`. Fewer axes mean longer inner loops and kernels that more shapes share.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, kernel
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Shape, Size, product
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import Rewriter
from dlc.ir.types import INDEX
from dlc.ir.value_map import EQUAL


@define_pass("collapse")
def collapse(module: Op, context: Context) -> None:
    """Merge neighbouring axes that every access of a kernel traverses as one."""
    rewriter = context.rewriter
    for op in list(module.walk()):
        if isinstance(op, kernel.Generic) and not op.outs:
            groups = _groups(op)
            if len(groups) < len(op.domain) and rewriter.count.take():
                regroup(op, groups, rewriter)


def _groups(op: kernel.Generic) -> list[list[int]]:
    """The axes of the domain, in groups that can collapse into one axis each."""
    rank = len(op.domain)
    if any(isinstance(value.op, kernel.Stage) for value in op.body.terminator.operands):
        return [[axis] for axis in range(rank)]
    loads = [inner for inner in op.walk() if isinstance(inner, kernel.Load)]
    groups: list[list[int]] = []
    for axis in range(rank):
        if groups and _can_collapse(op, axis - 1, axis, loads):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _can_collapse(
    op: kernel.Generic, first: int, second: int, loads: Sequence[kernel.Load]
) -> bool:
    """Whether two indices appear only side by side, in loads over whole axes."""
    first_index, second_index = op.indices[first], op.indices[second]
    side_by_side = 0
    positions_in: dict[Value, list[int]] = {}
    for load in loads:
        positions = [
            k
            for k, index in enumerate(load.indices)
            if index is first_index or index is second_index
        ]
        if positions_in.setdefault(load.array, positions) != positions:
            return False
        if not positions:
            continue
        axis = positions[0]
        if positions != [axis, axis + 1] or load.indices[axis] is not first_index:
            return False
        shape = kernel.array_type(load.array).shape
        if shape[axis : axis + 2] != (op.domain[first], op.domain[second]):
            return False
        if load.array not in op.arrays:
            return False
        side_by_side += 1
    return (
        first_index.uses.keys() == second_index.uses.keys()
        and len(first_index.uses) == side_by_side
    )


def regroup(op: kernel.Generic, groups: Sequence[Sequence[int]], rewriter: Rewriter) -> None:
    """Replace a kernel by one with an axis for each group of axes; inputs and results are reshaped."""
    emit = rewriter.before(op)
    domain = tuple([product(op.domain[axis] for axis in group) for group in groups])
    position_of = {group[0]: position for position, group in enumerate(groups)}
    inputs = [
        _collapsed_input(emit, op, value, argument, groups)
        for value, argument in zip(op.inputs, op.arrays, strict=True)
    ]
    body = Block([*[INDEX] * len(domain), *[value.type for value in inputs]])
    indices = body.arguments[: len(domain)]
    inside = Builder(body, op.location)
    _drop_merged_indices(op, groups)
    stand_ins = [
        indices[position_of[axis]] if axis in position_of else indices[0]
        for axis in range(len(op.domain))
    ]
    arguments = [*stand_ins, *body.arguments[len(domain) :]]
    inside.place(kernel.Yield(_cloned_body(op, arguments, inside)))
    regrouped = kernel.Generic(inputs, [], body, domain)
    results = emit.all(regrouped)
    shapes = [kernel.array_type(result).shape for result in op.results]
    reshaped = [
        emit(array.Reshape(result, shape)) for result, shape in zip(results, shapes, strict=True)
    ]
    rewriter.replace(op, reshaped, relation=EQUAL)


def _cloned_body(op: kernel.Generic, arguments: list[Value], inside: Builder) -> tuple[Value, ...]:
    for old, new in zip(op.body.arguments, arguments, strict=True):
        old.type = new.type
    return clone_into(op.body, inside, arguments)


def _collapsed_input(
    emit: Builder,
    op: kernel.Generic,
    value: Value,
    argument: Value,
    groups: Sequence[Sequence[int]],
) -> Value:
    """An input with the merged axes collapsed."""
    load = next((use for use in argument.uses if isinstance(use, kernel.Load)), None)
    if load is None:
        return value
    shape = _collapsed_shape(op, load, groups)
    if shape == kernel.array_type(value).shape:
        return value
    return emit(array.Reshape(value, shape))


def _collapsed_shape(
    op: kernel.Generic, load: kernel.Load, groups: Sequence[Sequence[int]]
) -> Shape:
    merged = _merged_indices(op, groups)
    shape: list[Size] = []
    for index, size in zip(load.indices, kernel.array_type(load.array).shape, strict=True):
        if index in merged:
            shape[-1] = shape[-1] * size
        else:
            shape.append(size)
    return tuple(shape)


def _merged_indices(op: kernel.Generic, groups: Sequence[Sequence[int]]) -> set[Value]:
    """The indices that are not the first of their group."""
    return {op.indices[axis] for group in groups for axis in group[1:]}


def _drop_merged_indices(op: kernel.Generic, groups: Sequence[Sequence[int]]) -> None:
    """Drop from every load the indices that are merged into their neighbour."""
    merged = _merged_indices(op, groups)
    for load in list(op.walk()):
        if isinstance(load, kernel.Load) and any(index in merged for index in load.indices):
            kept = [index for index in load.indices if index not in merged]
            load.set_operands([load.array, *kept])


def regroup_like(
    op: kernel.Generic, argument: Value, domain: Shape, rewriter: Rewriter
) -> tuple[kernel.Generic, Value] | None:
    """Replace an element-wise kernel over one axis by one over `domain`, which has as many elements.

    Returns the new kernel and its argument for the array that `argument` stands for, which it reads
    without a reshape. None if a load is neither of the element that is computed nor of a scalar.
    """
    if not _is_element_wise(op) or not domain or product(domain) != op.domain[0]:
        return None
    emit = rewriter.before(op)
    inputs = [
        _reshaped_to(emit, value, domain) if kernel.array_type(value).shape else value
        for value in op.inputs
    ]
    position = op.arrays.index(argument)
    regrouped = kernel.Generic(inputs, [], _regrouped_body(op, inputs, domain), domain)
    shape = kernel.array_type(op.result).shape
    result = emit(regrouped)
    rewriter.replace(op, emit(array.Reshape(result, shape)), relation=EQUAL)
    return regrouped, regrouped.arrays[position]


def _is_element_wise(op: kernel.Generic) -> bool:
    """Whether a kernel has one axis and loads only the element that it computes, and scalars."""
    if len(op.domain) != 1:
        return False
    if any(kernel.array_type(value).shape not in (op.domain, ()) for value in op.inputs):
        return False
    (index,) = op.indices
    return all(isinstance(use, kernel.Load) and list(use.indices) == [index] for use in index.uses)


def _regrouped_body(op: kernel.Generic, inputs: Sequence[Value], domain: Shape) -> Block:
    """The body of an element-wise kernel for arrays over `domain`. Invalidates the body of `op`."""
    body = Block([*[INDEX] * len(domain), *[value.type for value in inputs]])
    indices, arrays = body.arguments[: len(domain)], body.arguments[len(domain) :]
    # Loads need as many indices as the arrays have axes: repeated ones, replaced after cloning.
    for load in [use for use in op.indices[0].uses if isinstance(use, kernel.Load)]:
        load.set_operands([load.array, *op.indices * len(domain)])
    for old, new in zip(op.arrays, arrays, strict=True):
        old.type = new.type
    emit = Builder(body, op.location)
    emit.place(kernel.Yield(clone_into(op.body, emit, [indices[0], *arrays])))
    for load in [inner for inner in body if isinstance(inner, kernel.Load) and inner.indices]:
        load.set_operands([load.array, *indices])
    return body


def _reshaped_to(emit: Builder, value: Value, shape: Shape) -> Value:
    """A value in another shape, without a reshape if the source of its reshapes has that shape."""
    while isinstance(value.op, array.Reshape):
        value = value.op.source
    if kernel.array_type(value).shape == shape:
        return value
    return emit(array.Reshape(value, shape))
