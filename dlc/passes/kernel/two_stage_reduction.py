"""Two-stage reduction: a GPU reduces many elements to few in parts, then the partial results.

The gradient of a bias is such a reduction: few columns, many rows. Whole reduced axes, and perhaps a part
of the next one, become axes of a first kernel that has enough elements for all threads; the kernel itself
reduces its results. The number of parts follows from the sizes alone, so the bits are the same in every
run, and the plan has the partials in memory as any other value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects import formulas, kernel
from dlc.dialects.expr import Condition, Expr, constant, exprs, minimum, select, values
from dlc.dialects.formulas import Array
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Op
from dlc.ir.dims import Shape, Size, ceil_divide, evaluate, names, product
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import INDEX
from dlc.passes.graph.device_placement import ops_of
from dlc.target import gpu_of
from dlc.target.gpu import Occupancy

NEIGHBOURS = 4
"""Neighbouring elements that one thread reduces."""
STEPS_OF_THREAD = 32
"""Steps that a thread has at least, where each element is reduced by one thread."""
STEPS_OF_BLOCK = 4096
"""Steps that a block has at least, where each element is reduced by a block, along memory."""
USUAL = 64
"""The value assumed for a dim that is unknown until a call, where there is no batch of training."""


@define_pass("split_reductions")
def split_reductions(module: Op, context: Context, *, gpu_only: bool = False) -> None:
    """Divide long reductions to few elements in two stages.

    `gpu_only` skips kernels that are not placed on a GPU.
    """
    usual, occupancy = context.options.batch or USUAL, gpu_of(context.options).occupancy
    for op in ops_of(module, gpu_only=gpu_only):
        if isinstance(op, kernel.Generic) and not op.outs:
            for inner in list(op.body):
                if isinstance(inner, kernel.Reduce) and _is_alone(inner, op):
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


def _is_alone(fold: kernel.Reduce, op: kernel.Generic) -> bool:
    """Whether a reduction depends on no other one, and contains none."""
    pending: list[Op] = [fold]
    seen: set[Op] = set()
    while pending:
        current = pending.pop()
        for inner in current.walk():
            if isinstance(inner, kernel.Inner) and inner is not fold:
                return False
            producers = [value.op for value in inner.operands if value.op is not None]
            new = [other for other in producers if other.parent is op.body and other not in seen]
            seen.update(new)
            pending += new
    return True


@dataclass(frozen=True, slots=True)
class _Part:
    """An axis of a reduction divided into `parts` of `length` steps each; the last one may be shorter."""

    extent: Size
    parts: Size
    length: Size

    @property
    def is_exact(self) -> bool:
        """Whether all parts have `length` steps."""
        return self.parts * self.length == self.extent


def _parts_of(
    op: kernel.Generic, reduce: kernel.Reduce, usual: int, occupancy: Occupancy
) -> list[_Part]:
    """How the first axes of a reduction are divided; empty where that is not worth it."""
    elements, steps = _sizes_of(op, reduce, usual)
    along_memory = kernel.reduces_along_memory(op)
    if along_memory:
        count = min(occupancy.light_blocks // max(elements, 1), steps // STEPS_OF_BLOCK)
    else:
        threads = occupancy.threads * NEIGHBOURS
        count = min(threads // max(elements, 1), steps // STEPS_OF_THREAD)
    parts: list[_Part] = []
    last = len(reduce.extents) - 1
    for axis, extent in enumerate(reduce.extents):
        if count < 2:
            break
        about = _about(extent, usual)
        if axis < last and about <= 2 * count:
            parts.append(_Part(extent, extent, 1))
            count //= about
            continue
        part = _divided(extent, count)
        # Where a row in memory is not divided evenly, its parts would not be read as rows.
        return parts if along_memory and axis == last and not part.is_exact else [*parts, part]
    return parts


def _sizes_of(op: kernel.Generic, reduce: kernel.Reduce, usual: int) -> tuple[int, int]:
    """About how many elements a kernel computes, and how many steps each of them is reduced from."""
    return _about(product(op.domain), usual), _about(product(reduce.extents), usual)


def _about(size: Size, usual: int) -> int:
    """A size where every dim in it is `usual`."""
    return evaluate(size, dict.fromkeys(names(size), usual))


def _divided(extent: Size, count: int) -> _Part:
    """An axis divided into about `count` parts, evenly if that can be."""
    if isinstance(extent, int):
        even = [parts for parts in range(count, count // 2, -1) if extent % parts == 0]
        if even:
            return _Part(extent, even[0], extent // even[0])
    return _Part(extent, count, ceil_divide(extent, count))


def _split(op: kernel.Generic, reduce: kernel.Reduce, parts: Sequence[_Part]) -> None:
    """Reduce parts in a kernel before this one, and combine them in this one."""
    assert op.parent is not None
    partial = Builder.before_op(op)(_partial(op, reduce, parts))
    argument = op.add_input(partial)
    emit = Builder.before_op(reduce)
    partials, indices = Array(emit, argument), exprs(emit, op.indices)
    counts = tuple([part.parts for part in parts])
    total = formulas.reduce(emit, counts, reduce.combine, lambda part: partials[[*part, *indices]])
    reduce.result.replace_by(total.value)
    _erase_unused(op)


def _partial(op: kernel.Generic, reduce: kernel.Reduce, parts: Sequence[_Part]) -> kernel.Generic:
    """The kernel of the first stage, whose first indices are those of the part."""
    types = [value.type for value in op.inputs]
    domain: Shape = (*[part.parts for part in parts], *op.domain)
    body = Block([*[INDEX] * len(domain), *types])
    part_indices, indices = body.arguments[: len(parts)], body.arguments[len(parts) :]
    emit = Builder(body, op.location)
    clone_into(op.body, emit, indices)
    clone = list(body)[list(op.body).index(reduce)]
    assert isinstance(clone, kernel.Reduce)
    total = emit(_reduce_part(emit, clone, exprs(emit, part_indices), parts))
    emit.place(kernel.Yield([total]))
    partial = kernel.Generic(op.inputs, [], body, domain)
    _erase_unused(partial)
    return partial


def _reduce_part(
    emit: Builder, whole: kernel.Reduce, part_indices: Sequence[Expr], parts: Sequence[_Part]
) -> kernel.Reduce:
    """The reduction over the steps of one part, given by its index along each divided axis."""
    lengths = [part.length for part in parts if part.length != 1]
    extents: Shape = (*lengths, *whole.extents[len(parts) :])
    body = Block([INDEX] * len(extents))
    with emit.into(body):
        steps, rest = body.arguments[: len(lengths)], body.arguments[len(lengths) :]
        indices, is_within = _whole_indices(parts, part_indices, exprs(emit, steps))
        (result,) = clone_into(whole.body, emit, [*values(indices), *rest])
        value = Expr(emit, result)
        if is_within is not True:
            neutral = constant(emit, kernel.identity(whole.combine, value.dtype), value.dtype)
            value = select(is_within, value, neutral)
        emit.place(kernel.Yield([value.value]))
    return kernel.Reduce(body, extents, whole.combine)


def _whole_indices(
    parts: Sequence[_Part], part_indices: Sequence[Expr], steps: Sequence[Expr]
) -> tuple[list[Expr], Condition]:
    """The index along each divided axis of a part's step, and whether the axis is that long.

    A step beyond the end of its axis has the last index. One axis at most is divided unevenly.
    """
    indices: list[Expr] = []
    is_within: Condition = True
    remaining = iter(steps)
    for part, part_index in zip(parts, part_indices, strict=True):
        if part.length == 1:
            indices.append(part_index)
            continue
        index = part_index * part.length + next(remaining)
        if not part.is_exact:
            is_within = index < part.extent
            index = minimum(index, part.extent - 1)
        indices.append(index)
    return indices, is_within


def _erase_unused(op: kernel.Generic) -> None:
    """Erase operations without users, then inputs that nothing reads."""
    inner = op.body.last
    while inner is not None:
        previous = inner.previous
        if inner.pure and inner.results and inner.is_unused:
            inner.erase()
        inner = previous
    for argument in reversed(op.arrays):
        if not argument.uses:
            op.remove_input(argument)
