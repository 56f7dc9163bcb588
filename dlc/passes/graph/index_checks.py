"""The checks of a function's indices, and which values they need.

A check can be made first if what it needs follows from the inputs of the function without products and the
like, which nobody would compute twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects import array, comm, flow, weight
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.interface import Bounds
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Size, names
from dlc.ir.intervals import interval
from dlc.ir.types import TensorType
from dlc.passes.graph.integer_range import integer_range

__all__ = ["Check", "Needed", "checks_of", "costly_values"]

Control: TypeAlias = "flow.Scan | flow.While | flow.If"

COSTLY = (
    array.MatMul,
    array.DotGeneral,
    array.Convolution,
    array.DepthwiseGradient,
    array.ReduceWindow,
    array.WindowIndex,
    array.SelectAndScatter,
    array.NonZero,
)
"""Operations of the array dialect that are not computed twice, and one that cannot be: it names a size."""


@dataclass(frozen=True, slots=True)
class Check:
    """What a call must fulfil: `0 <= index <= extent - part` for each element of `index`."""

    index: Value
    extent: Size
    part: Size = 1

    def holds(self, bounds: Bounds) -> bool:
        """Whether it holds in every call."""
        low, high = integer_range(self.index)
        least = interval(self.extent - self.part, bounds)[0]
        return low >= 0 and least is not None and high <= least


def checks_of(op: Op) -> list[Check]:
    """The checks of the indices of an operation."""
    match op:
        case array.Gather(source=source) | array.Scatter(target=source):
            shape = tensor_type(source).shape
            indices = zip(op.indices, op.axes, strict=True)
            return [Check(_own_part(index), shape[axis]) for index, axis in indices]
        case array.DynamicSlice(source=source):
            return _of_starts(op, source, op.sizes)
        case array.DynamicUpdateSlice(target=target):
            return _of_starts(op, target, tensor_type(op.update).shape)
        case _:
            return []


def _own_part(index: Value) -> Value:
    """The indices of this rank, where an index has those of all ranks; others as they are.

    Each rank checks its own before it sends them.
    """
    value, is_gathered = index, False
    while isinstance(value.op, comm.AllGather | array.Reshape | array.Transpose):
        is_gathered = is_gathered or isinstance(value.op, comm.AllGather)
        value = value.op.operands[0]
    return value if is_gathered else index


def _of_starts(
    op: array.DynamicSlice | array.DynamicUpdateSlice, whole: Value, parts: tuple[Size, ...]
) -> list[Check]:
    sizes = zip(op.starts, tensor_type(whole).shape, parts, strict=True)
    return [Check(start, extent, part) for start, extent, part in sizes]


def costly_values(block: Block, bounds: Bounds) -> set[Value]:
    """The values of a function's body and of its regions that are not computed twice."""
    costly: set[Value] = set()
    _spread(block, bounds, costly)
    return costly


def _spread(block: Block, bounds: Bounds, costly: set[Value]) -> None:
    for op in block:
        if isinstance(op, flow.Scan | flow.While | flow.If):
            for inside, outside in _passed(op):
                if outside in costly:
                    costly.add(inside)
            known = -1
            while known < len(costly):
                known = len(costly)
                for region in op.regions:
                    _spread(region, bounds, costly)
                for given, taken in _handed_over(op):
                    if given in costly:
                        costly.add(taken)
            if any(test in costly for test in _tests(op)) or _is_measured(op, bounds):
                costly.update(op.results)
                for inner in op.walk():
                    costly.update(inner.results)
                    for region in inner.regions:
                        costly.update(region.arguments)
        elif _is_costly(op, bounds) or any(value in costly for value in op.operands):
            costly.update(op.results)


def _is_costly(op: Op, bounds: Bounds) -> bool:
    if isinstance(op, COSTLY) or not (
        isinstance(op, weight.Get) or op.name.startswith(("array.", "rng."))
    ):
        return True
    shapes = [value.type.shape for value in op.results if isinstance(value.type, TensorType)]
    return any(not names(size) <= bounds.keys() for shape in shapes for size in shape)


def _is_measured(op: Control, bounds: Bounds) -> bool:
    """Whether the length of a loop is known during the call only."""
    return isinstance(op, flow.Scan) and not names(op.length) <= bounds.keys()


def _passed(op: Control) -> Iterator[tuple[Value, Value]]:
    """The arguments of the regions, each with the operand that is passed for it."""
    operands = op.inputs if isinstance(op, flow.If) else op.operands
    for region in op.regions:
        arguments = region.arguments[1:] if isinstance(op, flow.Scan) else region.arguments
        yield from zip(arguments, operands, strict=True)


def _handed_over(op: Control) -> Iterator[tuple[Value, Value]]:
    """What the regions yield, each with what becomes of it: a result, the argument of the next round."""
    bodies = op.regions if isinstance(op, flow.If) else [op.body]
    for body in bodies:
        yield from zip(body.terminator.operands, op.results, strict=True)
    if isinstance(op, flow.If):
        return
    carried = len(op.initial)
    first = 1 if isinstance(op, flow.Scan) else 0
    for region in op.regions:
        arguments = region.arguments[first : first + carried if carried else first]
        yield from zip(op.body.terminator.operands, arguments, strict=False)


def _tests(op: Control) -> tuple[Value, ...]:
    """What decides whether, or how often, the regions run."""
    match op:
        case flow.If():
            return (op.condition,)
        case flow.While():
            return op.condition.terminator.operands
        case flow.Scan():
            return ()


class Needed:
    """The values that the checks of a function need, those of its regions included.

    `checks` has for each operation the checks that are made first; `decided` the operations that cannot
    fail after them, `late` those whose indices are known too late for it.
    """

    def __init__(self, block: Block, bounds: Bounds) -> None:
        self.checks: dict[Op, list[Check]] = {}
        self.decided: list[Op] = []
        self.late: list[Op] = []
        self._bounds = bounds
        self._costly = costly_values(block, bounds)
        self._values: set[Value] = set()
        self._ops: set[Op] = set()
        """The operations with regions that are needed for the checks in them."""
        self._find(block)
        self._close(block)

    def __contains__(self, value: Value) -> bool:
        return value in self._values

    def runs(self, op: Op) -> bool:
        """Whether an operation is needed, for its results or for the checks in it."""
        return op in self._ops or any(result in self._values for result in op.results)

    def _find(self, block: Block) -> bool:
        """Find the checks in a block; whether there are any."""
        found = False
        for op in block:
            if isinstance(op, flow.Scan | flow.While | flow.If):
                inside = [self._find(region) for region in op.regions]
                limited = isinstance(op, flow.While) and op.limit is not None
                if limited and not any(test in self._costly for test in _tests(op)):
                    self.decided.append(op)
                    inside.append(True)
                if any(inside):
                    self._ops.add(op)
                    found = True
                continue
            checks = checks_of(op)
            open_checks = [check for check in checks if not check.holds(self._bounds)]
            if any(self._is_late(check) for check in open_checks):
                self.late.append(op)
            elif checks:
                self.decided.append(op)
                self.checks[op] = open_checks
                found = found or bool(open_checks)
        return found

    def _is_late(self, check: Check) -> bool:
        dims = names(check.extent) | names(check.part)
        return check.index in self._costly or not dims <= self._bounds.keys()

    def _close(self, block: Block) -> None:
        """Add what a block needs for its checks and for those of its values that are needed."""
        for op in reversed(list(block)):
            self._values.update([check.index for check in self.checks.get(op, ())])
            if not self.runs(op):
                continue
            if isinstance(op, flow.Scan | flow.While | flow.If):
                self._close_regions(op)
            else:
                self._values.update(op.operands)

    def _close_regions(self, op: Control) -> None:
        known = -1
        while known < len(self._values):
            known = len(self._values)
            self._values.update(_tests(op))
            for given, taken in _handed_over(op):
                if taken in self._values:
                    self._values.add(given)
            if not isinstance(op, flow.If):
                # A value that is carried begins with what is passed for it.
                for region in op.regions:
                    self._carry(op, region)
            for region in op.regions:
                self._close(region)
        for inside, outside in _passed(op):
            if inside in self._values:
                self._values.add(outside)

    def _carry(self, op: flow.Scan | flow.While, region: Block) -> None:
        """A carried value is needed in every region of its loop, or in none."""
        first = 1 if isinstance(op, flow.Scan) else 0
        for k, result in enumerate(op.results[: len(op.initial)]):
            everywhere = [each.arguments[first + k] for each in op.regions]
            if result in self._values or any(value in self._values for value in everywhere):
                self._values.update(everywhere)
                self._values.add(op.body.terminator.operands[k])
