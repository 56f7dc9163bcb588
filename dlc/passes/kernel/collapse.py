"""Collapsing axes: neighbouring axes that every access walks as one become one.

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
    """Merge neighbouring axes that every access of a kernel walks as one."""
    rewriter = context.rewriter
    for op in list(module.walk()):
        if isinstance(op, kernel.Generic) and not op.outs:
            groups = _groups(op)
            if len(groups) < len(op.domain):
                regroup(op, groups, rewriter)


def _groups(op: kernel.Generic) -> list[list[int]]:
    """The axes of the domain, those that can be walked as one together."""
    rank = len(op.domain)
    if any(isinstance(value.op, kernel.Stage) for value in op.body.terminator.operands):
        return [[axis] for axis in range(rank)]
    loads = [inner for inner in op.walk() if isinstance(inner, kernel.Load)]
    groups: list[list[int]] = []
    for axis in range(rank):
        if groups and _walked_as_one(op, axis - 1, axis, loads):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _walked_as_one(
    op: kernel.Generic, first: int, second: int, loads: Sequence[kernel.Load]
) -> bool:
    """Whether the two indices are used only side by side in loads of whole axes."""
    one, other = op.indices[first], op.indices[second]
    together = 0
    seen: dict[Value, list[int]] = {}
    for load in loads:
        places = [k for k, index in enumerate(load.indices) if index is one or index is other]
        if seen.setdefault(load.array, places) != places:
            return False
        if not places:
            continue
        if len(places) != 2 or places[1] != places[0] + 1 or load.indices[places[0]] is not one:
            return False
        shape = kernel.array_type(load.array).shape
        if shape[places[0]] != op.domain[first] or shape[places[1]] != op.domain[second]:
            return False
        if load.array not in op.arrays:
            return False
        together += 1
    return one.uses.keys() == other.uses.keys() and len(one.uses) == together


def regroup(op: kernel.Generic, groups: Sequence[Sequence[int]], rewriter: Rewriter) -> None:
    """The same kernel over a domain with one axis for each group; inputs and results are reshaped."""
    emit = rewriter.before(op)
    domain = tuple([product(op.domain[axis] for axis in group) for group in groups])
    kept = {group[0]: position for position, group in enumerate(groups)}
    inputs = [
        _reshaped(emit, op, value, argument, groups)
        for value, argument in zip(op.inputs, op.arrays, strict=True)
    ]
    body = Block([*[INDEX] * len(domain), *[value.type for value in inputs]])
    indices = body.arguments[: len(domain)]
    inside = Builder(body, op.location)
    _shorten_loads(op, groups)
    stand_ins = [
        indices[kept[axis]] if axis in kept else indices[0] for axis in range(len(op.domain))
    ]
    arguments = [*stand_ins, *body.arguments[len(domain) :]]
    inside.place(kernel.Yield(_retyped(op, arguments, inside)))
    made = kernel.Generic(inputs, [], body, domain)
    results = emit.all(made)
    shapes = [kernel.array_type(result).shape for result in op.results]
    back = [
        emit(array.Reshape(result, shape)) for result, shape in zip(results, shapes, strict=True)
    ]
    rewriter.replace(op, back, relation=EQUAL)


def _retyped(op: kernel.Generic, arguments: list[Value], inside: Builder) -> tuple[Value, ...]:
    for old, new in zip(op.body.arguments, arguments, strict=True):
        old.type = new.type
    return clone_into(op.body, inside, arguments)


def _reshaped(
    emit: Builder,
    op: kernel.Generic,
    value: Value,
    argument: Value,
    groups: Sequence[Sequence[int]],
) -> Value:
    """An input with the axes merged that its loads walk as one."""
    load = next((use for use in argument.uses if isinstance(use, kernel.Load)), None)
    if load is None:
        return value
    shape = _merged_shape(op, load, groups)
    if shape == kernel.array_type(value).shape:
        return value
    return emit(array.Reshape(value, shape))


def _merged_shape(op: kernel.Generic, load: kernel.Load, groups: Sequence[Sequence[int]]) -> Shape:
    merged = _merged_away(op, groups)
    shape: list[Size] = []
    for index, size in zip(load.indices, kernel.array_type(load.array).shape, strict=True):
        if index in merged:
            shape[-1] = shape[-1] * size
        else:
            shape.append(size)
    return tuple(shape)


def _merged_away(op: kernel.Generic, groups: Sequence[Sequence[int]]) -> set[Value]:
    """The indices that are not the first of their group."""
    return {op.indices[axis] for group in groups for axis in group[1:]}


def _shorten_loads(op: kernel.Generic, groups: Sequence[Sequence[int]]) -> None:
    """Leave out of every load the indices that are merged into their neighbour."""
    merged = _merged_away(op, groups)
    for load in list(op.walk()):
        if isinstance(load, kernel.Load) and any(index in merged for index in load.indices):
            kept = [index for index in load.indices if index not in merged]
            load.set_operands([load.array, *kept])


def regroup_like(
    op: kernel.Generic, argument: Value, domain: Shape, rewriter: Rewriter
) -> tuple[kernel.Generic, Value] | None:
    """An element-wise kernel over one axis as one over `domain`, with the argument for the same array.

    `argument` stands for a reshape of an array of that shape, which the new kernel reads directly.
    None if some access is neither at the element's own place nor to a single number.
    """
    if not _is_element_wise(op) or not domain or product(domain) != op.domain[0]:
        return None
    emit = rewriter.before(op)
    inputs = [
        _as(emit, value, domain) if kernel.array_type(value).shape else value for value in op.inputs
    ]
    position = op.arrays.index(argument)
    regrouped = kernel.Generic(inputs, [], _regrouped_body(op, inputs, domain), domain)
    shape = kernel.array_type(op.result).shape
    result = emit(regrouped)
    rewriter.replace(op, emit(array.Reshape(result, shape)), relation=EQUAL)
    return regrouped, regrouped.arrays[position]


def _is_element_wise(op: kernel.Generic) -> bool:
    """Whether a kernel has one axis and loads all arrays at the element's own place, or single numbers."""
    if len(op.domain) != 1:
        return False
    if any(kernel.array_type(value).shape not in (op.domain, ()) for value in op.inputs):
        return False
    (index,) = op.indices
    return all(isinstance(use, kernel.Load) and list(use.indices) == [index] for use in index.uses)


def _regrouped_body(op: kernel.Generic, inputs: Sequence[Value], domain: Shape) -> Block:
    """The body of an element-wise kernel for arrays over `domain`. Leaves `op` without a right one."""
    body = Block([*[INDEX] * len(domain), *[value.type for value in inputs]])
    indices, arrays = body.arguments[: len(domain)], body.arguments[len(domain) :]
    # The loads get as many indices as the arrays have axes; which ones is only known in the new body.
    for load in [use for use in op.indices[0].uses if isinstance(use, kernel.Load)]:
        load.set_operands([load.array, *op.indices * len(domain)])
    for before, after in zip(op.arrays, arrays, strict=True):
        before.type = after.type
    inside = Builder(body, op.location)
    inside.place(kernel.Yield(clone_into(op.body, inside, [indices[0], *arrays])))
    for load in [inner for inner in body if isinstance(inner, kernel.Load) and inner.indices]:
        load.set_operands([load.array, *indices])
    return body


def _as(emit: Builder, value: Value, shape: Shape) -> Value:
    """The array under another shape; a reshape of an array that has it is skipped."""
    while isinstance(value.op, array.Reshape):
        value = value.op.source
    if kernel.array_type(value).shape == shape:
        return value
    return emit(array.Reshape(value, shape))
