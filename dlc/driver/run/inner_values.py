"""Inner values of a call of machine code.

The artifact runs as it is, then once more with probes (`dlc.driver.compile.probes`): the same machine code
in the same memory, and after each wave the values that it wrote are copied. Both calls must give the same
bits. A value that is in no memory, since it was fused into the kernel that reads it, is computed again with
NumPy from the nearest values that are; so is one that the value map has lost. What shows which is which is
`Watch.sources`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dlc.dialects import func, mem
from dlc.driver.compile.compile import Report, compile_model
from dlc.driver.compile.entries import find_entry, settle_interfaces
from dlc.driver.compile.flags import settings_of_flags
from dlc.driver.compile.probes import Probe, place_probes, with_probes
from dlc.driver.compile.settings import Settings
from dlc.driver.run.calls import Arguments, CallRequest, call_with
from dlc.driver.run.interpret import Bound, bind, check_watched, evaluate_observed
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.results import Results
from dlc.driver.run.rounding import exact_values
from dlc.driver.run.tracking import track_all
from dlc.driver.run.watch import Watch, renamed_values
from dlc.driver.source.source_model import SourceModel
from dlc.driver.source.weight_sources import WeightsArgument, gather
from dlc.errors import InternalError, Unsupported
from dlc.ir.core import Array, Evaluation, Op
from dlc.ir.dims import names
from dlc.ir.passes import Manager
from dlc.ir.value_map import Origin, ValueMap
from dlc.passes.graph.autodiff import autodiff
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.calling.probes import Listener
from dlc.runtime.loaded_code import load_code
from dlc.runtime.machines import Processor
from dlc.runtime.model import Model


@dataclass(slots=True)
class Captured:
    """The values that machine code had in memory, by name, each as often as it was written.

    `left` are names that are not taken from there, since the evaluation computes them another number of
    times: a loop was written in another form.
    """

    arrays: Mapping[str, Sequence[Array]]
    left: set[str] = field(default_factory=set[str])

    def names_of(self, op: Op, values: ValueMap) -> list[str] | None:
        """For each result of an operation a name by which it was captured; None if one was not."""
        names: list[str] = []
        for result in op.results:
            found = (origin.name for origin in values.origins_of(result))
            name = next((n for n in found if n in self.arrays and n not in self.left), None)
            if name is None:
                return None
            names.append(name)
        return names if names and not op.regions else None


def run_watched(
    request: CompileRequest,
    call_request: CallRequest,
    watch: Watch,
    threads: int | None = None,
    max_memory: int | None = None,
) -> tuple[Results, tuple[str, ...]]:
    """Call an entry point in machine code and observe values of its text: results and notes.

    Raises Unsupported (D0729) for code of a GPU, UsageError (D0905, D0911) for values that there are not.
    """
    request = request.to_run_here()
    source = _opened(request.open())
    check_watched(source, watch)
    arguments = request.arguments_for(source, call_request)
    settings, code = request.settings, None
    if request.is_compiled:
        code = Artifact.read(request.path)
        settings = settings_of_flags(code.manifest.compiler.flags)
    call = ObservedCall(request.open, settings, request.weights, threads, max_memory, code)
    return call.run(source, arguments, watch)


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """What a call is compiled from: the model, read anew each time, with settings and weights.

    With `code` the machine code must be this, section by section; the notes say where it is not.
    """

    open: Callable[[], SourceModel]
    settings: Settings
    weights: WeightsArgument = None
    threads: int | None = None
    max_memory: int | None = None
    code: Artifact | None = None

    def run(
        self, source: SourceModel, arguments: Arguments, watch: Watch
    ) -> tuple[Results, tuple[str, ...]]:
        """Make the call: its results, and notes. `source` is the model, settled and not yet compiled."""
        report = Report()
        lowered = _opened(self.open())
        watch.hidden |= _track(lowered, arguments.entry)
        artifact = compile_model(lowered, self.settings, self.weights, report=report, after=_seen)
        _check_runs_on_processor(artifact)
        with Model(artifact, threads=self.threads, max_memory=self.max_memory) as model:
            results = call_with(model, _own(arguments))
        _track(source, arguments.entry)
        gathered = gather(source.module, self.weights, source.folder, source.arrays)
        with source.quoting():
            bound = bind(source, arguments, gathered)
        assert report.lowered is not None
        captured = _capture(artifact, report.lowered, bound, arguments, results, self.threads)
        with np.errstate(all="ignore"), source.quoting():
            _complete(source, bound, captured, watch)
        watch.add_results(results.named, "machine code")
        watch.check_found()
        notes = (*source.warn(), *report.notes, *watch.remarks)
        return results, (*notes, *([] if self._is_same(artifact) else [NEW_CODE]))

    def _is_same(self, artifact: Artifact) -> bool:
        code = "code/cpu"
        return self.code is None or self.code.section(code) == artifact.section(code)


NEW_CODE = "warning: the values are of machine code made anew, which is not that of the file"


def _seen(_: str, __: object) -> None:
    """With an observer nothing is recalled from the cache, so that the module at loop level is there."""


def _opened(model: SourceModel) -> SourceModel:
    with model.quoting():
        settle_interfaces(model.module)
    return model


def _track(model: SourceModel, entry: str) -> set[str]:
    """Track all values of an entry point, derivatives included; returns the names that no user knows."""
    Manager(model.context).run(model.module, (autodiff,))
    function = find_entry(model.module, entry)
    assert isinstance(function, func.Func)
    renamed = renamed_values(function, model.texts.values())
    return track_all(model.context.values, function, renamed)


def _check_runs_on_processor(artifact: Artifact) -> None:
    if any(target.gpu is not None for target in artifact.manifest.targets):
        raise Unsupported(
            "inner values of code that runs on a GPU cannot be seen",
            code="D0729",
            help="leave --target and --device out, or --interpret evaluates the model",
        )


def _own(arguments: Arguments) -> Arguments:
    """Arguments that a call may change."""
    return replace(arguments, named={name: _copy(v) for name, v in arguments.named.items()})


def _copy(value: object) -> object:
    match value:
        case Tensor():
            return Tensor.from_bits(value.bits.copy(), value.dtype)
        case np.ndarray():
            return value.copy()
        case _:
            return value


# Machine code.


def _capture(
    artifact: Artifact,
    lowered: SourceModel,
    bound: Bound,
    arguments: Arguments,
    results: Results,
    threads: int | None,
) -> Captured:
    """The values in memory during a call with probes, which must give the same results."""
    program = find_entry(lowered.module, arguments.entry)
    assert isinstance(program, mem.Program)
    probes = place_probes(program, lowered.context.values)
    found: list[list[Array]] = [[] for _ in probes]
    listener = Listener([probe.probed for probe in probes], lambda k, array: found[k].append(array))
    probed = with_probes(artifact, lowered.module, arguments.entry)
    loaded = load_code(probed, untrusted=False)
    assert isinstance(loaded.machine, Processor)
    listener.connect(loaded.programs[arguments.entry], loaded.machine.code_base)
    with Model(probed, threads=threads, _shared=loaded) as model:
        again = call_with(model, _own(arguments))
    if listener.failures:
        raise listener.failures[0]
    _check_same(results, again)
    at = Evaluation(bound.dims, bound.weights)
    return Captured(
        {
            origin.name: [_recovered(origin, array, at) for array in arrays]
            for probe, arrays in zip(probes, found, strict=True)
            for origin in probe.origins
            if arrays and _is_recoverable(origin, probe, at)
        }
    )


def _is_recoverable(origin: Origin, probe: Probe, at: Evaluation) -> bool:
    """Whether a value can be had from memory: not a 16-bit one that is kept wider, or a measured one."""
    sizes = set[str]().union(*map(names, origin.type.shape))
    return origin.type.dtype.name == probe.probed.dtype and sizes <= at.dims.keys()


def _recovered(origin: Origin, array: Array, at: Evaluation) -> Array:
    return np.ascontiguousarray(origin.recover(array, at)).reshape(at.shape(origin.type.shape))


def _check_same(results: Results, again: Results) -> None:
    """Raises InternalError where probes have changed a result."""
    for (output, one), (_, other) in zip(results.values, again.values, strict=True):
        if one.bits.tobytes() != other.bits.tobytes():
            raise InternalError(f"{output.name or results.entry} has other bits where it is probed")


# What machine code does not hold.


def _complete(source: SourceModel, bound: Bound, captured: Captured, watch: Watch) -> None:
    """Observe all values: those captured, and the others from them."""
    assert isinstance(bound.function, func.Func)
    values = source.context.values
    while True:
        known = _Known(captured, values)
        watch.forget()
        evaluate_observed(source, bound, watch, known.results_of)
        wrong = known.misaligned()
        if not wrong:
            break
        captured.left |= wrong
    exact = exact_values(bound.function.body, lambda op: bool(captured.names_of(op, values)))
    watch.sources = {
        name: "machine code" if origin.value in exact else "recomputed"
        for name, origin in values.of(bound.function.sym_name).items()
    }


@dataclass(slots=True)
class _Known:
    """The captured results of operations, in the order in which the evaluation comes by."""

    captured: Captured
    values: ValueMap
    times: Counter[str] = field(default_factory=Counter[str])
    _names: dict[Op, list[str] | None] = field(default_factory=dict[Op, "list[str] | None"])

    def results_of(self, op: Op) -> tuple[Array, ...] | None:
        """The results of an operation this time; None if they are to be evaluated."""
        if op not in self._names:
            self._names[op] = self.captured.names_of(op, self.values)
        names = self._names[op]
        return None if names is None else tuple([self._next(name) for name in names])

    def _next(self, name: str) -> Array:
        arrays, number = self.captured.arrays[name], self.times[name]
        self.times[name] += 1
        return arrays[min(number, len(arrays) - 1)]

    def misaligned(self) -> set[str]:
        """The names that came by another number of times. What is captured once is the same each time."""
        counts = {name: len(self.captured.arrays[name]) for name in self.times}
        return {name for name, times in self.times.items() if counts[name] not in (1, times)}
