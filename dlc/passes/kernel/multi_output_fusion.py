"""Formulas over the same elements become one kernel with several results.

The state and the output of an LSTM's cell, or a weight and the moments of its gradient, are formulas
that read the same arrays, and each other. As one kernel they are one launch, and what they share is read
once. On a CPU a call of a kernel costs little, and kernels apart run side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.dialects import array, kernel
from dlc.dialects.comm import Send
from dlc.dialects.measured import Measuring, dims_of, measuring
from dlc.dialects.scalar import element
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import names
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import INDEX
from dlc.ir.value_map import EQUAL, Gone
from dlc.passes.graph.canonicalize import graph_blocks
from dlc.passes.graph.device_placement import ops_of
from dlc.passes.kernel.fuse import MAX_INPUTS, MAX_OPERATIONS

REACH = 12
"""Operations before a kernel among which others are looked for: farther ones would hold memory longer."""
MAX_RESULTS = 4


@define_pass("scalars_first")
def scalars_first(module: Op, context: Context) -> None:
    """Compute single numbers as soon as they can be: what waits for them is then beside what it follows."""
    measured = frozenset(measuring(module))
    for block in graph_blocks(module):
        for op in list(block):
            if _is_formula(op) and _is_scalar(op) and not _uses_size(op, measured):
                made = [value.op for value in op.operands if value.op is not None]
                after: Op | None = None
                for other in made:
                    if other.parent is block and (after is None or after.is_before(other)):
                        after = other
                place = block.first if after is None else after.next
                if place is not op:
                    block.move(op, place)


def _is_scalar(op: Op) -> bool:
    return all(kernel.array_type(value).shape == () for value in (*op.operands, *op.results))


def _uses_size(op: Op, measured: frozenset[str]) -> bool:
    """Whether it depends on a size that another operation measures, which none of its operands tells."""
    sizes = [inner.size for inner in op.walk() if isinstance(inner, kernel.ExtentOf)]
    return any(names(size) & measured for size in sizes)


@define_pass("fuse_outputs")
def fuse_outputs(
    module: Op, context: Context, *, gpu_only: bool = False, max_results: int = MAX_RESULTS
) -> None:
    """Compute formulas over the same elements together.

    `gpu_only` leaves the kernels alone that are not placed on a GPU; a kernel has `max_results` results
    at most.
    """
    chosen = set(ops_of(module, gpu_only=gpu_only))  # a merged kernel joins them
    for block in graph_blocks(module):
        for op in list(block):
            current = op if op in chosen and _is_formula(op) else None
            while current is not None:
                assert isinstance(current, kernel.Generic)
                current = _merged_with_one_before(current, chosen, context, max_results)
                if current is not None:
                    chosen.add(current)


def _is_formula(op: Op) -> bool:
    return isinstance(op, kernel.Generic) and not op.outs and op.is_map and op.parent is not None


def _merged_with_one_before(
    later: kernel.Generic, chosen: Collection[Op], context: Context, max_results: int
) -> kernel.Generic | None:
    """The kernel that computes this one and one before it; None if there is none that fits."""
    between: list[Op] = []
    before = later.previous
    while before is not None and len(between) < REACH:
        if before in chosen and _is_formula(before):
            assert isinstance(before, kernel.Generic)
            place = _place(before, later, between)
            if place is not None and _fit(before, later, context, max_results):
                return _merge(before, later, place, context)
        between.append(before)
        before = before.previous
    return None


def _place(earlier: kernel.Generic, later: kernel.Generic, between: Sequence[Op]) -> Op | None:
    """Which of the two the one kernel can stand in for, so that all is computed before it is used."""
    made = {*earlier.results}
    if not any(value in made for op in between for inner in op.walk() for value in inner.operands):
        return later
    around = {result for op in between for result in op.results}
    brought = {op.dim_name for op in between if isinstance(op, Measuring)}
    waits = any(value in around for value in later.inputs) or brought & dims_of(later)
    return None if waits else earlier


def _fit(
    earlier: kernel.Generic, later: kernel.Generic, context: Context, max_results: int
) -> bool:
    """Whether both walk the same elements, and one kernel for them has something to share."""
    kept = _needed_elsewhere(earlier, later)
    if earlier.domain != later.domain or not kept:
        return False
    if any(map(_is_sent, kept)):
        return False  # A transfer is not to wait for more than what it takes.
    own = [_own(earlier), _own(later)]
    follows = [value for value in later.inputs if value in earlier.results]
    if any(value not in own[1] for value in follows):
        return False
    if earlier.domain and not follows and own[0].isdisjoint(own[1]):
        return False
    results = len(kept) + len(later.results)
    reason = _too_large(earlier, later, results, max_results)
    if reason:
        context.log.refused(reason, later)
    return not reason


def _too_large(
    earlier: kernel.Generic, later: kernel.Generic, results: int, max_results: int
) -> str:
    """Why two kernels are too much for one; empty if they are not."""
    reads = len({*earlier.inputs, *later.inputs} - {*earlier.results})
    operations = sum(1 for op in (earlier, later) for _ in op.walk())
    if reads > MAX_INPUTS:
        return f"the kernel would read {reads} arrays"
    if results > max_results:
        return f"the kernel would have {results} results"
    return f"the formula would have {operations} operations" if operations > MAX_OPERATIONS else ""


def _is_sent(value: Value) -> bool:
    """Whether an array is sent to another device, in whatever shape."""
    return any(
        isinstance(use, Send) or (isinstance(use, array.Reshape) and _is_sent(use.result))
        for use in value.uses
    )


def _own(op: kernel.Generic) -> set[Value]:
    """The arrays that a kernel reads at the place of the element that it computes, and nowhere else."""
    return {
        value
        for argument, value in zip(op.arrays, op.inputs, strict=True)
        if all(
            isinstance(use, kernel.Load) and [*use.indices] == op.indices for use in argument.uses
        )
    }


def _merge(
    earlier: kernel.Generic, later: kernel.Generic, place: Op, context: Context
) -> kernel.Generic:
    context.log.did("compute together", later, of=earlier.name)
    inputs = list(dict.fromkeys([*earlier.inputs, *later.inputs]))
    inputs = [value for value in inputs if value not in earlier.results]
    rank = len(earlier.domain)
    body = Block([*[INDEX] * rank, *[value.type for value in inputs]])
    indices = body.arguments[:rank]
    arrays = dict(zip(inputs, body.arguments[rank:], strict=True))
    inside = Builder(body, earlier.location)
    first = clone_into(earlier.body, inside, [*indices, *[arrays[v] for v in earlier.inputs]])
    second = _continued(later, inside.at(later.location), indices, arrays, earlier, first)
    kept = _needed_elsewhere(earlier, later)
    values = [value for value, old in zip(first, earlier.results, strict=True) if old in kept]
    inside.place(kernel.Yield([*values, *second]))
    made = kernel.Generic(inputs, [], body, earlier.domain)
    results = Builder.before_op(place, later.location).all(made)
    rewriter = context.rewriter
    rewriter.replace(later, results[len(kept) :], relation=EQUAL)
    for old, new in zip(kept, results, strict=False):
        new.name = old.name
        rewriter.values.replaced(old, new, EQUAL)
        old.replace_by(new)
    rewriter.erase(earlier, Gone("computed together with what reads it"))
    return made


def _needed_elsewhere(earlier: kernel.Generic, later: kernel.Generic) -> list[Value]:
    """The results of a kernel that others than a later one read."""
    return [value for value in earlier.results if not value.uses.keys() <= {later}]


def _continued(
    later: kernel.Generic,
    emit: Builder,
    indices: Sequence[Value],
    arrays: dict[Value, Value],
    earlier: kernel.Generic,
    computed: Sequence[Value],
) -> Sequence[Value]:
    """The later formula, in which loads of what the earlier one makes are what it has just made."""
    known = dict(zip(earlier.results, computed, strict=True))
    given: list[Value] = []
    made: list[Value] = []
    for argument, value in zip(later.arrays, later.inputs, strict=True):
        if value not in known:
            given.append(arrays[value])
            continue
        given.append(indices[0] if indices else known[value])
        stand_in = later.body.add_argument(element(known[value].type))
        made.append(known[value])
        for load in list(argument.uses):
            load.result.replace_by(stand_in)
            load.erase()
    return clone_into(later.body, emit, [*indices, *given, *made])
