"""Checks first: a call whose indices are wrong fails before it changes an array of the caller.

A function that changes arguments where they are, or in which ranks exchange arrays, gets a second, private
function, which computes all indices that can be known without the work of the function, in the same loops
and branches, and checks them. It is planned in front of the function; what it has checked is marked
`decided`. Before an operation that can still fail, the planner writes no argument in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.dialects import array, comm, flow, func
from dlc.dialects.array.elementwise import fill, tensor_type
from dlc.dialects.builtin import Module
from dlc.ir.clone import clone
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Size
from dlc.ir.intervals import interval
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import BOOL, TensorType
from dlc.passes.graph.index_checks import Check, Needed

__all__ = ["CHECKS_FIRST", "check_first", "checks_name"]

CHECKS_FIRST = "dlc.checks_first"
"""The attribute of functions that write no argument in place before the last thing that can fail."""

Copies = dict[Value, Value]


def checks_name(name: str) -> str:
    """The symbol of the checks of a function: no entry point can be called so, because of the dot."""
    return f"{name}.checks"


@define_pass("check_first", required=True)
def check_first(module: Op, context: Context) -> None:
    """Check the indices of a call before anything changes the caller's arrays."""
    assert isinstance(module, Module)
    for function in list(module.body):
        if isinstance(function, func.Func) and (function.updates or _is_of_ranks(function)):
            function.attributes[CHECKS_FIRST] = True
            _write(function, module, context)


def _is_of_ranks(function: func.Func) -> bool:
    """Whether ranks exchange arrays in it: one that failed meanwhile would leave the others waiting."""
    return any(isinstance(op, comm.Collective) for op in function.walk(formulas=False))


def _write(function: func.Func, module: Module, context: Context) -> None:
    needed = Needed(function.body, function.bounds)
    for op in needed.late:
        context.log.refused("an index follows from long work", op)
    if not needed.decided or module.symbol(checks_name(function.sym_name)) is not None:
        return
    arguments = function.body.arguments
    body = Block([each.type for each in arguments], [each.name for each in arguments])
    copies = dict(zip(arguments, body.arguments, strict=True))
    emit = Builder(body, function.location)
    verdicts = _Writer(needed, function).block(function.body, emit, copies)
    for op in needed.decided:
        op.attributes["decided"] = True
    if not verdicts:
        return
    emit.place(func.Return(verdicts))
    type = func.signature(body, verdicts)
    checks = func.Func(body, checks_name(function.sym_name), type, "private")
    for key in ("dlc.dims", "dlc.inputs"):
        if key in function.attributes:
            checks.attributes[key] = function.attributes[key]
    Builder.before_op(function).at(function.location).place(checks)
    context.log.did("check indices first", function, checks=len(verdicts))


class _Writer:
    """Writes the checks of a function, and what they need."""

    def __init__(self, needed: Needed, function: func.Func) -> None:
        self.needed = needed
        self.bounds = function.bounds

    def block(self, block: Block, emit: Builder, copies: Copies) -> list[Value]:
        """Write the checks of a block; gives their results, which are bools. `copies` grows."""
        verdicts: list[Value] = []
        known: set[tuple[Value, Size, Size]] = set()
        for op in block:
            for check in self.needed.checks.get(op, ()):
                self._check(check, emit.at(op.location), copies, known, verdicts)
            if op.terminator or not self.needed.runs(op):
                continue
            at = emit.at(op.location)
            match op:
                case flow.Scan():
                    verdicts += self._scan(op, at, copies)
                case flow.While():
                    verdicts += self._while(op, at, copies)
                case flow.If():
                    verdicts += self._choice(op, at, copies)
                case _:
                    _copy(op, at, copies)
        return verdicts

    def _check(
        self,
        check: Check,
        emit: Builder,
        copies: Mapping[Value, Value],
        known: set[tuple[Value, Size, Size]],
        verdicts: list[Value],
    ) -> None:
        key = (copies[check.index], check.extent, check.part)
        if key not in known:
            known.add(key)
            verdicts.append(emit(array.CheckIndex(*key)))

    def _scan(self, op: flow.Scan, emit: Builder, copies: Copies) -> list[Value]:
        before = self._before_loop(op, emit, copies)
        needed, carried, walked = self.needed, len(op.initial), len(op.initial) + len(op.xs)
        arguments, yields = op.body.arguments, op.body.terminator.operands
        kept = [k for k in range(len(op.operands)) if arguments[1 + k] in needed]
        body, inside = _like(op.body, [0, *[1 + k for k in kept]])
        at = Builder(body, op.location)
        verdicts = self.block(op.body, at, inside)
        stacks = [k for k in range(carried, len(op.results)) if op.results[k] in needed]
        results = [*[k for k in kept if k < carried], *stacks]
        if not verdicts and not any(op.results[k] in needed for k in results):
            return before
        at.place(flow.Yield((*[inside[yields[k]] for k in results], *verdicts)))
        xs = [k for k in kept if carried <= k < walked]
        made = emit.all(
            flow.Scan(
                [copies[op.operands[k]] for k in kept if k < carried],
                [copies[op.operands[k]] for k in xs],
                [copies[op.operands[k]] for k in kept if k >= walked],
                body,
                op.length,
                tuple([op.x_axes[k - carried] for k in xs]),
                (*[op.y_axes[k - carried] for k in stacks], *[0] * len(verdicts)),
                op.reverse,
            )
        )
        copies.update(zip([op.results[k] for k in results], made, strict=False))
        return [*before, *made[len(results) :]]

    def _before_loop(self, op: flow.Scan, emit: Builder, copies: Copies) -> list[Value]:
        """Write the checks that are the same in each iteration before a loop that has at least one.

        They are no longer among those of the body.
        """
        least = interval(op.length, self.bounds)[0]
        if least is None or least < 1:
            return []
        constants = zip(op.invariants, op.constants, strict=True)
        same = {inside: copies[outside] for inside, outside in constants if inside in self.needed}
        verdicts: list[Value] = []
        known: set[tuple[Value, Size, Size]] = set()
        for each in op.body:
            at, checks = emit.at(each.location), self.needed.checks.get(each, [])
            for check in [check for check in checks if check.index in same]:
                self._check(check, at, same, known, verdicts)
                checks.remove(check)
            if (
                not each.regions
                and not each.terminator
                and self.needed.runs(each)
                and all(value in same for value in each.operands)
            ):
                _copy(each, at, same)
        return verdicts

    def _while(self, op: flow.While, emit: Builder, copies: Copies) -> list[Value]:
        """The same loop; one more carried bool says whether all checks so far have passed."""
        carried = len(op.initial)
        kept = [k for k in range(len(op.operands)) if self._takes(op, k)]
        results = [k for k in kept if k < carried]
        test, in_test = _like(op.condition, kept)
        body, in_body = _like(op.body, kept)
        test.insert_argument(len(results), TensorType(BOOL))
        fine = body.insert_argument(len(results), TensorType(BOOL))
        at = Builder(test, op.location)
        verdicts = self.block(op.condition, at, in_test)
        (goes_on,) = op.condition.terminator.operands
        at.place(flow.Yield((_all_of(at, in_test[goes_on], verdicts),)))
        at = Builder(body, op.location)
        fine = _all_of(at, fine, self.block(op.body, at, in_body))
        yields = op.body.terminator.operands
        at.place(flow.Yield((*[in_body[yields[k]] for k in results], fine)))
        made = emit.all(
            flow.While(
                (
                    *[copies[op.operands[k]] for k in results],
                    fill(emit, True, TensorType(BOOL)),
                ),
                [copies[op.operands[k]] for k in kept if k >= carried],
                test,
                body,
                op.limit,
            )
        )
        copies.update(zip([op.results[k] for k in results], made, strict=False))
        return [made[-1]]

    def _takes(self, op: flow.While | flow.If, k: int) -> bool:
        return any(region.arguments[k] in self.needed for region in op.regions)

    def _choice(self, op: flow.If, emit: Builder, copies: Copies) -> list[Value]:
        kept = [k for k in range(len(op.inputs)) if self._takes(op, k)]
        results = [k for k, result in enumerate(op.results) if result in self.needed]
        blocks: list[Block] = []
        yields: list[list[Value]] = []
        found: list[list[Value]] = []
        for region in op.regions:
            block, inside = _like(region, kept)
            found.append(self.block(region, Builder(block, op.location), inside))
            yields.append([inside[region.terminator.operands[k]] for k in results])
            blocks.append(block)
        yes, no = found
        for k, block in enumerate(blocks):
            at = Builder(block, op.location)
            passed = [_passes(at, verdict) for verdict in found[1 - k]]
            ends = [*yes, *passed] if k == 0 else [*passed, *no]
            at.place(flow.Yield((*yields[k], *ends)))
        inputs = [copies[op.inputs[k]] for k in kept]
        made = emit.all(flow.If(copies[op.condition], inputs, *blocks))
        copies.update(zip([op.results[k] for k in results], made, strict=False))
        return list(made[len(results) :])


def _like(block: Block, kept: Sequence[int]) -> tuple[Block, Copies]:
    """An empty block with some of the arguments of another, and which of those they stand for."""
    arguments = [block.arguments[k] for k in kept]
    new = Block([each.type for each in arguments], [each.name for each in arguments])
    return new, dict(zip(arguments, new.arguments, strict=True))


def _copy(op: Op, emit: Builder, copies: Copies) -> None:
    new = clone(op, [copies[value] for value in op.operands])
    emit.place(new)
    copies.update(zip(op.results, new.results, strict=True))


def _all_of(emit: Builder, first: Value, verdicts: Sequence[Value]) -> Value:
    """A bool and all elements of others."""
    for verdict in verdicts:
        axes = tuple(range(tensor_type(verdict).rank))
        first = emit(array.And(first, emit(array.ReduceAnd(verdict, axes)) if axes else verdict))
    return first


def _passes(emit: Builder, verdict: Value) -> Value:
    """The result of a check in the branch that is not taken."""
    return fill(emit, True, tensor_type(verdict))
