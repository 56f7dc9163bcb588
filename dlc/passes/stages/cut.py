"""Which stage of a pipeline each operation is on, and the transfers from one stage to a later one.

The text puts operations on stages (the attribute `dlc.stage`). Every edge from a stage to a later one
is cut into a `comm.send` and a `comm.recv`, before derivatives are taken, so that the derivative of a
transfer is one the other way. From then on the transfers and the attribute, which every operation on a
stage has, say where an operation runs, and what a derivative adds runs where its operands are.

An operation that the text leaves open runs on the last stage of its operands. What is computed of weights
alone runs where these are, and weights are where they are used first; what depends on neither, such as the
examples of a batch, is computed on every stage that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dlc.dialects import array, flow, func, weight
from dlc.dialects.array.elementwise import show
from dlc.dialects.comm import STAGED, Recv, Send, is_everywhere, stage_device
from dlc.ir.core import Block, Builder, Op, Value

__all__ = ["cut"]


def cut(function: func.Func, inputs: Iterable[str]) -> None:
    """Cut the edges between the stages of a function.

    `inputs` are the names of the arguments that every rank has; the others are weights and states.
    Raises ModelError (D0383) for a value that goes back to an earlier stage, and for a loop or a choice
    on several.
    """
    free = set(inputs)
    weights = {
        value
        for value, name in zip(function.body.arguments, function.input_names, strict=True)
        if name not in free
    }
    pending: list[tuple[Block, set[Value]]] = [(function.body, weights)]
    while pending:
        block, weights = pending.pop()
        weights |= {value for op in block if isinstance(op, weight.Get) for value in op.results}
        inner = [op for op in block if _is_differentiated(op)]
        if not inner:
            _Cut(block, weights).run()
            continue
        for op in block:
            op.attributes.pop(STAGED, None)  # such as the key of random numbers
        for op in inner:
            (region,) = op.regions
            passed = _passed(op, region)
            pending.append((region, {new for old, new in passed if old in weights}))


def _is_differentiated(op: Op) -> bool:
    """Whether an operation is a derivative, or the loop over microbatches of one."""
    if isinstance(op, flow.Scan):
        return any(isinstance(inner, flow.Vjp) for inner in op.body)
    return isinstance(op, flow.Vjp)


def _passed(op: Op, region: Block) -> Iterator[tuple[Value, Value]]:
    """What a region takes from around it: each value there, and the argument that it is."""
    if isinstance(op, flow.Scan):
        start = len(region.arguments) - len(op.constants)
        return zip(op.constants, region.arguments[start:], strict=True)
    assert isinstance(op, flow.Vjp)
    return zip(op.inputs, region.arguments, strict=True)


class _Cut:
    """The stages of a block, and its transfers."""

    def __init__(self, block: Block, weights: set[Value]) -> None:
        self.block, self.weights = block, weights
        self.ops = [op for op in block if not op.terminator]
        self.stages: dict[Op, int] = {}
        self.places: dict[Value, int] = {}
        """The stages of values that are on one."""

    def run(self) -> None:
        """Find the stages, and insert the transfers."""
        for op in self.ops:
            stage = _requested(op)
            if stage is not None:
                self._settle(op, stage)
        if not self.stages:
            return
        self._by_operands()
        self._find_weights()
        self._by_operands()
        self._by_users()
        self._find_weights()
        order = {op: number for number, op in enumerate(self.ops)}
        for op, stage in self.stages.items():
            op.attributes[STAGED] = stage
        received: dict[tuple[Value, int], Value] = {}
        for op, stage in sorted(self.stages.items(), key=lambda each: order[each[0]]):
            for operand in dict.fromkeys(op.operands):
                place = self.places.get(operand, stage)
                if place > stage:
                    raise self._goes_back(op, operand, stage, place)
                if place < stage:
                    if (operand, stage) not in received:
                        received[operand, stage] = self._sent(operand, place, stage, op)
                    op.replace_operand(operand, received[operand, stage])

    def _settle(self, op: Op, stage: int) -> None:
        self.stages[op] = stage
        self.places.update(dict.fromkeys(op.results, stage))

    def _by_operands(self) -> None:
        """Put operations on the last stage of their operands."""
        for op in self.ops:
            found = [self.places[value] for value in op.operands if value in self.places]
            if found and op not in self.stages:
                self._settle(op, max(found))

    def _find_weights(self) -> None:
        """Put weights on the first stage that uses them."""
        for value in self.weights - self.places.keys():
            found = [self.stages[user] for user in value.uses if user in self.stages]
            if found:
                self.places[value] = min(found)

    def _by_users(self) -> None:
        """Put what is computed of weights alone on the first stage that uses it."""
        heavy = set(self.weights)
        for op in self.ops:
            if not heavy.isdisjoint(op.operands):
                heavy.update(op.results)
        for op in reversed(self.ops):
            if op in self.stages or heavy.isdisjoint(op.results) or isinstance(op, weight.Get):
                continue
            users = [user for value in op.results for user in value.uses]
            found = [self.stages[user] for user in users if user in self.stages]
            if found:
                self._settle(op, min(found))

    def _sent(self, value: Value, source: int, target: int, user: Op) -> Value:
        """A value on another stage, sent as soon as it is there."""
        start = self.block.first if value.op is None else value.op.next
        names = stage_device(source), stage_device(target)
        sent = Builder(self.block, user.location, start)(Send([value], [], *names))
        assert sent.op is not None
        return Builder(self.block, user.location, sent.op.next)(Recv(sent, *names))

    def _goes_back(self, op: Op, value: Value, stage: int, place: int) -> Exception:
        return op.fail(
            f"stage {stage} cannot use {show(value)}, which stage {place} computes",
            code="D0383",
            help=f"put it on stage {place}: values go from a stage to later ones only",
        )


def _requested(op: Op) -> int | None:
    """The stage that the text puts an operation on, as a whole; None if it says nothing.

    Raises ModelError (D0383) for a loop or a choice whose parts are on several stages.
    """
    if is_everywhere(op) or isinstance(op, array.Extent) or _is_differentiated(op):
        return None
    stages = sorted(_stages_in(op))
    if len(stages) > 1:
        raise op.fail(
            f"a loop or a choice is on one stage, and parts of this one are on {_listed(stages)}",
            code="D0383",
            help="write one loop for each stage",
        )
    return stages[0] if stages else None


def _stages_in(op: Op) -> set[int]:
    """The stages of an operation and of those in its regions."""
    own = op.attributes.get(STAGED)
    if isinstance(own, int):
        return {own}
    inner = [each.attributes.get(STAGED) for each in op.walk()] if op.regions else []
    return {stage for stage in inner if isinstance(stage, int)}


def _listed(stages: Sequence[int]) -> str:
    return " and ".join(map(str, stages))
