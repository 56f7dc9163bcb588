"""Fusion: formulas that feed each other become one kernel.

Going forward through the kernels, each takes in what it can. A *producer* that is a plain formula is
written into its consumer where the consumer loads it, if that computes nothing twice, or next to
nothing. A *consumer* that is a plain formula over the same elements is written behind the product or
fold that it reads, as its epilogue. What was looked at and not done is in the decision log.

At -O1 kernels that add floats stay as they are: what they read decides in which order they add.

A producer that takes a transcendental function or a division is never computed twice, and so the
producer of both a maximum and the subtraction of that maximum is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlc.dialects import array, kernel, scalar
from dlc.dialects.kernel.products import Product
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Size, product
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Gone, Rewriter
from dlc.passes.graph.canonicalize import graph_blocks
from dlc.passes.kernel.collapse import regroup_like

MAX_INPUTS = 12
"""Arrays that one kernel reads: each needs a pointer in a register."""
MAX_OPERATIONS = 160
"""Operations of one formula: longer ones run out of registers and take long to compile."""
FREE_OPERATIONS = 2
"""Arithmetic that may be done twice rather than stored and loaded."""

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
    """Write formulas that feed each other as one kernel.

    A kernel reads `max_inputs` arrays at most, and its formula has `max_operations` operations at most.
    """
    fusion = _Fusion(context, _Limits(max_inputs, max_operations))
    for block in graph_blocks(module):
        fusion.look_at(block)
        for op in block:
            if isinstance(op, kernel.Generic) and op.parent is not None and not op.outs:
                fusion.take_in(op)


@dataclass(frozen=True, slots=True)
class _Limits:
    """The most that one kernel may have."""

    inputs: int
    operations: int

    def too_large(self, operations: int) -> str:
        """Why formulas of so many operations together stay apart; empty if they need not."""
        long = operations > self.operations
        return f"the formula would have {operations} operations" if long else ""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is asked again and again of a kernel's formula."""

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
        """How many kernels each one has before it, at least: equals could run at the same time."""
        self._facts: dict[kernel.Generic, _Facts] = {}

    def facts(self, op: kernel.Generic) -> _Facts:
        """What there is to know of a formula as it is now."""
        found = self._facts.get(op)
        if found is None:
            found = self._facts[op] = _Facts(_count(op.body), op.is_map, op.adds_floats)
        return found

    def _count(self, op: Product | kernel.Generic) -> int:
        return self.facts(op).count if isinstance(op, kernel.Generic) else _count(op.formula)

    def look_at(self, block: Block) -> None:
        """Note the depth of every operation of a block."""
        for op in block:
            before = [self.depth.get(value.op, 0) for value in op.operands if value.op is not None]
            self.depth[op] = max(before, default=0) + isinstance(op, kernel.Kernel)

    def take_in(self, consumer: kernel.Generic) -> None:
        """Write producers into a kernel until none fits, then the kernel behind one it follows."""
        refused: set[Value] = set()
        while True:
            _read_once(consumer)
            found = next(
                (
                    a
                    for a, v in _inputs(consumer)
                    if v not in refused and self._inline(consumer, a, v)
                ),
                None,
            )
            if found is None:
                break
        self._append(consumer)

    # Producers into consumers.

    def _inline(self, consumer: kernel.Generic, argument: Value, value: Value) -> bool:
        producer = value.op
        if not isinstance(producer, kernel.Generic) or producer.outs:
            return False
        if not self.facts(producer).is_map:
            return False
        given, facts = self.facts(producer), self.facts(consumer)
        size = given.count, facts.count
        reason = self._reordered(consumer) or _why_not_inline(
            producer, consumer, argument, size, self.limits
        )
        if reason:
            self.log.refused(reason, value)
            return False
        self.log.did("fuse into its reader", value)
        loads = [use for use in argument.uses if isinstance(use, kernel.Load)]
        alone = len(loads) == 1 and len(value.uses) == 1 and value.uses[consumer] == 1
        if alone and given.count > facts.count and _is_beside(producer, consumer, loads[0]):
            _take_over(producer, consumer, loads[0], argument)
        else:
            _write_in(producer, consumer, loads, argument, alone)
        # A map brings neither folds nor rows. Each load goes, and the yield does not come along.
        count = facts.count + len(loads) * (given.count - 2)
        self._facts[consumer] = replace(facts, count=count)
        if producer.is_unused:
            del self._facts[producer]
            self.rewriter.erase(producer, Gone("fused into the kernel that reads it"))
        return True

    # Consumers behind producers.

    def _append(self, consumer: kernel.Generic) -> None:
        if not self.facts(consumer).is_map or len(consumer.results) != 1:
            return
        for argument, value in _inputs(consumer):
            producer = _origin(value).op
            if isinstance(producer, Product | kernel.Generic) and self._append_to(
                producer, consumer, argument, value
            ):
                return

    def _append_to(
        self,
        producer: Product | kernel.Generic,
        consumer: kernel.Generic,
        argument: Value,
        value: Value,
    ) -> bool:
        reason = (
            self._reordered(producer)
            or _why_not_append(producer, consumer, argument, value, self.limits)
            or self._rival(producer, consumer)
            or self.limits.too_large(self._count(producer) + self.facts(consumer).count)
        )
        if reason:
            self.log.refused(reason, value)
            return False
        if value is not producer.result:
            # Between the two is only a reshape: walk the elements as the producer does.
            regrouped = regroup_like(consumer, argument, producer.domain, self.rewriter)
            if regrouped is None:
                self.log.refused("the reader walks other axes", value)
                return False
            consumer, argument = regrouped
            self._drop_reshapes(value)
        self.log.did("fuse behind", consumer, of=producer.name)
        assert consumer.parent is not None
        consumer.parent.move(producer, consumer)
        _write_behind(producer, consumer, argument)
        for changed in (producer, consumer):
            if isinstance(changed, kernel.Generic):
                self._facts.pop(changed, None)
        result = producer.result
        self.rewriter.values.replaced(result, None, Gone("fused with the kernel that reads it"))
        result.type, result.name = kernel.array_type(consumer.result), None
        self.rewriter.replace(consumer, result, relation=EQUAL)
        return True

    def _reordered(self, op: Product | kernel.Generic) -> str:
        """Why nothing is fused with a kernel at this level."""
        adds = self.keeps_order and isinstance(op, kernel.Generic) and self.facts(op).adds_floats
        return "it would add in another order" if adds else ""

    def _rival(self, producer: Product | kernel.Generic, consumer: kernel.Generic) -> str:
        """Why a kernel is not written behind a product: another product could run beside it."""
        if not isinstance(producer, Product):
            return ""
        for _, value in _inputs(consumer):
            other = _origin(value).op
            if (
                isinstance(other, Product)
                and other is not producer
                and self.depth.get(other) == self.depth.get(producer)
            ):
                return "two products that it reads can run at the same time"
        return ""

    def _drop_reshapes(self, value: Value) -> None:
        """Erase a chain of reshapes that nothing uses any more."""
        while isinstance(value.op, array.Reshape) and not value.uses:
            reshape = value.op
            value = reshape.source
            self.rewriter.erase(reshape, Gone("fused with the kernel that reads it"))


def _write_in(
    producer: kernel.Generic,
    consumer: kernel.Generic,
    loads: Sequence[kernel.Load],
    argument: Value,
    alone: bool,
) -> None:
    """Put the producer's formula in the place of each load; `alone` says that nothing else needs it."""
    arrays = [consumer.argument_for(read) for read in producer.inputs]
    for load in loads:
        (element,) = (_moved if alone else _cloned)(producer.body, load, arrays)
        load.result.replace_by(element)
        load.erase()
    consumer.remove_input(argument)


def _is_beside(producer: kernel.Generic, consumer: kernel.Generic, load: kernel.Load) -> bool:
    """Whether a load asks for the very element that the consumer computes."""
    return (
        producer.domain == consumer.domain
        and load.parent is consumer.body
        and list(load.indices) == consumer.indices
    )


def _take_over(
    producer: kernel.Generic, consumer: kernel.Generic, load: kernel.Load, argument: Value
) -> None:
    """The same as `_write_in` for a large producer: the consumer goes on in the producer's block.

    Only what is in the consumer is moved, so a chain of kernels is not moved again at each of its steps.
    """
    _read_once(producer)
    own, taken = consumer.body, producer.body
    (element,) = taken.terminator.operands
    taken.terminator.erase()
    place = taken.first
    for op in list(own):
        if op is load:
            place = None
        else:
            taken.move(op, place)
    load.result.replace_by(element)
    load.erase()
    theirs = {value: new for new, value in _inputs(producer)}
    for new in theirs.values():
        new.name = None
    reads: dict[Value, Value] = {}
    for known, value in _inputs(consumer):
        if known is not argument:
            reads[value] = theirs.get(value) or taken.add_argument(value.type)
            _stand_for(reads[value], known)
    reads = reads | theirs
    for new, known in zip(producer.indices, consumer.indices, strict=True):
        _stand_for(new, known)
    taken.set_arguments([*producer.indices, *reads.values()])
    consumer.attributes["segments"] = (len(reads), 0)
    consumer.set_operands(list(reads))
    producer.swap_regions(consumer)


def _stand_for(new: Value, known: Value) -> None:
    """Let an argument of the producer's block be what an argument of the consumer's was."""
    new.name = known.name
    known.replace_by(new)


def _cloned(formula: Block, load: kernel.Load, arrays: Sequence[Value]) -> Sequence[Value]:
    """What a formula yields, computed before a load at the element that this asks for."""
    return clone_into(formula, Builder.before_op(load), [*load.indices, *arrays])


def _moved(formula: Block, load: kernel.Load, arrays: Sequence[Value]) -> Sequence[Value]:
    """The same with the operations of the formula itself, which nothing else needs."""
    assert load.parent is not None
    for argument, value in zip(formula.arguments, [*load.indices, *arrays], strict=True):
        argument.replace_by(value)
    for op in list(formula)[:-1]:
        formula.unlink(op)
        load.parent.insert(op, load)
    return formula.terminator.operands


def _write_behind(
    producer: Product | kernel.Generic, consumer: kernel.Generic, argument: Value
) -> None:
    """Continue the producer's formula with the consumer's."""
    formula = producer.formula
    (element,) = formula.terminator.operands
    indices = formula.arguments[: len(producer.domain)]
    arrays = [
        argument if other is argument else producer.argument_for(read)
        for other, read in _inputs(consumer)
    ]
    stand_in = consumer.body.add_argument(element.type)
    for load in [use for use in argument.uses if isinstance(use, kernel.Load)]:
        load.result.replace_by(stand_in)
        load.erase()
    emit = Builder.before_op(formula.terminator, consumer.location)
    (final,) = clone_into(consumer.body, emit, [*indices, *arrays, element])
    formula.terminator.set_operands([final])
    consumer.body.arguments.pop()


def _read_once(op: kernel.Generic) -> None:
    """Read an array that is an input several times through the first of its arguments."""
    first: dict[Value, Value] = {}
    for argument, value in _inputs(op):
        known = first.setdefault(value, argument)
        if known is not argument:
            argument.replace_by(known)
            op.remove_input(argument)


def _inputs(op: kernel.Generic) -> list[tuple[Value, Value]]:
    """Each array that a kernel reads, with the argument that stands for it."""
    return list(zip(op.arrays, op.inputs, strict=True))


def _origin(value: Value) -> Value:
    """The value that a chain of reshapes with one user each starts from."""
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
    """Why a formula stays a kernel of its own; empty if it need not. `counts` are of both formulas."""
    if len(producer.results) != 1:
        return "it has several results"
    loads = [use for use in argument.uses if isinstance(use, kernel.Load)]
    again = len(producer.result.uses) > 1 or len(loads) > 1 or not _walks_once(producer, loads)
    if again and not _is_free(producer.body):
        return "it would be computed more than once"
    reads = {*producer.inputs, *consumer.inputs} - {producer.result}
    if len(reads) > limits.inputs:
        return f"the kernel would read {len(reads)} arrays"
    return limits.too_large(counts[0] * max(1, len(loads)) + counts[1])


def _walks_once(producer: kernel.Generic, loads: list[kernel.Load]) -> bool:
    """Whether the loads ask for no more elements than the producer has."""
    return all(_times(load) == product(producer.domain) for load in loads)


def _times(load: kernel.Load) -> Size:
    """How often a load runs."""
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


def _is_free(body: Block) -> bool:
    """Whether a formula is so little that computing it again beats storing it."""
    work = [op for op in body if not isinstance(op, kernel.Load | kernel.Yield | scalar.Constant)]
    loads = sum(isinstance(op, kernel.Load) for op in body)
    return loads <= 1 and len(work) <= FREE_OPERATIONS and all(isinstance(op, CHEAP) for op in work)


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
    """Why a kernel is not written behind the one it reads; empty if it can be."""
    if len(producer.results) != 1 or producer.outs:
        return "it has several results"
    if len(producer.result.uses) != 1 or len(value.uses) != 1:
        return "others read it, too"
    if isinstance(producer, kernel.Generic) and isinstance(
        producer.body.terminator.operands[0].op, kernel.Stage
    ):
        return "its rows are written as a whole"
    if value is producer.result and consumer.domain != producer.domain:
        return "its reader computes other elements"
    for use in argument.uses:
        if not isinstance(use, kernel.Load) or list(use.indices) != consumer.indices:
            return "its reader needs other elements than its own"
    if (
        isinstance(producer, Product)
        and kernel.array_type(consumer.result).dtype is not producer.accumulator
        and kernel.array_type(producer.lhs).dtype is producer.accumulator
    ):
        # Sums of wide factors are added up where the result goes; those of 16 bits never are.
        return "the reader's dtype is not that of the sums"
    if len(consumer.inputs) + len(producer.operands) > limits.inputs:
        return "the kernel would read too many arrays"
    return ""
