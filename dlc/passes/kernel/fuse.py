"""Producer-consumer fusion: formulas that feed each other become one kernel.

The pass visits the kernels in order. A *producer* that is an element-wise formula is inlined into its
consumer at each load, if that repeats little or no work. A *consumer* that is an element-wise formula over
the domain of the product or reduction that it reads becomes the epilogue of that. Refusals are in the
decision log.

At -O1 kernels that add floats are left alone: fusion may change the order of their additions.

A producer with a transcendental function or a division is never computed twice. So the operand of a
softmax, read by both the maximum and the subtraction of it, is not inlined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.dialects import array, kernel, scalar
from dlc.dialects.kernel.products import Product
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Size, product
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Gone, Rewriter
from dlc.passes.graph.canonicalize import graph_blocks
from dlc.passes.kernel.collapse import regroup_like
from dlc.passes.kernel.inlining import (
    append_formula,
    inline_formula,
    inline_large_producer,
    input_pairs,
    loads_own_element,
    merge_equal_inputs,
)

MAX_INPUTS = 12
"""The most arrays that a kernel reads: each needs a pointer in a register."""
MAX_OPERATIONS = 160
"""The most operations of a formula: longer ones spill registers and take long to compile."""
FREE_OPERATIONS = 2
"""The most arithmetic operations that are repeated rather than stored and loaded."""

FUSED_WITH_READER = "fused with the kernel that reads it"

CHEAP = (
    scalar.Add,
    scalar.Subtract,
    scalar.Multiply,
    scalar.Negate,
    scalar.Abs,
    scalar.Maximum,
    scalar.Minimum,
    scalar.Select,
    scalar.Compare,
    scalar.Cast,
    scalar.And,
    scalar.Or,
    scalar.Not,
)


@define_pass("fuse")
def fuse(
    module: Op,
    context: Context,
    *,
    max_inputs: int = MAX_INPUTS,
    max_operations: int = MAX_OPERATIONS,
) -> None:
    """Fuse formulas that feed each other into one kernel.

    A kernel reads at most `max_inputs` arrays, and its formula has at most `max_operations` operations.
    """
    fusion = _Fusion(context, _Limits(max_inputs, max_operations))
    for block in graph_blocks(module):
        fusion.record_depths(block)
        for op in block:
            if isinstance(op, kernel.Generic) and op.parent is not None and not op.outs:
                fusion.fuse_into(op)


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits on the size of a kernel."""

    inputs: int
    operations: int

    def too_large(self, operations: int) -> str:
        """Why formulas with this number of operations in total are not fused; empty if they may be."""
        long = operations > self.operations
        return (
            f"the formula would have {operations} operations, more than {self.operations}"
            if long
            else ""
        )


@dataclass(frozen=True, slots=True)
class _Facts:
    """Facts of a kernel's formula, cached: how many operations it has, whether it is element-wise."""

    count: int
    is_map: bool
    adds_floats: bool


class _Fusion:
    def __init__(self, context: Context, limits: _Limits) -> None:
        self.limits = limits
        self.rewriter: Rewriter = context.rewriter
        self.log = context.log
        self.keeps_order = context.options.level < 2
        self.depth: dict[Op, int] = {}
        """The longest chain of kernels before each one: kernels of equal depth may run side by side."""
        self._facts: dict[kernel.Generic, _Facts] = {}

    def facts(self, op: kernel.Generic) -> _Facts:
        """The facts of a formula as it is now."""
        facts = self._facts.get(op)
        if facts is None:
            facts = self._facts[op] = _Facts(_count(op.body), op.is_map, op.adds_floats)
        return facts

    def _count(self, op: Product | kernel.Generic) -> int:
        return self.facts(op).count if isinstance(op, kernel.Generic) else _count(op.formula)

    def record_depths(self, block: Block) -> None:
        """Record the depth of every operation of a block."""
        for op in block:
            before = [self.depth.get(value.op, 0) for value in op.operands if value.op is not None]
            self.depth[op] = max(before, default=0) + isinstance(op, kernel.Kernel)

    def fuse_into(self, consumer: kernel.Generic) -> None:
        """Inline producers into a kernel until none fits, then make it the epilogue of its producer."""
        refused: set[Value] = set()
        while True:
            merge_equal_inputs(consumer)
            inlined_argument = next(
                (
                    a
                    for a, v in input_pairs(consumer)
                    if v not in refused and self._inline(consumer, a, v)
                ),
                None,
            )
            if inlined_argument is None:
                break
        self._append(consumer)

    # Producers into consumers.

    def _inline(self, consumer: kernel.Generic, argument: Value, value: Value) -> bool:
        producer = value.op
        if not isinstance(producer, kernel.Generic) or producer.outs:
            return False
        if not self.facts(producer).is_map:
            return False
        producer_facts, consumer_facts = self.facts(producer), self.facts(consumer)
        counts = producer_facts.count, consumer_facts.count
        reason = self._why_order_is_kept(consumer) or _why_not_inline(
            producer, consumer, argument, counts, self.limits
        )
        if reason:
            self.log.refused(reason, value, beside=consumer)
            return False
        if not self.rewriter.count.take():
            return False
        self.log.did("fuse into its reader", value, beside=consumer)
        self.rewriter.values.shared(value, consumer.result)
        loads = [use for use in argument.uses if isinstance(use, kernel.Load)]
        is_only_reader = len(loads) == 1 and len(value.uses) == 1 and value.uses[consumer] == 1
        if (
            is_only_reader
            and producer_facts.count > consumer_facts.count
            and loads_own_element(producer, consumer, loads[0])
        ):
            inline_large_producer(producer, consumer, loads[0], argument)
        else:
            inline_formula(producer, consumer, loads, argument, is_only_reader)
        # A map brings neither reductions nor rows. Each load goes, and the yield does not come along.
        count = consumer_facts.count + len(loads) * (producer_facts.count - 2)
        self._facts[consumer] = replace(consumer_facts, count=count)
        if producer.is_unused:
            del self._facts[producer]
            self.rewriter.erase(producer, _into(consumer, "fused into the kernel that reads it"))
        return True

    # Consumers behind producers.

    def _append(self, consumer: kernel.Generic) -> None:
        is_map = self.facts(consumer).is_map and len(consumer.results) == 1
        for argument, value in input_pairs(consumer):
            producer = _origin(value).op
            if not is_map:
                self._note_no_epilogue(producer, consumer, value)
            elif isinstance(producer, Product | kernel.Generic) and self._append_to(
                producer, consumer, argument, value
            ):
                return

    def _note_no_epilogue(
        self, producer: Op | None, consumer: kernel.Generic, value: Value
    ) -> None:
        """Record why a kernel is not an epilogue of one that is not inlined into it either."""
        is_map = isinstance(producer, kernel.Generic) and self.facts(producer).is_map
        if isinstance(producer, Product | kernel.Generic) and not is_map:
            self.log.refused(
                "its reader is not a formula of single elements", value, beside=consumer
            )

    def _append_to(
        self,
        producer: Product | kernel.Generic,
        consumer: kernel.Generic,
        argument: Value,
        value: Value,
    ) -> bool:
        reason = (
            self._why_order_is_kept(producer)
            or _why_not_append(producer, consumer, argument, value, self.limits)
            or self._why_not_parallel(producer, consumer)
            or self.limits.too_large(self._count(producer) + self.facts(consumer).count)
        )
        if reason:
            self.log.refused(reason, value, beside=consumer)
            return False
        if not self.rewriter.count.take():
            return False
        if value is not producer.result:
            # Only a reshape is between the two: regroup the consumer over the domain of the producer.
            regrouped = regroup_like(consumer, argument, producer.domain, self.rewriter)
            if regrouped is None:
                self.log.refused("its reader iterates over other axes", value, beside=consumer)
                return False
            consumer, argument = regrouped
            self._drop_reshapes(value, producer)
        self.log.did("fuse as epilogue", consumer, beside=producer, of=producer.name)
        assert consumer.parent is not None
        consumer.parent.move(producer, consumer)
        append_formula(producer, consumer, argument)
        for fused_op in (producer, consumer):
            if isinstance(fused_op, kernel.Generic):
                self._facts.pop(fused_op, None)
        result = producer.result
        self.rewriter.values.replaced(result, None, _into(producer, FUSED_WITH_READER))
        result.type, result.name = kernel.array_type(consumer.result), None
        self.rewriter.replace(consumer, result, relation=EQUAL)
        return True

    def _why_order_is_kept(self, op: Product | kernel.Generic) -> str:
        """Why nothing is fused with a kernel at this optimization level; empty if it may be."""
        adds = self.keeps_order and isinstance(op, kernel.Generic) and self.facts(op).adds_floats
        return "fusion at -O1 keeps the order of additions" if adds else ""

    def _why_not_parallel(
        self, producer: Product | kernel.Generic, consumer: kernel.Generic
    ) -> str:
        """Why a kernel does not become the epilogue of a product: another one could run beside that."""
        if not isinstance(producer, Product):
            return ""
        for _, value in input_pairs(consumer):
            other = _origin(value).op
            if (
                isinstance(other, Product)
                and other is not producer
                and self.depth.get(other) == self.depth.get(producer)
            ):
                return "its reader also reads a product that can run beside it"
        return ""

    def _drop_reshapes(self, value: Value, producer: Product | kernel.Generic) -> None:
        """Erase a chain of unused reshapes."""
        while isinstance(value.op, array.Reshape) and not value.uses:
            reshape = value.op
            value = reshape.source
            self.rewriter.erase(reshape, _into(producer, FUSED_WITH_READER))


def _into(kernel_op: Op, why: str) -> Gone:
    """What becomes of a value that a kernel computes on its way."""
    return Gone(why, into=kernel_op.results[0])


def _origin(value: Value) -> Value:
    """The source of a chain of reshapes with one reader each."""
    while isinstance(value.op, array.Reshape) and len(value.uses) == 1:
        value = value.op.source
    return value


def _why_not_inline(
    producer: kernel.Generic,
    consumer: kernel.Generic,
    argument: Value,
    counts: tuple[int, int],
    limits: _Limits,
) -> str:
    """Why a producer is not inlined; empty if it may be. `counts` are the operations of both formulas."""
    if len(producer.results) != 1:
        return "it has several results"
    loads = [use for use in argument.uses if isinstance(use, kernel.Load)]
    repeats = (
        len(producer.result.uses) > 1 or len(loads) > 1 or not _loads_each_once(producer, loads)
    )
    if repeats and not _is_free(producer):
        return "it would be computed more than once"
    reads = {*producer.inputs, *consumer.inputs} - {producer.result}
    if len(reads) > limits.inputs:
        return f"the kernel would read {len(reads)} arrays, more than {limits.inputs}"
    return limits.too_large(counts[0] * max(1, len(loads)) + counts[1])


def _loads_each_once(producer: kernel.Generic, loads: list[kernel.Load]) -> bool:
    """Whether each load reads every element of the producer at most once."""
    return all(_executions(load) == product(producer.domain) for load in loads)


def _executions(load: kernel.Load) -> Size:
    """How often a load is executed."""
    total: Size = 1
    around = load.parent.parent if load.parent is not None else None
    while around is not None:
        match around:
            case kernel.Inner(extents=extents):
                total = total * product(extents)
            case kernel.Generic(domain=domain):
                return total * product(domain)
            case _:
                break
        around = around.parent.parent if around.parent is not None else None
    return total


def _is_free(producer: kernel.Generic) -> bool:
    """Whether repeating a formula is cheaper than storing its result.

    It is where few cheap operations read one array besides numbers that are the same for a whole row.
    """
    body, row = producer.body, producer.indices[:-1]
    work = [op for op in body if not isinstance(op, kernel.Load | kernel.Yield | scalar.Constant)]
    loads = [op for op in body if isinstance(op, kernel.Load)]
    varying = sum(not all(index in row for index in load.indices) for load in loads)
    return (
        varying <= 1 and len(work) <= FREE_OPERATIONS and all(isinstance(op, CHEAP) for op in work)
    )


def _count(block: Block) -> int:
    holder = block.parent
    assert holder is not None
    return sum(1 for _ in holder.walk()) - 1


def _why_not_append(
    producer: Product | kernel.Generic,
    consumer: kernel.Generic,
    argument: Value,
    value: Value,
    limits: _Limits,
) -> str:
    """Why a kernel does not become the epilogue of one that it reads; empty if it may."""
    if len(producer.results) != 1 or producer.outs:
        return "it has several results"
    if len(producer.result.uses) != 1 or len(value.uses) != 1:
        return "other kernels read it, too"
    if isinstance(producer, kernel.Generic) and isinstance(
        producer.body.terminator.operands[0].op, kernel.Stage
    ):
        return "it writes whole rows at once"
    if value is producer.result and consumer.domain != producer.domain:
        return "its reader has another domain"
    for use in argument.uses:
        if not isinstance(use, kernel.Load) or list(use.indices) != consumer.indices:
            return "its reader loads elements other than the one it computes"
    if (
        isinstance(producer, Product)
        and kernel.array_type(consumer.result).dtype is not producer.accumulator
        and kernel.array_type(producer.lhs).dtype is producer.accumulator
    ):
        # Sums of f32 and f64 factors accumulate in the result's memory; those of 16-bit factors never do.
        return "its reader's dtype is not that of the accumulators"
    inputs = len(consumer.inputs) + len(producer.operands)
    if inputs > limits.inputs:
        return f"the kernel would read {inputs} arrays, more than {limits.inputs}"
    return ""
