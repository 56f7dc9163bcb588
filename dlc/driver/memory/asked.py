"""Memory queries: the memory plans of a text with its training, of an artifact, or of any model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from dlc.dialects import weight
from dlc.driver.call_memory.facts import EntryMemory, entry_memory
from dlc.driver.call_memory.needs import Need, need_of
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.entries import interfaces
from dlc.driver.entry_choice import choose
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training, without_own
from dlc.driver.source.source_model import SourceModel
from dlc.errors import UsageError
from dlc.errors.suggest import did_you_mean
from dlc.ir.dims import Shape
from dlc.runtime.artifact import manifest
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import EVALUATE, STEP
from dlc.runtime.calling.specialization import Specializations
from dlc.runtime.loaded_code import Loaded, load_code
from dlc.runtime.system.counts import whole_number
from dlc.runtime.training.batch_sizes import batch_of


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """A memory query: the model, one of its entry points or all, and sizes by name."""

    request: CompileRequest
    entry: str | None = None
    dims: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """An entry point with its plan, of which the numbers depend on sizes.

    `usual` are the sizes that it is looked at where the user names none: the largest, or in training the
    batch of the text. A size without such has none.
    """

    artifact: Artifact
    loaded: Loaded
    entry: manifest.Entry
    usual: Mapping[str, int | None]

    @property
    def batch(self) -> str | None:
        """The size that counts the examples of a step of training, or None."""
        facts = self.artifact.manifest.training
        return None if facts is None else batch_of(facts, self.entry)

    def dims(self, chosen: Mapping[str, int]) -> dict[str, int]:
        """A number for each size: a given one, else the usual one.

        Raises UsageError (D0906) for a size without either.
        """
        sizes = {name: chosen.get(name, usual) for name, usual in self.usual.items()}
        missing = [name for name, size in sizes.items() if size is None]
        if missing:
            raise UsageError(
                f"{self.entry.name} has no largest {' and no largest '.join(missing)}",
                code="D0906",
                help=f"say for which its memory is wanted: --dim {missing[0]}=64",
            )
        return {name: size for name, size in sizes.items() if size is not None}

    def need(self, dims: Mapping[str, int]) -> Need:
        """The memory of a call at these sizes. Raises CallError (D0804) for sizes that it does not take."""
        binding = Specializations(self.entry, self.loaded.programs[self.entry.name]).at_dims(dims)
        return need_of(self.artifact, self.loaded, self.entry, binding)

    def at(self, dims: Mapping[str, int]) -> EntryMemory:
        """Its memory at these sizes. Raises CallError (D0804) for sizes that it does not take."""
        return entry_memory(self.artifact, self.loaded, self.entry, dims)


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """The memory of the entry points of a model; `texts` are the files that places point into."""

    model: str
    entries: tuple[EntryMemory, ...]
    texts: Mapping[str, str]

    def line(self, place: str) -> str:
        """The line of the text at a place `file:line:col`; empty where there is none."""
        file, _, rest = place.partition(":")
        number = whole_number(rest.partition(":")[0]) or 0
        lines = self.texts.get(file, "").splitlines()
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def memory_of(request: MemoryRequest) -> ModelMemory:
    """The memory of what is asked for, at the sizes asked for.

    Raises UsageError: D0904 for an entry point that does not exist, D0906 for sizes that are missing or
    unknown; CallError (D0804) for sizes that are not possible.
    """
    planned = plans_of(request)
    texts: dict[str, str] = {}
    for each in planned:
        texts.update(each.artifact.texts())
    entries = tuple(each.at(each.dims(request.dims)) for each in planned)
    return ModelMemory(request.request.path, entries, texts)


def plans_of(request: MemoryRequest) -> list[EntryPlan]:
    """The entry points that are asked for, compiled where they are not."""
    plans: list[EntryPlan] = []
    dims = request.dims
    for artifact, model in artifacts_of(request.request, request.entry):
        plans += entry_plans(artifact)
        dims = dims if model is None else model.open_sizes(dims)
    if request.entry is not None:
        name = choose([each.entry.name for each in plans], request.entry)
        plans = [each for each in plans if each.entry.name == name]
    _check_known(dims, plans)
    return plans


def entry_plans(artifact: Artifact) -> list[EntryPlan]:
    """The entry points of an artifact, whose plans are checked."""
    loaded = load_code(artifact, untrusted=True)
    return [
        EntryPlan(artifact, loaded, entry, _usual(artifact.manifest, entry))
        for entry in artifact.manifest.entries
    ]


def artifacts_of(
    request: CompileRequest, entry: str | None
) -> Iterator[tuple[Artifact, SourceModel | None]]:
    """The artifact with the entry points, and that which trains, as far as `entry` needs them.

    Each with the model that it was compiled from, if it was not compiled before.
    """
    if request.is_compiled:
        yield Artifact.read(request.path), None
        return
    for model in models_of(request, entry):
        yield compile_for_plan(model, request), model


def models_of(request: CompileRequest, entry: str | None = None) -> Iterator[SourceModel]:
    """The model with its entry points, and as it trains, as far as `entry` needs them."""
    model = without_own(request).open()
    names = [each.name for each in interfaces(model.module)]
    step = entry in (STEP, EVALUATE) and entry not in names
    if not model.can_train or (names and not step):
        yield model
    if model.can_train and (entry is None or step):
        planned = plan_training(request)
        assert isinstance(planned.source, SourceModel)
        yield planned.source


def compile_for_plan(model: SourceModel, request: CompileRequest) -> Artifact:
    """The artifact of a model, with zeros for weights: the plan does not depend on their numbers."""
    zeros = {
        op.sym_name: np.broadcast_to(np.zeros((), op.type.dtype.numpy), _numbers(op.type.shape))
        for op in model.module.body
        if isinstance(op, weight.Source) and not op.constant
    }
    model.trust_ir = True  # what is compiled to be looked at does not run
    return compile_model(model, request.settings, zeros)


def _numbers(shape: Shape) -> list[int]:
    """The shape of a weight, whose sizes are all numbers."""
    return [size for size in shape if isinstance(size, int)]


def _usual(facts: manifest.Manifest, entry: manifest.Entry) -> dict[str, int | None]:
    sizes = {dim.name: dim.upper for dim in entry.dims if dim.measured is None}
    if facts.training is not None and (batch := batch_of(facts.training, entry)) is not None:
        sizes[batch] = facts.training.batch
    return sizes


def _check_known(dims: Mapping[str, int], planned: list[EntryPlan]) -> None:
    """Refuse a size that no entry point has."""
    names = sorted({name for each in planned for name in each.usual})
    for name in dims:
        if name not in names:
            listed = f"there are {', '.join(names)}" if names else "all its sizes are numbers"
            raise UsageError(
                f"the model has no size {name}",
                code="D0906",
                help=did_you_mean(name, names) or listed,
            )
