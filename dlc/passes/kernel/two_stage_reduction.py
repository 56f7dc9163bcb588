"""Long folds of few elements become two kernels for a GPU: parts of each fold, then the parts together.

The gradient of a bias is such a fold: few columns, many rows. Whole axes of the fold, and perhaps a
part of the next one, become axes of a first kernel that has enough elements for all threads; the kernel
itself folds what that gives. How many parts there are follows from the sizes, so the bits are the same in
every run, and the plan has the parts in memory as any other value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dlc.dialects import kernel, scalar
from dlc.dialects.kernel.formula import number, reduce, size
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
"""Elements of such a thread."""
STEPS = 32
"""Steps that are left to a thread, at least."""
ROW = 4096
"""Steps that are left to a block, at least."""
USUAL = 64
"""What an unknown size is taken to be where there is no batch of training."""


@define_pass("split_reductions")
def split_reductions(module: Op, context: Context, *, gpu_only: bool = False) -> None:
    """Compute long folds of few elements in parts.

    `gpu_only` leaves the kernels alone that are not placed on a GPU.
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
                        context.log.refused("there are threads enough without parts", op.results[0])
                    else:
                        context.log.did("fold in parts first", op.results[0])
                        _split(op, inner, parts)


def _is_alone(fold: kernel.Reduce, op: kernel.Generic) -> bool:
    """Whether what is folded depends on no other fold, and has none in it."""
    pending: list[Op] = [fold]
    seen: set[Op] = set()
    while pending:
        current = pending.pop()
        for inner in current.walk():
            if isinstance(inner, kernel.Inner) and inner is not fold:
                return False
            made = [value.op for value in inner.operands if value.op is not None]
            new = [other for other in made if other.parent is op.body and other not in seen]
            seen.update(new)
            pending += new
    return True


@dataclass(frozen=True, slots=True)
class _Part:
    """How an axis of a fold is divided: into `parts` of `each` steps, the last of which may have fewer."""

    extent: Size
    parts: Size
    each: Size

    @property
    def is_exact(self) -> bool:
        """Whether all parts have as many steps."""
        return self.parts * self.each == self.extent


def _parts_of(
    op: kernel.Generic, fold: kernel.Reduce, usual: int, occupancy: Occupancy
) -> list[_Part]:
    """How the first axes of a fold are divided; none where that is not worth it."""

    count, length = _sizes_of(op, fold, usual)
    along = kernel.folds_along_memory(op)
    if along:
        wanted = min(occupancy.light_blocks // max(count, 1), length // ROW)
    else:
        wanted = min(occupancy.threads * NEIGHBOURS // max(count, 1), length // STEPS)
    found: list[_Part] = []
    last = len(fold.extents) - 1
    for axis, extent in enumerate(fold.extents):
        if wanted < 2:
            break
        known = _about(extent, usual)
        if axis < last and known <= 2 * wanted:
            found.append(_Part(extent, extent, 1))
            wanted //= known
            continue
        part = _divided(extent, wanted)
        # Where a row in memory is not divided evenly, its parts would not be read as rows.
        return found if along and axis == last and not part.is_exact else [*found, part]
    return found


def _sizes_of(op: kernel.Generic, fold: kernel.Reduce, usual: int) -> tuple[int, int]:
    """How many elements a kernel computes, and how many are folded for each."""
    return _about(product(op.domain), usual), _about(product(fold.extents), usual)


def _about(size: Size, usual: int) -> int:
    return evaluate(size, dict.fromkeys(names(size), usual))


def _divided(extent: Size, wanted: int) -> _Part:
    """An axis in about as many parts, evenly if that can be."""
    if isinstance(extent, int):
        even = [parts for parts in range(wanted, wanted // 2, -1) if extent % parts == 0]
        if even:
            return _Part(extent, even[0], extent // even[0])
    return _Part(extent, wanted, ceil_divide(extent, wanted))


def _split(op: kernel.Generic, fold_op: kernel.Reduce, parts: Sequence[_Part]) -> None:
    """Fold in parts in a kernel before this one, and the parts in this one."""
    assert op.parent is not None
    partial = Builder.before_op(op)(_partial(op, fold_op, parts))
    argument = op.add_input(partial)
    inside = Builder.before_op(fold_op)

    def part(deep: Builder, folded: list[Value]) -> Value:
        return deep(kernel.Load(argument, [*folded, *op.indices]))

    whole = reduce(inside, tuple([p.parts for p in parts]), fold_op.combine, part)
    fold_op.result.replace_by(whole)
    _erase_unused(op)


def _partial(op: kernel.Generic, fold_op: kernel.Reduce, parts: Sequence[_Part]) -> kernel.Generic:
    """The kernel that folds parts: its first indices say which."""
    types = [value.type for value in op.inputs]
    domain: Shape = (*[part.parts for part in parts], *op.domain)
    body = Block([*[INDEX] * len(domain), *types])
    which, indices = body.arguments[: len(parts)], body.arguments[len(parts) :]
    inside = Builder(body, op.location)
    clone_into(op.body, inside, indices)
    place = list(op.body).index(fold_op)
    made = list(body)[place]
    assert isinstance(made, kernel.Reduce)
    total = inside(_shorter(inside, made, which, parts))
    inside.place(kernel.Yield([total]))
    partial = kernel.Generic(op.inputs, [], body, domain)
    _erase_unused(partial)
    return partial


def _shorter(
    emit: Builder, whole: kernel.Reduce, which: Sequence[Value], parts: Sequence[_Part]
) -> kernel.Reduce:
    """The fold over the steps of one part, the one that `which` says along each divided axis."""
    divided = [part.each for part in parts if part.each != 1]
    extents: Shape = (*divided, *whole.extents[len(parts) :])
    body = Block([INDEX] * len(extents))
    inside = Builder(body, emit.location)
    steps, rest = body.arguments[: len(divided)], body.arguments[len(divided) :]
    places, is_within = _places(inside, parts, which, steps)
    (value,) = clone_into(whole.body, inside, [*places, *rest])
    if is_within is not None:
        dtype = element(value.type)
        nothing = number(inside, kernel.identity(whole.combine, dtype), dtype)
        value = inside(scalar.Select(is_within, value, nothing))
    inside.place(kernel.Yield([value]))
    return kernel.Reduce(body, extents, whole.combine)


def _places(
    emit: Builder, parts: Sequence[_Part], which: Sequence[Value], steps: Sequence[Value]
) -> tuple[list[Value], Value | None]:
    """Where along each axis a step of a part is, and whether it is there, where it may not be.

    A step beyond the end of its axis has the last place. One axis at most is divided unevenly.
    """
    places: list[Value] = []
    is_within: Value | None = None
    remaining = iter(steps)
    for part, number_of_part in zip(parts, which, strict=True):
        if part.each == 1:
            places.append(number_of_part)
            continue
        place = _place(emit, part, number_of_part, next(remaining))
        if not part.is_exact:
            is_within = emit(scalar.Compare(place, size(emit, part.extent), "lt"))
            place = emit(scalar.Minimum(place, size(emit, part.extent - 1)))
        places.append(place)
    return places, is_within


def _place(emit: Builder, part: _Part, which: Value, step: Value) -> Value:
    """Where along its axis a step of a part is."""
    start = emit(scalar.Multiply(which, size(emit, part.each)))
    return emit(scalar.Add(start, step))


def _erase_unused(op: kernel.Generic) -> None:
    """Erase what nothing uses, and stop reading what is not read."""
    inner = op.body.last
    while inner is not None:
        previous = inner.previous
        if inner.pure and inner.results and inner.is_unused:
            inner.erase()
        inner = previous
    for argument in reversed(op.arrays):
        if not argument.uses:
            op.remove_input(argument)
