"""Profiling an entry point, or a step of training, of a model that is compiled first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dlc.driver.compile.compile import Report
from dlc.driver.run.calls import Arguments, CallRequest
from dlc.driver.run.request import CompileRequest, prepare_call
from dlc.driver.run.train import plan_training
from dlc.errors import UsageError
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.decisions import SECTION, read_decisions
from dlc.runtime.artifact.manifest import STEP
from dlc.runtime.cpu.threads import check_threads
from dlc.runtime.model import Model
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.ranks.agreement import made_once
from dlc.runtime.ranks.links import ranks_of
from dlc.runtime.system.device_names import CPU
from dlc.runtime.training.trainer import Trainer

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """What to profile. `train`: a step of training instead of an entry point."""

    request: CompileRequest
    call: CallRequest
    threads: int | None = None
    rounds: int | None = None
    train: bool = False


def profile_model(asked: ProfileRequest, comm: object = None) -> Profile:
    """Compile a model, or open an artifact, and measure calls of an entry point.

    `comm` is the communicator of the ranks that share the calls: each measures its own part.

    What a step of training takes lies on the GPU that it runs on, as a trainer has it. Raises UsageError
    as `dlc run` does for inputs.
    """
    check_threads(asked.threads)
    call, request = asked.call, asked.request.to_run_here()
    if asked.train:
        if call.entry not in (None, STEP):
            raise UsageError(
                f"--train profiles a step of training, and --entry names {call.entry}",
                code="D0903",
                help="leave one of them out",
            )
        call, request = replace(call, entry=STEP), replace(request, to_train=True)
        if comm is not None:
            return _step_of_ranks(asked, request, call, comm)
    artifact, arguments = _prepared(request, call, comm)
    with Model(artifact, threads=asked.threads, device=request.device, comm=comm) as model:
        if request.is_compiled and request.weights is not None:
            model = model.with_weights(request.weights)
        point = model.entry_points[arguments.entry]
        named = arguments.named
        if asked.train and model.device != CPU:
            named = {name: _moved(value, model.device) for name, value in named.items()}
        found = point.profile(rounds=asked.rounds, **named)
    return replace(found, decisions=_decisions(artifact))


def _step_of_ranks(
    asked: ProfileRequest, request: CompileRequest, call: CallRequest, comm: object
) -> Profile:
    """The profile of a rank's part of a step, with a random batch."""
    planned = plan_training(request)
    ranks = ranks_of(comm)
    artifact = made_once(comm, lambda: planned.artifact(Report(), ranks))
    given = request.arguments_for(request.open(), call).named
    trainer = Trainer(artifact, threads=asked.threads, device=request.device, comm=comm)
    trainer.total_steps = 1
    batch = {name: given[name] for name in trainer.facts.inputs}
    return replace(trainer.profile(rounds=asked.rounds, **batch), decisions=_decisions(artifact))


def _prepared(
    request: CompileRequest, call: CallRequest, comm: object
) -> tuple[Artifact, Arguments]:
    """The artifact and the arguments of a call of it; the first of several ranks compiles."""
    if comm is None:
        return prepare_call(request, call)
    request = replace(request, ranks=ranks_of(comm))
    artifact = made_once(comm, lambda: prepare_call(request, call)[0])
    if request.is_compiled:
        return artifact, call.arguments(artifact.manifest.called)
    return artifact, request.arguments_for(request.open(), call)


def _moved(value: object, device: str) -> object:
    """An array on a device; what is none stays as it is."""
    if isinstance(value, np.ndarray):
        value = Tensor(cast(Array, value))
    return value.to(device) if isinstance(value, Tensor) else value


def _decisions(artifact: Artifact) -> dict[str, tuple[str, ...]]:
    """What the passes did, by `file:line`, without repetitions."""
    if SECTION not in artifact.sections:
        return {}
    found: dict[str, dict[str, None]] = {}
    for each in read_decisions(bytes(artifact.section(SECTION))).decisions:
        figures = f" ({', '.join(each.figures)})" if each.figures else ""
        mark = "" if each.kind == "did" else "not: "
        text = f"{each.by}: {mark}{each.what}{figures}"
        found.setdefault(each.place.rpartition(":")[0], {})[text] = None
    return {line: tuple(texts) for line, texts in found.items()}
