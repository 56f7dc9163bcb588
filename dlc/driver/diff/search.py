"""From a case to its first fault: the level, the pass, the rewrite and the value where numbers depart."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from dlc.dialects import func, kernel, mem
from dlc.dialects.loop.memory import POISON
from dlc.driver.compile.checks.verify_each import compare_kernel
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.job import CompileJob
from dlc.driver.compile.native_planner import machine_code
from dlc.driver.compile.pipelines import PIPELINE, STAGES
from dlc.driver.diff.case import Case, bits
from dlc.driver.diff.gradients import wrong_gradient
from dlc.driver.diff.tolerance import Expectations, expectations
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.weight_sources import derive
from dlc.errors import DlcError, NumbersDiffer
from dlc.evaluation.compare_levels import compare_loops, planned_copy
from dlc.evaluation.plan import MISUSE
from dlc.ir.core import Array, Evaluation, Value
from dlc.ir.fingerprint import fingerprint
from dlc.ir.log import Decision
from dlc.ir.passes import Manager, Pass
from dlc.ir.verify import verify
from dlc.passes.graph.autodiff import autodiff
from dlc.passes.graph.device_placement import unplace
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.spelling import python_name
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.model import Model

MACHINE = "machine code"
"""The last level, which is run and not evaluated."""
LOWERINGS = ("lower_to_loops", "lower_to_simt", "lower_to_hetero")
"""The passes that make loops, which are compared with their kernels tile by tile."""


BROKEN = (
    *(DlcError, *MISUSE),
    *(ArithmeticError, AssertionError, LookupError, TypeError, ValueError),
)
"""What evaluating or running a wrong program may raise."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Where the numbers of a model depart first.

    `what` says how they show it. `value` is the first wrong value as the text calls it, `op` the operation
    that computes it and `place` its place. `before` and `after` are how many optional rewrites were done
    before the pass and after it; `rewrite` is the first wrong one with its number, if it is one of these.
    """

    level: str
    pass_name: str
    position: int
    what: str
    excess: float = float("inf")
    result: int | None = None
    value: str = ""
    op: str = ""
    place: str = ""
    before: int = 0
    after: int = 0
    rewrite: Decision | None = None
    number: int | None = None
    contributors: tuple[tuple[str, float], ...] = ()

    @property
    def kind(self) -> tuple[str, str]:
        """What a smaller model must show to have the same fault.

        Wrong loops show at once or only when they run, as far as their tiles are compared.
        """
        return ("loop", "") if self.level in ("loop", MACHINE) else (self.level, self.pass_name)


@dataclass(frozen=True, slots=True)
class Step:
    """A pass of the pipeline, with the level that it leads to."""

    level: str
    run: Pass[...]


class Walk:
    """A model on its way down, pass by pass, as it is compiled."""

    def __init__(self, case: Case, rewrites: int | None = None) -> None:
        self.case = case
        self.model: SourceModel = case.open()
        self.job = CompileJob.of(self.model, case.settings)
        context = self.model.context
        context.options, context.compiler = self.job.options, machine_code
        context.rewrites.last = case.settings.bisect if rewrites is None else rewrites
        if case.settings.kind == "cuda":
            unplace(self.model.module)
        self.position = 0
        self.manager = Manager(context)

    def steps(self) -> list[Step]:
        """All passes from where the model is to loops, in the order in which compiling runs them."""
        start = self.model.read_at
        own = [] if start != "graph" else self._steps("graph", "graph")
        last = [] if start == "loop" else self._steps("plan", "loop")
        return [*own, *(self._steps(start, "plan") if start in STAGES[:2] else []), *last]

    def _steps(self, first: str, last: str) -> list[Step]:
        settings, device = self.job.settings, self.job.device
        stages = STAGES[STAGES.index(first) : STAGES.index(last) + 1]
        return [
            Step(stage, row.run)
            for stage in (stages if first == "graph" else stages[1:])
            for row in PIPELINE[stage]
            if row.level <= settings.level and device in row.on
        ]

    def advance(self, step: Step) -> None:
        """Run a pass and verify what it leaves."""
        self.manager.run(self.model.module, (step.run,))
        verify(self.model.module)
        self.position += 1


def find_fault(
    case: Case, expected: Expectations | None = None, last: str = MACHINE
) -> Fault | None:
    """The first fault of a model, or None where every level gives the numbers of its graph.

    `last` is the last level that is looked at.
    """
    wrong = wrong_gradient(case)
    if wrong is not None:
        return Fault("graph", autodiff.name, 0, wrong.what, op=wrong.op, place=wrong.place)
    expected = expected or expectations(case)
    fault = _fault_of_passes(case, expected, last)
    if fault is None and last == MACHINE and _runs_here(case):
        fault = _fault_of_code(case, expected)
    if fault is None:
        return None
    return replace(fault, contributors=tuple(expected.contributors[:3]))


def explained(case: Case, fault: Fault) -> Fault:
    """The fault with the rewrite, the value and the operation that it begins with."""
    if fault.pass_name == autodiff.name and fault.op:
        return fault
    expected = expectations(case)
    if fault.level == MACHINE:
        fault = _in_loops(case, fault, expected)
    elif fault.level in ("graph", "kernel"):
        fault = _with_rewrite(case, fault, expected)
    if not fault.op and fault.level in ("graph", "kernel"):
        fault = _with_value(case, fault, expected)
    return fault if fault.value or fault.level in ("graph", "kernel") else _with_last(case, fault)


# Passes.


def _fault_of_passes(case: Case, expected: Expectations, last: str) -> Fault | None:
    walk = Walk(case)
    seen: object = None
    for position, step in enumerate(walk.steps()):
        if last in STAGES and STAGES.index(step.level) > STAGES.index(last):
            return None
        done, planned = walk.model.context.rewrites.done, _planned(walk, step)
        log = len(walk.model.context.log)
        found = _attempt(walk, step, expected, planned, seen)
        if found is not None:
            after = walk.model.context.rewrites.done
            decisions = list(walk.model.context.log)[log:]
            did = [one for one in decisions if one.kind == "did"]
            return replace(
                found,
                level=step.level,
                pass_name=step.run.name,
                position=position,
                before=done,
                after=after,
                rewrite=did[-1] if len(did) == 1 else None,
            )
        seen = fingerprint(walk.model.module)
    return None


def _attempt(
    walk: Walk, step: Step, expected: Expectations, planned: mem.Program | None, seen: object
) -> Fault | None:
    """The fault that a pass makes, without its position."""
    try:
        walk.advance(step)
        if fingerprint(walk.model.module) == seen:
            return None
        if planned is not None:
            _compare_loops(walk, planned)
            return None
        return _wrong_result(walk.case.evaluate(walk.model), expected)
    except NumbersDiffer as error:
        return Fault("", "", 0, str(error), op=_op_of(error), place=_place_of(error))
    except MISUSE as error:
        what, place = f"wrong use of memory: {error}", _place_in(error)
        return Fault("", "", 0, what, op=_first_word(error), place=place)
    except DlcError as error:
        return Fault("", "", 0, f"it fails: {error}", place=_place_of(error))
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        return Fault("", "", 0, f"what it leaves has no meaning: {type(error).__name__}: {error}")


def _wrong_result(results: Sequence[Array], expected: Expectations) -> Fault | None:
    """The worst wrong result."""
    worst: Fault | None = None
    for number, (array, one) in enumerate(zip(results, expected.results, strict=True)):
        excess = one.excess(array)
        if excess > 1 and (worst is None or excess > worst.excess):
            what = f"result {number} {_difference(one.worst(array), array)}"
            worst = Fault("", "", 0, what, excess, number)
    return worst


def _difference(worst: tuple[tuple[int, ...], float, float] | None, array: Array) -> str:
    if worst is None:
        return f"has the shape {list(array.shape)}"
    at, found, wanted = worst
    where = f"[{', '.join(map(str, at))}] " if at else ""
    return f"{where}is {found:.9g} instead of {wanted:.9g}"


def _planned(walk: Walk, step: Step) -> mem.Program | None:
    """A copy of the plan before it is lowered, where loops are compared with kernels."""
    if step.run.name not in LOWERINGS:
        return None
    program = walk.case.function(walk.model)
    kernels = any(isinstance(op, kernel.Kernel) for op in program.walk())
    return planned_copy(program) if isinstance(program, mem.Program) and kernels else None


def _compare_loops(walk: Walk, planned: mem.Program) -> None:
    """Raises NumbersDiffer, or BadAccess, for loops that are not what their kernels are."""
    program = walk.case.function(walk.model)
    assert isinstance(program, mem.Program)
    at = Evaluation(walk.case.dims, derive(walk.model.module, walk.case.weights))
    compare_loops(planned, program, walk.case.inputs, at, compare_kernel)


# Machine code.


def _runs_here(case: Case) -> bool:
    return case.settings.kind == "cpu" and "cuda" not in case.settings.target


def _fault_of_code(case: Case, expected: Expectations) -> Fault | None:
    """The fault of compiled code, where evaluation has found none."""

    code = "code generation"
    try:
        results = run_compiled(case)
    except DlcError as error:
        return Fault(MACHINE, code, 0, f"it fails: {error}", place=_place_of(error))
    found = _wrong_result(results, _seen_results(expected, len(results)))
    return None if found is None else replace(found, level=MACHINE, pass_name=code)


def _seen_results(expected: Expectations, count: int) -> Expectations:
    """The expectations of the results that a caller sees: the first ones."""
    return Expectations(expected.results[:count], expected.values, expected.growth)


def run_compiled(case: Case) -> list[Array]:
    """The bits of the results as machine code computes them."""

    def observe(_: str, __: object) -> None:
        """With an observer nothing is recalled from the cache: it is the code of this compiler."""

    model = case.reopen()
    model.trust_ir = True
    artifact = compile_model(model, case.settings, case.weights, after=observe)
    with Model(artifact) as compiled:
        return call_artifact(compiled, case)


def call_artifact(model: Model, case: Case) -> list[Array]:
    """The bits of the results of a compiled entry point."""
    point = model.entry_points[case.entry]
    inputs = point.entry.inputs
    arrays = [
        Tensor.from_bits(array, item.dtype) if item.dtype == "bf16" else array
        for array, item in zip(case.inputs, inputs, strict=True)
    ]
    sizes = {python_name(name): case.dims[name] for name in DimBinder(point.entry).free}
    call = cast("Callable[..., object]", point)
    found = call(*arrays, **sizes, **_poisoned(point, case))
    results = cast("tuple[object, ...]", found if isinstance(found, tuple) else (found,))
    return [
        bits(one).astype(DTYPES[output.dtype].numpy, copy=False)
        for one, output in zip(results, point.outputs, strict=True)
    ]


def _poisoned(point: EntryPoint, case: Case) -> dict[str, object]:
    """Results to write to that hold nothing that was computed before, so that what is not written shows."""
    outputs = point.outputs
    if any(output.updates or output.dtype == "bf16" for output in outputs):
        return {}
    try:
        shapes = [size_expressions.evaluate_all(output.shape, case.dims) for output in outputs]
    except size_expressions.BadExpression:
        return {}  # a size that the call measures
    arrays = [np.empty(s, DTYPES[o.dtype].numpy) for s, o in zip(shapes, outputs, strict=True)]
    for array in arrays:
        array.reshape(-1).view(np.uint8)[...] = POISON
    return {"out": arrays[0] if len(arrays) == 1 else tuple(arrays)}


# The rewrite.


def _with_rewrite(case: Case, fault: Fault, expected: Expectations) -> Fault:
    """The fault with the first optional rewrite that makes it, found by bisection."""
    if fault.after == fault.before:
        return fault
    low, high = fault.before, fault.after  # right with `low` rewrites, wrong with `high`
    if _is_wrong(case, fault, expected, low):
        return fault
    while high - low > 1:
        middle = (low + high) // 2
        if _is_wrong(case, fault, expected, middle):
            high = middle
        else:
            low = middle
    decision = _decision(case, fault, high)
    if decision is None:
        return replace(fault, number=high)
    return replace(fault, rewrite=decision, number=high, op=decision.subject, place=decision.place)


def _is_wrong(case: Case, fault: Fault, expected: Expectations, rewrites: int) -> bool:
    walk, step = _until(case, fault, rewrites)
    return _attempt(walk, step, expected, _planned(walk, step), None) is not None


def _until(case: Case, fault: Fault, rewrites: int | None = None) -> tuple[Walk, Step]:
    """The model just before the pass with the fault, and the pass."""
    walk = Walk(case, rewrites)
    steps = walk.steps()
    for step in steps[: fault.position]:
        walk.advance(step)
    return walk, steps[fault.position]


def _decision(case: Case, fault: Fault, rewrites: int) -> Decision | None:
    """What the last of `rewrites` rewrites did."""
    walk, step = _until(case, fault, rewrites)
    before = len(walk.model.context.log)
    with suppress(*BROKEN):  # what it did before is in the log
        walk.advance(step)
    did = [one for one in list(walk.model.context.log)[before:] if one.kind == "did"]
    useful = [one for one in did if one.what != "drop what nothing uses"]
    return useful[-1] if useful else None


# The value.


def _in_loops(case: Case, fault: Fault, expected: Expectations) -> Fault:
    """A fault of machine code that the loops have already, when all of their tiles are evaluated."""
    walk = Walk(case)
    steps = walk.steps()
    for step in steps:
        walk.advance(step)
    try:
        found = _wrong_result(case.evaluate(walk.model), expected)
    except (DlcError, *MISUSE) as error:
        found = replace(fault, what=str(error))
    if found is None or not steps:
        return fault
    step = steps[-1]
    return replace(found, level=step.level, pass_name=step.run.name, position=len(steps) - 1)


def _with_last(case: Case, fault: Fault) -> Fault:
    """The fault with the operation of the graph at its place, or the one that computes the wrong result."""
    function = case.function(case.open())
    if not isinstance(function, func.Func):
        return fault
    there = [op for op in function.walk() if fault.place and str(op.location.place) == fault.place]
    value = there[-1].results[0] if there else function.results_returned[fault.result or 0]
    if value.op is None:
        return fault
    kernel_op = f"{fault.op} of " if fault.op else ""
    place = fault.place or str(value.op.location.place)
    return replace(fault, value=value.name or "", op=f"{kernel_op}{value.op.name}", place=place)


def _with_value(case: Case, fault: Fault, expected: Expectations) -> Fault:
    """The fault with the first value that is wrong after the pass."""
    walk, step = _until(case, fault)
    origins = walk.model.context.values.of(case.entry)
    wrong: list[str] = []
    at = Evaluation(case.dims)

    def observe(value: Value, array: Array) -> None:
        for origin in walk.model.context.values.origins_of(value):
            one = expected.values.get(origin.name)
            if one is None or origin.name in wrong:
                continue
            if one.excess(origin.recover(array, at)) > 1:
                wrong.append(origin.name)

    with suppress(*BROKEN):  # the values before the failure were seen
        walk.advance(step)
        case.evaluate(walk.model, observe)
    if not wrong:
        return fault
    name = wrong[0]
    return replace(fault, value=name, op=_original_op(case, name), place=origins[name].place)


def _original_op(case: Case, name: str) -> str:
    """The operation of the graph that computes a value."""
    model = case.open()
    Manager(model.context).run(model.module, (autodiff,))
    origin = model.context.values.of(case.entry).get(name)
    return "" if origin is None else _describe(origin.value)


def _describe(value: Value | None) -> str:
    return "" if value is None or value.op is None else value.op.name


def _op_of(error: DlcError) -> str:
    """The kernel that a message about loops names."""
    words = error.diagnostics[0].message.split()
    return next((word for word in words if word.startswith(("kernel.", "comm."))), "")


def _first_word(error: Exception) -> str:
    return str(error).partition(" ")[0].partition("(")[0].lstrip("<")


def _place_in(error: Exception) -> str:
    """The place that a message about memory names first."""
    found = re.search(r" at (\S+:\d+:\d+)", str(error))
    return "" if found is None else found[1]


def _place_of(error: DlcError) -> str:
    place = error.diagnostics[0].place
    return "" if place is None else str(place)
