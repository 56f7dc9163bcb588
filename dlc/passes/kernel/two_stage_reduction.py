"""Two-stage reductions: a long reduction to few elements becomes two kernels on a GPU.

The gradient of a bias is such a reduction: few columns, many rows. Whole axes of the reduction, and perhaps
parts of the next one, become axes of a first kernel, which then has enough elements for all threads; the
second kernel reduces its partial results. The number of parts follows from the sizes, so the bits are the
same in every run, and partial results are planned like any other value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects import kernel, scalar
from dlc.dialects.kernel.formula import fold, number, size
from dlc.dialects.scalar import element
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Shape, Size, ceil_divide, evaluate, names, product
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import INDEX
from dlc.passes.graph.device_placement import ops_of
from dlc.target import gpu_of
from dlc.target.gpu import Occupancy

NEIGHBOURS = 4
"""Elements that a thread of the first kernel computes."""
STEPS = 32
"""The fewest steps of a part that a thread reduces."""
ROW = 4096
"""The fewest steps of a part that a block reduces."""
USUAL = 64
"""The value assumed for a dim, if training gives no batch."""


@define_pass("split_reductions")
def split_reductions(module: Op, context: Context, *, gpu_only: bool = False) -> None:
    """Compute long reductions to few elements in two stages.

    With `gpu_only` only kernels placed on a GPU.
    """
    usual, occupancy = context.options.batch or USUAL, gpu_of(context.options).occupancy
    for op in ops_of(module, gpu_only=gpu_only):
        if isinstance(op, kernel.Generic) and not op.outs:
            for inner in list(op.body):
                if isinstance(inner, kernel.Reduce) and _is_independent(inner, op):
                    if prod(_sizes_of(op, inner, usual)) < occupancy.split_elements:
                        continue
                    parts = _parts_of(op, inner, usual, occupancy)
                    if not parts:
                        context.log.refused(
                            "a first stage would not have enough parts", op.results[0]
                        )
                    else:
                        context.log.did("reduce in two stages", op.results[0])
                        _split(op, inner, parts)


def _is_independent(reduction: kernel.Reduce, op: kernel.Generic) -> bool:
    """Whether the reduced formula contains no other reduction, and depends on none."""
    pending: list[Op] = [reduction]
    seen: set[Op] = set()
    while pending:
        current = pending.pop()
        for inner in current.walk():
            if isinstance(inner, kernel.Inner) and inner is not reduction:
                return False
            producers = [value.op for value in inner.operands if value.op is not None]
            new = [other for other in producers if other.parent is op.body and other not in seen]
            seen.update(new)
            pending += new
    return True


@dataclass(frozen=True, slots=True)
class _Part:
    """How an axis is divided: into `parts` of `each` steps, the last of which may have fewer."""

    extent: Size
    parts: Size
    each: Size

    @property
    def is_exact(self) -> bool:
        """Whether all parts have as many steps."""
        return self.parts * self.each == self.extent


def _parts_of(
    op: kernel.Generic, reduction: kernel.Reduce, usual: int, occupancy: Occupancy
) -> list[_Part]:
    """How the first axes of a reduction are divided; empty where that does not pay."""
    count, length = _sizes_of(op, reduction, usual)
    is_along_memory = kernel.folds_along_memory(op)
    if is_along_memory:
        parts_left = min(occupancy.light_blocks // max(count, 1), length // ROW)
    else:
        parts_left = min(occupancy.threads * NEIGHBOURS // max(count, 1), length // STEPS)
    parts: list[_Part] = []
    last = len(reduction.extents) - 1
    for axis, extent in enumerate(reduction.extents):
        if parts_left < 2:
            break
        length_of_axis = _about(extent, usual)
        if axis < last and length_of_axis <= 2 * parts_left:
            parts.append(_Part(extent, extent, 1))
            parts_left //= length_of_axis
            continue
        part = _divide(extent, parts_left)
        # Parts of a row in memory are read as rows only if they divide it evenly.
        return parts if is_along_memory and axis == last and not part.is_exact else [*parts, part]
    return parts


def _sizes_of(op: kernel.Generic, reduction: kernel.Reduce, usual: int) -> tuple[int, int]:
    """How many elements a kernel computes, and how many steps reduce to each."""
    return _about(product(op.domain), usual), _about(product(reduction.extents), usual)


def _about(size: Size, usual: int) -> int:
    return evaluate(size, dict.fromkeys(names(size), usual))


def _divide(extent: Size, count: int) -> _Part:
    """An axis divided into about `count` parts, evenly if possible."""
    if isinstance(extent, int):
        even = [parts for parts in range(count, count // 2, -1) if extent % parts == 0]
        if even:
            return _Part(extent, even[0], extent // even[0])
    return _Part(extent, count, ceil_divide(extent, count))


def _split(op: kernel.Generic, reduction: kernel.Reduce, parts: Sequence[_Part]) -> None:
    """Reduce parts in a kernel before this one, and their results in this one."""
    assert op.parent is not None
    partial = Builder.before_op(op)(_first_stage(op, reduction, parts))
    argument = op.add_input(partial)
    inside = Builder.before_op(reduction)

    def part(deep: Builder, folded: list[Value]) -> Value:
        return deep(kernel.Load(argument, [*folded, *op.indices]))

    whole = fold(inside, tuple([p.parts for p in parts]), reduction.combine, part)
    reduction.result.replace_by(whole)
    _erase_unused(op)


def _first_stage(
    op: kernel.Generic, reduction: kernel.Reduce, parts: Sequence[_Part]
) -> kernel.Generic:
    """The kernel that reduces parts: its first indices are those of the part."""
    types = [value.type for value in op.inputs]
    domain: Shape = (*[part.parts for part in parts], *op.domain)
    body = Block([*[INDEX] * len(domain), *types])
    part_indices, indices = body.arguments[: len(parts)], body.arguments[len(parts) :]
    inside = Builder(body, op.location)
    clone_into(op.body, inside, indices)
    position = list(op.body).index(reduction)
    copy = list(body)[position]
    assert isinstance(copy, kernel.Reduce)
    total = inside(_reduction_of_part(inside, copy, part_indices, parts))
    inside.place(kernel.Yield([total]))
    partial = kernel.Generic(op.inputs, [], body, domain)
    _erase_unused(partial)
    return partial


def _reduction_of_part(
    emit: Builder, reduction: kernel.Reduce, part_indices: Sequence[Value], parts: Sequence[_Part]
) -> kernel.Reduce:
    """The reduction over the steps of one part, the one at `part_indices` along the divided axes."""
    divided = [part.each for part in parts if part.each != 1]
    extents: Shape = (*divided, *reduction.extents[len(parts) :])
    body = Block([INDEX] * len(extents))
    inside = Builder(body, emit.location)
    steps, rest = body.arguments[: len(divided)], body.arguments[len(divided) :]
    indices, is_within = _axis_indices(inside, parts, part_indices, steps)
    (value,) = clone_into(reduction.body, inside, [*indices, *rest])
    if is_within is not None:
        dtype = element(value.type)
        identity = number(inside, kernel.identity(reduction.combine, dtype), dtype)
        value = inside(scalar.Select(is_within, value, identity))
    inside.place(kernel.Yield([value]))
    return kernel.Reduce(body, extents, reduction.combine)


def _axis_indices(
    emit: Builder, parts: Sequence[_Part], part_indices: Sequence[Value], steps: Sequence[Value]
) -> tuple[list[Value], Value | None]:
    """The index of a step along each divided axis, and a condition that it is in bounds if it may not be.

    A step beyond the end of its axis gets the last index. At most one axis is divided unevenly.
    """
    indices: list[Value] = []
    is_within: Value | None = None
    remaining = iter(steps)
    for part, part_index in zip(parts, part_indices, strict=True):
        if part.each == 1:
            indices.append(part_index)
            continue
        index = _axis_index(emit, part, part_index, next(remaining))
        if not part.is_exact:
            is_within = emit(scalar.Compare(index, size(emit, part.extent), "lt"))
            index = emit(scalar.Minimum(index, size(emit, part.extent - 1)))
        indices.append(index)
    return indices, is_within


def _axis_index(emit: Builder, part: _Part, part_index: Value, step: Value) -> Value:
    """The index along its axis of a step of a part."""
    start = emit(scalar.Multiply(part_index, size(emit, part.each)))
    return emit(scalar.Add(start, step))


def _erase_unused(op: kernel.Generic) -> None:
    """Erase unused operations, and drop inputs that are not read."""
    inner = op.body.last
    while inner is not None:
        previous = inner.previous
        if inner.pure and inner.results and inner.is_unused:
            inner.erase()
        inner = previous
    for argument in reversed(op.arrays):
        if not argument.uses:
            op.remove_input(argument)
