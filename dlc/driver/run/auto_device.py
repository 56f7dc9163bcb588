"""`--target auto`: which submodules run on the GPU, by what they would take there and what would be sent.

The model is brought to kernels once with every submodule of its root on a device of its own, so the
transfers between these are what a cut between two submodules would send. Each kernel has an estimate for
either kind of device (`dlc.target.estimates`), each transfer one too. Which submodules
go to the GPU so that the sum is least is then a smallest cut of that graph, which is found exactly.
Two more ways are compared with it: all on the processor, and all, the root with it, on the GPU. Nothing is
timed, so the choice depends on the model, its sizes, and the machine as `Machine` describes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from dlc.dialects import flow, func, kernel
from dlc.dialects.builtin import Module
from dlc.dialects.comm import HOST, Send, is_gpu
from dlc.driver.compile.compile import lower
from dlc.driver.compile.host_target import newest_here
from dlc.driver.compile.job import with_costs
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import OWN
from dlc.driver.source.source_model import SourceModel
from dlc.ir.core import Block
from dlc.ir.dims import evaluate
from dlc.ir.log import Decision
from dlc.ir.min_cut import Cut, smallest_cut
from dlc.ir.types import TensorType
from dlc.passes.graph.device_placement import devices_of
from dlc.runtime.cpu.threads import default_threads
from dlc.runtime.cuda.devices import driver_of
from dlc.runtime.system.device_names import CPU
from dlc.target.cpu import CpuTarget
from dlc.target.estimates import gpu_picoseconds, picoseconds, transfer_picoseconds
from dlc.target.gpu import GpuTarget
from dlc.text.model import ast
from dlc.text.model.parser import parse
from dlc.text.model.tree import walk
from dlc.text.source import Source

PASS = "auto_target"
"""Its name in the decision log."""
FIRST = 1000
"""The number of the device that stands for the first submodule while estimates are made."""
MOST = 500
"""Submodules that are looked at, in order of the text; the others stay with the processor."""
UNBOUNDED = 256
"""The value assumed for a size without an upper bound, unless its lower bound is larger."""


class Machine(NamedTuple):
    """The machine that runs the model: CPU threads, and the kind of the GPU if there is one."""

    threads: int
    gpu: str | None


@dataclass(slots=True)
class Part:
    """The estimated time of a submodule on either kind of device, in picoseconds."""

    cpu: int = 0
    gpu: int = 0
    place: str = "-"
    """Its location in the text."""


@dataclass(slots=True)
class Estimate:
    """A model in parts: submodules by path, and what lies on the devices that the text itself names."""

    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    sent: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """Picoseconds of the transfers between two parts, if they are on different kinds of devices."""
    called: int = 0
    """The same of the arrays of the callers, were all of it on the GPU."""


def automatic(
    request: CompileRequest, machine: Machine | None = None, *, trains: bool = False
) -> CompileRequest:
    """A compilation with `auto` as its target, decided for a machine, this one where none is given.

    `auto:NAME` decides as if there were a GPU of that kind; other targets stay as they are. It is decided
    by a step of training where it `trains`. What is chosen goes into the decision log.
    """
    if not request.is_undecided:
        return request
    if machine is None:
        machine = machine_here(request.settings.target.partition(":")[2], request.device)
    on_cpu = replace(request, settings=replace(request.settings, target="cpu"))
    if machine.gpu is None:
        why = "there is no GPU here"
        return replace(on_cpu, decided=(_decision("refused", why, "the model", "-"),))
    parameters = {name: value for name, value in request.parameters.items() if name not in OWN}
    trained = replace(
        on_cpu, parameters=parameters, to_train=trains and request.path.endswith(".dlm")
    )
    estimate = estimated(trained if trains else on_cpu, machine)
    return _chosen(on_cpu, estimate, machine.gpu)


def machine_here(architecture: str = "", device: str | None = None) -> Machine:
    """This machine with one of its GPUs; with one of that architecture where one is named.

    Raises UsageError (D0920) for no architecture, Unsupported (D0702) for a GPU that is not there.
    """
    if architecture:
        return Machine(default_threads(), GpuTarget.named(architecture).name)
    if device is not None and device != CPU:
        driver_of(device)
    return Machine(default_threads(), newest_here(device))


# What each part takes --------------------------------------------------------------------------------


def estimated(request: CompileRequest, machine: Machine) -> Estimate:
    """The parts of a model with their estimated times on a machine with a GPU."""
    assert machine.gpu is not None
    model = request.open()
    uses = _uses(model)
    placed_paths = {*request.places, *[name for name, use in uses.items() if use.placed]}
    paths = [path for path in submodules(model) if path in uses and path not in placed_paths][:MOST]
    devices = {path: f"cpu:{FIRST + number}" for number, path in enumerate(paths)}
    if devices:
        model = replace(request, places={**request.places, **devices}).open()
    sizes = _sizes(model)
    if model.stage == "graph":
        lower(model, request.settings, "kernel")
    names = {device: path for path, device in devices.items()}
    estimate = Estimate({path: Part(place=uses[path].place) for path in paths})
    cpu = with_costs(request.settings).processor
    assert isinstance(cpu, CpuTarget)
    for function in [op for op in model.module.body if isinstance(op, func.Func)]:
        if function.sym_visibility != "private":
            _Counted(estimate, function, names, sizes, machine, cpu).count()
    return estimate


class _Use(NamedTuple):
    """The first `use` of a submodule in a text, and whether it names a device."""

    place: str
    placed: bool


def _uses(model: SourceModel) -> dict[str, _Use]:
    """The submodules in the texts that a model was read from, by name."""
    uses: dict[str, _Use] = {}
    for name, text in model.texts.items() if model.name.endswith(".dlm") else ():
        source = Source(name, text)
        for node in walk(parse(source).file):
            if isinstance(node, ast.Use) and node.name not in uses:
                place = str(source.place(node.span))
                uses[node.name] = _Use(place, node.device is not None)
    return uses


def submodules(model: SourceModel) -> list[str]:
    """The submodules of the root, by path, in order of the text."""
    return list(dict.fromkeys([row.path.split(".")[0] for row in model.layers if row.path]))


def _sizes(model: SourceModel) -> dict[str, int]:
    """The sizes at which estimates are made: upper bounds."""
    sizes: dict[str, int] = {}
    assert isinstance(model.module, Module)
    for function in [op for op in model.module.body if isinstance(op, func.Func)]:
        for name, (low, high) in function.bounds.items():
            sizes[name] = max(low, UNBOUNDED) if high is None else high
    return sizes


class _Counted:
    """Adds the estimated time of a function to an estimate."""

    def __init__(
        self,
        estimate: Estimate,
        function: func.Func,
        names: Mapping[str, str],
        sizes: Mapping[str, int],
        machine: Machine,
        cpu: CpuTarget,
    ) -> None:
        self._estimate = estimate
        self._function = function
        self._names = names
        self._devices = devices_of(function)
        self._sizes = sizes
        assert machine.gpu is not None
        self._threads = machine.threads
        self._cpu, self._gpu = cpu, GpuTarget.named(machine.gpu)

    def count(self) -> None:
        """Visit its kernels and transfers."""
        for op, rounds in _kernels(self._function.body, 1, self._sizes):
            if isinstance(op, Send):
                self._send(op, rounds)
            else:
                self._kernel(op, rounds)
        updated = {*self._function.updates.values()}
        for number, argument in enumerate(self._function.body.arguments):
            if number not in updated:
                self._estimate.called += self._transfer(argument.type)
        for number, value in enumerate(self._function.results_returned):
            if number not in self._function.updates:
                self._estimate.called += self._transfer(value.type)

    def _name(self, device: str) -> str:
        """The part that is on a device: a submodule by its path, else the device itself."""
        return self._names.get(device, device)

    def _kernel(self, op: kernel.Kernel, rounds: int) -> None:
        device = next((self._devices[v] for v in op.results if v in self._devices), HOST)
        part = self._estimate.parts.setdefault(self._name(device), Part())
        alone = picoseconds(op, self._sizes, self._cpu.costs)
        part.cpu += rounds * alone // self._threads
        part.gpu += rounds * gpu_picoseconds(op, self._sizes, self._gpu)

    def _send(self, op: Send, rounds: int) -> None:
        one, other = sorted([self._name(op.source), self._name(op.target)])
        time = rounds * self._transfer(op.inputs[0].type)
        self._estimate.sent[one, other] = self._estimate.sent.get((one, other), 0) + time

    def _transfer(self, type: object) -> int:
        return transfer_picoseconds(self._bytes(type), self._gpu.costs)

    def _bytes(self, type: object) -> int:
        assert isinstance(type, TensorType)
        return evaluate(type.size, self._sizes) * type.dtype.bytes


def _kernels(
    block: Block, rounds: int, sizes: Mapping[str, int]
) -> Iterator[tuple[kernel.Kernel, int]]:
    """The kernels of a block and of the loops in it, each with how often it runs; a `while` counts once."""
    for op in block:
        match op:
            case kernel.Kernel():
                yield op, rounds
            case flow.Scan(length=length):
                yield from _kernels(op.body, rounds * evaluate(length, sizes), sizes)
            case flow.While() | flow.If():
                for region in op.regions:
                    yield from _kernels(region, rounds, sizes)
            case _:
                pass


# What is chosen --------------------------------------------------------------------------------------


def _chosen(request: CompileRequest, estimate: Estimate, architecture: str) -> CompileRequest:
    """The fastest compilation by the estimate."""
    on_gpu, cut_time = _best_cut(estimate)
    gpu_time = sum(part.gpu for part in estimate.parts.values()) + estimate.called
    figures = {"all_on_cpu_us": _us(sum(part.cpu for part in estimate.parts.values()))}
    figures |= {"all_on_gpu_us": _us(gpu_time), "best_cut_us": _us(cut_time)}
    decided: list[Decision] = []
    elsewhere = any(name.startswith("cpu:") and name != HOST for name in estimate.parts)
    if gpu_time < cut_time and not elsewhere:
        settings = replace(request.settings, target=f"cuda:{architecture}", costs=None)
        decided.append(
            _decision("did", f"run all of it on {architecture}", "the model", "-", figures)
        )
        return replace(request, settings=settings, decided=tuple(decided))
    what = f"run a part on {architecture}" if on_gpu else "run all of it on the processor"
    decided.append(_decision("did", what, "the model", "-", figures))
    for name, part in estimate.parts.items():
        if name != HOST and not name.startswith(("cpu:", "cuda:")):
            decided.append(_about(name, part, estimate, name in on_gpu))
    if not on_gpu and not any(map(is_gpu, estimate.parts)):
        return replace(request, decided=tuple(decided), device=None)
    places = {**request.places, **dict.fromkeys(sorted(on_gpu), "cuda:0")}
    settings = replace(request.settings, target=f"cpu+cuda:{architecture}")
    return replace(request, settings=settings, places=places, decided=tuple(decided))


def _best_cut(estimate: Estimate) -> tuple[set[str], int]:
    """The submodules that are best on the GPU, by a minimum cut, and the estimated time of the model."""
    graph = Cut[str]()
    endless = (
        1
        + sum(part.cpu + part.gpu for part in estimate.parts.values())
        + sum(estimate.sent.values())
    )
    for name, part in estimate.parts.items():
        graph.apart(name, first=part.cpu, second=part.gpu)
        if name.startswith("cpu:"):
            graph.apart(name, first=0, second=endless)
        elif is_gpu(name):
            graph.apart(name, first=endless, second=0)
    for (one, other), time in estimate.sent.items():
        graph.together(one, other, time)
    graph.apart(HOST, first=0, second=endless)
    second, cost = smallest_cut(graph)
    return {name for name in second if not is_gpu(name)}, cost


def _about(name: str, part: Part, estimate: Estimate, on_gpu: bool) -> Decision:
    """The decision about a submodule, in words."""
    sent = sum(time for pair, time in estimate.sent.items() if name in pair)
    figures = {"cpu_us": _us(part.cpu), "gpu_us": _us(part.gpu), "transfers_us": _us(sent)}
    if on_gpu:
        return _decision("did", "run on cuda:0", name, part.place, figures)
    why = (
        "the GPU takes longer"
        if part.gpu >= part.cpu
        else "the transfers cost more than the GPU saves"
    )
    return _decision("refused", why, name, part.place, figures)


def _decision(
    kind: Literal["did", "refused"],
    what: str,
    subject: str,
    place: str,
    figures: Mapping[str, float] | None = None,
) -> Decision:
    return Decision(PASS, kind, what, subject, place, dict(figures or {}))


def _us(time: int) -> float:
    return round(time / 1e6, 1)
