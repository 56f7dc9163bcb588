"""The programs of ranks at loop level: lowered as far as their kernels, without machine code.

Where the ranks divide nothing but a batch of a named size, a few ranks have the program of a few more:
what differs is where values are exchanged, which depends on the bytes of many examples beside those of
weights. Then one is lowered for 2 and 4 ranks, one for 8 to 32, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from dlc.dialects import mem
from dlc.dialects.builtin import Module
from dlc.dialects.interface import bounds_attribute
from dlc.dialects.text_mesh import STAGES, read_text_mesh
from dlc.driver.compile.compile import lower
from dlc.driver.compile.entries import entry_functions, interfaces, keep_entry
from dlc.driver.compile.rank_programs import compile_for_mesh
from dlc.driver.compile.shared_calls import share_calls
from dlc.driver.compile.stage_programs import divide_stages
from dlc.driver.entry_choice import choose
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training, without_own
from dlc.driver.scale.stages import StagedProgram
from dlc.driver.scale.timeline import Conditions, OneProgram, Spent, sent_by
from dlc.driver.source.source_model import SourceModel
from dlc.errors import UsageError
from dlc.errors.suggest import did_you_mean
from dlc.runtime.artifact.manifest import DATA, OF_RANK, STEP, Entry
from dlc.runtime.calling.shared_entry import batch_of
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.training.batch_sizes import first_axes
from dlc.target import cpu_of
from dlc.target.network import HERE, Network


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """What to predict: for up to `ranks` ranks, each with `threads` threads on its own processors.

    `entry` is a function to call in place of a step of training. With `weak` each rank is given the whole
    batch, so that the batch of all grows with their number. `step` is how many seconds a step of the
    fewest ranks takes, where that was measured.
    """

    request: CompileRequest
    ranks: int
    network: Network = HERE
    entry: str | None = None
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    threads: int | None = None
    shard: Shard | None = None
    step: float | None = None
    weak: bool = False


class _Lowered(NamedTuple):
    program: OneProgram | StagedProgram
    barrier: float


class RankPrograms:
    """The programs of a request for each number of ranks.

    Raises UsageError: D0904 for an entry point that does not exist, D0905 for what ranks do not divide,
    D0906 for sizes that are missing, unknown or outside of their bounds, D0936 for fewer ranks than the
    text's mesh has beside `data`.
    """

    def __init__(self, asked: ScaleRequest) -> None:
        self._asked = asked
        self._lowered: dict[int, _Lowered] = {}
        """By the number of parts that they were lowered for."""
        model = self._opened()
        self._facts = model.training
        self.entry = self._entry(model)
        self._batch_name = self._name_of_batch()
        self._mesh = self._read_mesh(model.module)
        self._rest = prod(size for name, size in self._mesh.items() if name != DATA)
        self._sizes = self._read_sizes(model.open_sizes(asked.dims))
        self.numbers, self.end = self._read_numbers()

    def _opened(self) -> SourceModel:
        """The model, as it trains where a step is asked for."""
        request, entry = self._asked.request, self._asked.entry
        if request.text is None and request.path.endswith(".dlc"):
            raise UsageError(
                f"{request.path} is compiled, and what more ranks would run is not in it",
                code="D0905",
                help="ask about the text of the model",
            )
        model = without_own(request).open()
        if not model.can_train or entry not in (None, STEP):
            if self._asked.shard is not None:
                message = "--shard splits what a training keeps, and a call is asked about"
                raise UsageError(message, code="D0901", help="leave it out")
            return model
        source = plan_training(request).source
        assert isinstance(source, SourceModel)
        return source

    def _entry(self, model: SourceModel) -> Entry:
        entries = {entry.name: entry for entry in interfaces(model.module)}
        name = STEP if self._facts is not None else choose(list(entries), self._asked.entry)
        return entries[name]

    def _read_mesh(self, module: Module) -> dict[str, int]:
        """The axes of the ranks that make the call. One of stages goes through these alone."""
        declared = read_text_mesh(module)
        axes = {} if declared is None else dict(declared.axes)
        if self._facts is None and STAGES in axes:
            return {STAGES: axes[STAGES]}
        return axes if self._facts is not None and axes else {DATA: 1}

    # Sizes.

    def _name_of_batch(self) -> str | None:
        """The named size that the ranks divide; None where a training divides a batch of a number."""
        known = {dim.name for dim in self.entry.dims if dim.measured is None}
        if self._facts is not None:
            names = first_axes(self._facts, self.entry)
            return next((name for name in names if name in known), None)
        name = batch_of(self.entry.inputs)
        if name is None or self.entry.inouts:
            raise UsageError(
                f"{self.entry.name} has no batch of a named size that ranks could divide",
                code="D0905",
                help="name the first size of its inputs: x: f32[B, 3]",
            )
        return name

    def _read_sizes(self, chosen: Mapping[str, int]) -> dict[str, int]:
        """The sizes of the whole call, that of the batch first."""
        dims = {dim.name: dim for dim in self.entry.dims if dim.measured is None}
        for name, size in chosen.items():
            if name not in dims:
                listed = f"there are {', '.join(dims)}" if dims else "all its sizes are numbers"
                message = f"{self.entry.name} has no size {name}"
                way_out = did_you_mean(name, list(dims)) or listed
                raise UsageError(message, code="D0906", help=way_out)
            low, high = dims[name].lower, dims[name].upper
            if size < low or (high is not None and size > high):
                bounds = f"{low}..{'' if high is None else high}"
                message = f"--dim {name}={size} is outside of its bounds, {bounds}"
                raise UsageError(message, code="D0906", help="change the bounds in the text")
        usual = {name: dim.upper for name, dim in dims.items()}
        batch = self._batch_name
        if batch is not None and self._facts is not None:
            usual[batch] = self._facts.batch
        sizes: dict[str, int] = {}
        for name in sorted(usual, key=lambda name: name != batch):
            size = chosen.get(name, usual[name])
            if size is None:
                raise UsageError(
                    f"{self.entry.name} has no largest {name}",
                    code="D0906",
                    help=f"say for which the time is wanted: --dim {name}=64",
                )
            sizes[name] = size
        return sizes

    def sizes(self, ranks: int) -> dict[str, int]:
        """The sizes that each of `ranks` ranks has."""
        if self._batch_name is None:
            return self._sizes
        return {**self._sizes, self._batch_name: self._batch(self.parts(ranks))}

    @property
    def _whole(self) -> int:
        """The batch of a call of one rank."""
        if self._batch_name is not None:
            return self._sizes[self._batch_name]
        assert self._facts is not None
        return self._facts.batch

    def _batch(self, parts: int) -> int:
        return self._whole if self._asked.weak else self._whole // parts

    def examples(self, ranks: int) -> int:
        """How many examples of a step or a call each of `ranks` ranks computes."""
        return self.microbatches * self._batch(self.parts(ranks))

    @property
    def microbatches(self) -> int:
        """How many microbatches a step goes through; 1 for a call."""
        return 1 if self._facts is None else self._facts.accumulate

    # Ranks.

    def parts(self, ranks: int) -> int:
        """The number of parts into which `ranks` ranks divide a batch."""
        return ranks // self._rest

    def _read_numbers(self) -> tuple[list[int], str]:
        """The numbers of ranks to predict, and why there are no more; empty if these are all."""
        most, rest, weak = self._asked.ranks, self._rest, self._asked.weak
        if weak and self._batch_name is None:
            message = f"the batch of {self.entry.name} is a number, and cannot grow with the ranks"
            raise UsageError(message, code="D0905", help="leave out --weak, or name the size")
        if most < rest:
            shape = ", ".join(f"{name} = {size}" for name, size in self._mesh.items())
            message = (
                f"the mesh {shape} has {rest} ranks for each part of a batch, and there are {most}"
            )
            raise UsageError(
                message, code="D0936", help=f"write --ranks {rest}, or change the mesh"
            )
        if DATA not in self._mesh:
            return [rest], "" if most == rest else self._why_no_more()
        doubled = [1 << k for k in range((most // rest).bit_length())]
        parts = sorted({*doubled, most // rest} if most % rest == 0 else doubled)
        fitting = [count for count in parts if weak or self._whole % count == 0]
        end = ""
        if fitting != parts:
            end = f"{self._whole} examples have no equal parts for more ranks"
        return [count * rest for count in fitting], end

    def _why_no_more(self) -> str:
        """Why there are no further ranks."""
        if self._facts is None:
            return f"the {self._rest} stages compute a call, and further ranks the same again"
        return f"the mesh has no axis {DATA}, along which ranks are added"

    def time(self, ranks: int, threads: int, factor: float) -> Spent:
        """The predicted time of each rank, whose work takes `factor` times what the tables say."""
        parts = self.parts(ranks)
        program, barrier = self._program(parts)
        axes = {**self._mesh, DATA: parts} if DATA in self._mesh else self._mesh
        conditions = Conditions(
            self.sizes(ranks), axes, self._asked.network, threads, barrier, factor
        )
        return program.time(conditions)

    def _program(self, parts: int) -> _Lowered:
        """The program of one rank where a batch is divided into `parts`."""
        alike = self._batch_name is not None and self._asked.shard is None
        key = 1 << 3 * ((parts.bit_length() - 1) // 3) if alike else parts
        if parts > 1 or self._rest > 1:
            key = max(2, key)
        if key not in self._lowered:
            self._lowered[key] = self._lower(key)
        return self._lowered[key]

    def _lower(self, parts: int) -> _Lowered:
        model, name = self._opened(), self.entry.name
        divides = parts > 1 and DATA in self._mesh
        if self._asked.weak:
            self._widen(model.module, parts)
        if self._facts is not None and (parts > 1 or self._rest > 1):
            mesh = {**self._mesh, DATA: parts} if divides else self._mesh
            split = self._asked.shard if divides else None
            compile_for_mesh(model, self._facts, mesh, split)
        elif STAGES in self._mesh:
            divide_stages(model, self._mesh)
        elif parts > 1:
            share_calls(model.module, {DATA: parts}, model.context)
        name += OF_RANK if divides else ""
        staged = next((each for each in model.staged if each.interface.name == name), None)
        names = [name] if staged is None else [part.entry for part in staged.parts]
        keep_entry(model.module, *names)
        entries = {entry.name: entry for entry in interfaces(model.module)}
        job = lower(model, self._asked.request.settings, "loop")
        # The table has twice the time of a barrier, in picoseconds.
        barrier = cpu_of(job.options).costs.barrier / 2000
        programs = {name: _program_named(model.module, name) for name in names}
        kernels = sent_by(model.module)
        if staged is None:
            return _Lowered(OneProgram(programs[name], kernels), barrier)
        return _Lowered(StagedProgram.of(staged, entries, programs, kernels), barrier)

    def _widen(self, module: Module, parts: int) -> None:
        """Make the batch `parts` times as large as the text says."""
        for function in entry_functions(module):
            bounds, name = function.bounds, self._batch_name
            if name is not None and name in bounds:
                low, high = bounds[name]
                bounds[name] = low, None if high is None else high * parts
                function.attributes["dlc.dims"] = bounds_attribute(bounds)


def _program_named(module: Module, name: str) -> mem.Program:
    return next(op for op in module.body if isinstance(op, mem.Program) and op.sym_name == name)
