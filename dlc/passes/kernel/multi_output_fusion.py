"""Multi-output fusion: formulas over the same domain become one kernel with several results.

The state and the output of an LSTM cell, or a weight and the moments of its gradient, are formulas that
read the same arrays, and each other. As one kernel they take one launch, and read shared inputs once. On a
CPU a call of a kernel costs little, and separate kernels run side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.dialects import array, kernel
from dlc.dialects.comm import Send
from dlc.dialects.measured import Measuring, dims_of
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
"""How many operations back a kernel to merge with may be: the memory of farther ones would live longer."""
MAX_RESULTS = 4


@define_pass("scalars_first")
def scalars_first(module: Op, context: Context) -> None:
    """Compute scalars as early as possible, so that their readers can stand next to what they fuse with."""
    # Of all functions: in another one, a dim of that name may be one that the caller gives.
    found = (op for op in module.walk(formulas=False) if isinstance(op, Measuring))
    measured = frozenset(op.dim_name for op in found)
    for block in graph_blocks(module):
        for op in list(block):
            if _is_formula(op) and _is_scalar(op) and not _uses_size(op, measured):
                producers = [value.op for value in op.operands if value.op is not None]
                after: Op | None = None
                for other in producers:
                    if other.parent is block and (after is None or after.is_before(other)):
                        after = other
                position = block.first if after is None else after.next
                if position is not op:
                    block.move(op, position)


def _is_scalar(op: Op) -> bool:
    return all(kernel.array_type(value).shape == () for value in (*op.operands, *op.results))


def _uses_size(op: Op, measured: frozenset[str]) -> bool:
    """Whether an operation depends on a measured size, which is not among its operands."""
    sizes = [inner.size for inner in op.walk() if isinstance(inner, kernel.ExtentOf)]
    return any(names(size) & measured for size in sizes)


@define_pass("fuse_outputs")
def fuse_outputs(
    module: Op, context: Context, *, gpu_only: bool = False, max_results: int = MAX_RESULTS
) -> None:
    """Fuse formulas over the same domain into one kernel with several results.

    With `gpu_only` only kernels placed on a GPU; a kernel has at most `max_results` results.
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
    """A kernel merged from this one and one before it; None if none fits."""
    between: list[Op] = []
    candidate = later.previous
    while candidate is not None and len(between) < REACH:
        if candidate in chosen and _is_formula(candidate):
            assert isinstance(candidate, kernel.Generic)
            position = _position_for(candidate, later, between)
            if position is not None and _may_merge(candidate, later, context, max_results):
                return _merge(candidate, later, position, context)
        between.append(candidate)
        candidate = candidate.previous
    return None


def _position_for(
    earlier: kernel.Generic, later: kernel.Generic, between: Sequence[Op]
) -> Op | None:
    """At which of the two the merged kernel may stand, so that every value is computed before its use."""
    results = {*earlier.results}
    if not any(
        value in results for op in between for inner in op.walk() for value in inner.operands
    ):
        return later
    between_results = {result for op in between for result in op.results}
    measured = {op.dim_name for op in between if isinstance(op, Measuring)}
    must_wait = any(value in between_results for value in later.inputs) or measured & dims_of(later)
    return None if must_wait else earlier


def _may_merge(
    earlier: kernel.Generic, later: kernel.Generic, context: Context, max_results: int
) -> bool:
    """Whether both have the same domain, and read something in common."""
    outputs = _needed_elsewhere(earlier, later)
    if earlier.domain != later.domain or not outputs:
        return False
    if any(map(_is_sent, outputs)):
        return False  # A transfer must not wait for other results.
    own_inputs = [_own_element_inputs(earlier), _own_element_inputs(later)]
    reads_earlier = [value for value in later.inputs if value in earlier.results]
    if any(value not in own_inputs[1] for value in reads_earlier):
        return False
    if earlier.domain and not reads_earlier and own_inputs[0].isdisjoint(own_inputs[1]):
        return False
    results = len(outputs) + len(later.results)
    reason = _too_large(earlier, later, results, max_results)
    if reason:
        context.log.refused(reason, later)
    return not reason


def _too_large(
    earlier: kernel.Generic, later: kernel.Generic, results: int, max_results: int
) -> str:
    """Why a merged kernel would be too large; empty if it would not."""
    reads = len({*earlier.inputs, *later.inputs} - {*earlier.results})
    operations = sum(1 for op in (earlier, later) for _ in op.walk())
    if reads > MAX_INPUTS:
        return f"the kernel would read {reads} arrays, more than {MAX_INPUTS}"
    if results > max_results:
        return f"the kernel would have {results} results, more than {max_results}"
    if operations > MAX_OPERATIONS:
        return f"the formula would have {operations} operations, more than {MAX_OPERATIONS}"
    return ""


def _is_sent(value: Value) -> bool:
    """Whether an array, or a reshape of it, is sent to another device."""
    return any(
        isinstance(use, Send) or (isinstance(use, array.Reshape) and _is_sent(use.result))
        for use in value.uses
    )


def _own_element_inputs(op: kernel.Generic) -> set[Value]:
    """The arrays of which a kernel reads only the element that it computes."""
    return {
        value
        for argument, value in zip(op.arrays, op.inputs, strict=True)
        if all(
            isinstance(use, kernel.Load) and [*use.indices] == op.indices for use in argument.uses
        )
    }


def _merge(
    earlier: kernel.Generic, later: kernel.Generic, position: Op, context: Context
) -> kernel.Generic:
    context.log.did("fuse into one kernel", later, of=earlier.name)
    inputs = list(dict.fromkeys([*earlier.inputs, *later.inputs]))
    inputs = [value for value in inputs if value not in earlier.results]
    rank = len(earlier.domain)
    body = Block([*[INDEX] * rank, *[value.type for value in inputs]])
    indices = body.arguments[:rank]
    arrays = dict(zip(inputs, body.arguments[rank:], strict=True))
    inside = Builder(body, earlier.location)
    first = clone_into(earlier.body, inside, [*indices, *[arrays[v] for v in earlier.inputs]])
    second = _cloned_later(later, inside.at(later.location), indices, arrays, earlier, first)
    kept = _needed_elsewhere(earlier, later)
    values = [value for value, old in zip(first, earlier.results, strict=True) if old in kept]
    inside.place(kernel.Yield([*values, *second]))
    merged = kernel.Generic(inputs, [], body, earlier.domain)
    results = Builder.before_op(position, later.location).all(merged)
    rewriter = context.rewriter
    rewriter.replace(later, results[len(kept) :], relation=EQUAL)
    for old, new in zip(kept, results, strict=False):
        new.name = old.name
        rewriter.values.replaced(old, new, EQUAL)
        old.replace_by(new)
    rewriter.erase(earlier, Gone("computed together with what reads it", into=merged.results[0]))
    return merged


def _needed_elsewhere(earlier: kernel.Generic, later: kernel.Generic) -> list[Value]:
    """The results of a kernel that have readers other than `later`."""
    return [value for value in earlier.results if not value.uses.keys() <= {later}]


def _cloned_later(
    later: kernel.Generic,
    emit: Builder,
    indices: Sequence[Value],
    arrays: dict[Value, Value],
    earlier: kernel.Generic,
    computed: Sequence[Value],
) -> Sequence[Value]:
    """The later formula, with loads of the earlier results replaced by the elements just computed."""
    element_of = dict(zip(earlier.results, computed, strict=True))
    arguments: list[Value] = []
    elements: list[Value] = []
    for argument, value in zip(later.arrays, later.inputs, strict=True):
        if value not in element_of:
            arguments.append(arrays[value])
            continue
        arguments.append(indices[0] if indices else element_of[value])
        stand_in = later.body.add_argument(element(element_of[value].type))
        elements.append(element_of[value])
        for load in list(argument.uses):
            load.result.replace_by(stand_in)
            load.erase()
    return clone_into(later.body, emit, [*indices, *arguments, *elements])
