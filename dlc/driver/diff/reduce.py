"""A smaller model with the same fault: delta debugging over the operations of the graph.

Operations are left out in ever smaller groups. What a kept operation reads from one that was left out
becomes an input, with the numbers that it had; results that nothing reads become the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dlc.dialects import flow, func, weight
from dlc.dialects.builtin import Module
from dlc.dialects.interface import bounds_attribute
from dlc.dialects.measured import dims_of
from dlc.driver.diff.case import Case
from dlc.driver.diff.delta import minimal
from dlc.driver.diff.gradients import wrong_gradient
from dlc.driver.source.open import read_ir
from dlc.driver.source.source_model import SourceModel
from dlc.errors import DlcError
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Array, Block, Builder, Op, Value
from dlc.ir.passes import Context, Manager
from dlc.ir.verify import verify
from dlc.passes.graph.autodiff import autodiff
from dlc.text.ir.printer import print_module

Test = Callable[[Case], bool]
Attempt = Callable[[Callable[[], Case]], bool]

MOST_TESTS = 400
"""The most candidates that are tried."""


@dataclass(slots=True)
class _Recorded:
    """A graph without derivatives, and the arrays of its values in the call."""

    model: SourceModel
    function: func.Func
    arrays: Mapping[Value, Array]


def reduce_case(case: Case, shows: Test) -> Case:
    """The smallest case found for which `shows` holds, which holds for `case`.

    Cases of models below the graph are left as they are.
    """
    wrong = wrong_gradient(case)
    if wrong is not None:
        return case if wrong.vjp is None else _of_derivative(case, wrong.vjp, wrong.arrays)
    recorded = _recorded(case)
    if recorded is None:
        return case
    tests = 0
    best = case

    def attempt(make: Callable[[], Case]) -> bool:
        nonlocal tests, best
        tests += 1
        if tests > MOST_TESTS:
            return False
        try:
            candidate = make()
            if not shows(candidate):
                return False
        except (DlcError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
            return False
        best = candidate
        return True

    while True:
        before = _count(recorded)
        for narrow in (_keep_one_result, _keep_few, _open_region):
            narrow(case, recorded, attempt)
            case = best
            recorded = _recorded(case) or recorded
        if _count(recorded) >= before:
            return best


def _of_derivative(case: Case, vjp: flow.Vjp, arrays: Sequence[Array]) -> Case:
    """The case of one derivative, in f64."""
    block = vjp.parent
    assert block is not None
    model = case.open()
    function = case.function(model)
    assert isinstance(function, func.Func)
    recorded = _Recorded(model, function, dict(zip(block.arguments, arrays, strict=True)))
    return _case_of(case, recorded, [vjp], {})


def _count(recorded: _Recorded) -> int:
    return sum(1 for _ in recorded.function.walk())


def _recorded(case: Case) -> _Recorded | None:
    model = case.open()
    if model.stage != "graph":
        return None
    Manager(model.context).run(model.module, (autodiff,))
    function = case.function(model)
    if not isinstance(function, func.Func):
        return None
    arrays: dict[Value, Array] = {}

    def observe(value: Value, array: Array) -> None:
        if value not in arrays:  # in loops the first iteration
            arrays[value] = np.array(array)

    case.evaluate(model, observe)
    return _Recorded(model, function, arrays)


def _keep_one_result(case: Case, recorded: _Recorded, attempt: Attempt) -> None:
    """Only one of several results, with what it is computed from."""
    results = recorded.function.results_returned
    for value in results if len(results) > 1 else ():
        kept = list(_slice(recorded.function, value))
        if kept and attempt(partial(_with_ops, case, recorded, kept)):
            return


def _keep_few(case: Case, recorded: _Recorded, attempt: Attempt) -> None:
    """As few operations as show the fault."""
    ops = [op for op in recorded.function.body if not op.terminator]
    minimal(ops, lambda kept: attempt(partial(_with_ops, case, recorded, kept)))


def _slice(function: func.Func, value: Value) -> Iterator[Op]:
    """The operations of a function that a value depends on, in order."""
    needed = {value}
    kept: list[Op] = []
    for op in reversed(list(function.body)):
        if not op.terminator and needed.intersection(op.results):
            kept.append(op)
            needed.update(op.operands)
            needed.update(v for inner in op.walk() for v in inner.operands)
    return reversed(kept)


def _with_ops(case: Case, recorded: _Recorded, kept: Sequence[Op]) -> Case:
    """The case of these operations alone."""
    return _case_of(case, recorded, kept, {})


def _open_region(case: Case, recorded: _Recorded, attempt: Attempt) -> None:
    """One iteration of a loop, or one branch, in place of the whole, where that shows the fault."""
    for op in recorded.function.body:
        for region in op.regions if isinstance(op, flow.Scan | flow.While | flow.If) else ():
            inner = [one for one in region if not one.terminator]
            if inner and attempt(partial(_with_ops, case, recorded, inner)):
                return


def _case_of(
    case: Case, recorded: _Recorded, kept: Sequence[Op], copies: dict[Value, Value]
) -> Case:
    """A module with one function of these operations, whose other values are inputs."""
    assert kept
    body = Block()
    inputs: list[Array] = []
    emit = Builder(body, recorded.function.location)
    inside = {value for op in kept for value in op.results}
    for op in kept:
        for value in _used(op):
            if value not in inside and value not in copies:
                copies[value] = body.add_argument(value.type, value.name or f"x{len(inputs)}")
                inputs.append(recorded.arrays[value])
    for op in kept:
        operands = [copies[value] for value in op.operands]
        made = clone(op, operands, [_closed(region, copies) for region in op.regions])
        emit.place(made)
        copies.update(zip(op.results, made.results, strict=True))
    sinks = [copies[v] for v in inside if not any(user in kept for user in v.uses)]
    ordered = [value for op in body for value in op.results if value in sinks]
    emit.place(func.Return(tuple(ordered)))
    return _packed(case, recorded, body, ordered, inputs)


def _used(op: Op) -> Iterator[Value]:
    """The values from outside that an operation and its regions use."""
    own = {v for inner in op.walk() for region in inner.regions for v in region.arguments}
    own |= {v for inner in op.walk() if inner is not op for v in inner.results}
    for inner in op.walk():
        for value in inner.operands:
            if value not in own:
                yield value


def _closed(region: Block, copies: Mapping[Value, Value]) -> Block:
    """A copy of a region that refers to the copies of what is outside."""
    copy = clone_block(region)
    for op in [inner for one in copy for inner in one.walk()]:
        for operand in dict.fromkeys(op.operands):
            if operand in copies:
                op.replace_operand(operand, copies[operand])
    return copy


def _packed(
    case: Case, recorded: _Recorded, body: Block, results: Sequence[Value], inputs: list[Array]
) -> Case:
    old = recorded.function
    function = func.Func(body, old.sym_name, func.signature(body, results))
    function.location = old.location
    names = _unique([argument.name or "x" for argument in body.arguments])
    function.attributes["dlc.inputs"] = tuple(names)
    used = dims_of(function)
    bounds = {name: bound for name, bound in old.bounds.items() if name in used}
    if bounds:
        function.attributes["dlc.dims"] = bounds_attribute(bounds)
    module = Module.empty(old.location)
    emit = Builder(module.body, old.location)
    symbols = {op.symbol.name for op in function.walk() if isinstance(op, weight.Get)}
    for op in recorded.model.module.body:
        if isinstance(op, weight.Source) and op.sym_name in symbols:
            emit.place(clone(op, ()))
    emit.place(function)
    verify(module)
    text = print_module(module, locations=False)
    weights = {name: array for name, array in case.weights.items() if name in symbols}
    dims = {name: size for name, size in case.dims.items() if name in bounds}
    folder = recorded.model.folder
    return replace(
        case,
        reopen=lambda: SourceModel(
            read_ir(text, REDUCED), Context(), REDUCED, {REDUCED: text}, folder, arrays=weights
        ),
        inputs=tuple(inputs),
        dims=dims,
        weights=weights,
    )


REDUCED = "reduced.dlir"
"""The file of the smaller model."""


def text_of(case: Case) -> str:
    """The IR of a case, as it was read."""
    return print_module(case.reopen().module)


def _unique(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        unique, count = name, 0
        while unique in found:
            count += 1
            unique = f"{name}_{count}"
        found.append(unique)
    return found
