"""Machines that a model runs on: this processor, a GPU, or both; and which code of an artifact fits.

What only a GPU needs is brought in with the first model that has code for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Manifest, Target
from dlc.runtime.artifact.refusal import ErrorContext
from dlc.runtime.calling.frames import CallFrame, Frame, FrameSource
from dlc.runtime.calling.shared_entry import PROCESSORS, EntryPointKinds
from dlc.runtime.calling.sized_program import CompiledProgram
from dlc.runtime.cpu.native import Native, check_interface, load_native, misfit
from dlc.runtime.cuda import devices
from dlc.runtime.ranks.links import Links
from dlc.runtime.ranks.on_gpus import collectives_on_gpus
from dlc.runtime.system.buffers import Bytes, aligned_array
from dlc.runtime.system.device_names import CPU, FIRST_GPU
from dlc.runtime.weights.model_weights import Preparation, WeightRoots, WeightStore

if TYPE_CHECKING:
    from dlc.runtime.cuda.driver import Driver
    from dlc.runtime.gpu.machine import GpuMachine
    from dlc.runtime.hetero.machine import HeteroMachine


class Machine(FrameSource, Protocol):
    """What a model runs on, with the model's code there."""

    @property
    def entry_points(self) -> EntryPointKinds:
        """What the entry points of such a model are."""
        ...

    @property
    def device(self) -> str:
        """`cpu`, `cuda:1`, or `cpu+cuda:1` where a part of it is on that GPU."""
        ...

    @property
    def gpu_alone(self) -> Driver | None:
        """The GPU that all of it runs on, None where a processor has a part."""
        ...

    def threads(self, allowed: int) -> int:
        """How many threads of this machine's processor a call works on."""
        ...

    def preparing_frame(self, program: Bytes, threads: int, weights: WeightRoots) -> CallFrame:
        """What running `prepare` once needs; see `frame`."""
        ...

    def weights(
        self, sources: Bytes, prepared: Bytes | None, preparation: Preparation | None
    ) -> WeightStore:
        """The weights where the code reads them."""
        ...


class Processor:
    """This machine's processor, as the machine that a model runs on."""

    entry_points = PROCESSORS
    device = CPU
    gpu_alone = None
    new_array = staticmethod(aligned_array)

    def __init__(self, native: Native) -> None:
        self._native = native

    @property
    def code_base(self) -> int:
        """Where the kernels are mapped."""
        return self._native.code.base

    def threads(self, allowed: int) -> int:
        return allowed

    def frame(
        self,
        program: Bytes,
        threads: int,
        weights: WeightRoots,
        inputs: int = 0,
        outputs: int = 0,
    ) -> Frame:
        return Frame(self._native, program, threads, weights, inputs + outputs)

    def preparing_frame(self, program: Bytes, threads: int, weights: WeightRoots) -> Frame:
        return self.frame(program, threads, weights)

    def weights(
        self, sources: Bytes, prepared: Bytes | None, preparation: Preparation | None
    ) -> WeightStore:
        return WeightStore(sources, prepared, preparation)


def choose_target(manifest: Manifest, context: ErrorContext, device: str | None) -> Target:
    """The first target that runs on this machine, on a device where one is named.

    Raises ArtifactError (D0608) that says what each lacks.
    """
    reasons: list[str] = []
    for target in manifest.targets:
        reason = _lacking(target, device)
        if reason is None:
            check_interface(target, context)
            return target
        reasons.append(f"{target.name} {reason}")
    message = "; ".join(reasons) or "it has no code at all"
    other = "" if device is None else "name another device; or "
    raise context.error(
        "D0608",
        message,
        section="manifest",
        help=f"{other}compile it for this machine, or for a target that it has",
    )


def _lacking(target: Target, device: str | None) -> str | None:
    """Why a target does not run here, or not on the device that is named; None if it does."""
    if device is not None and (device == CPU) != (target.gpu is None):
        return f"does not run on {device}" + (" alone" if target.cpu and target.gpu else "")
    reason = misfit(target.cpu) if target.cpu is not None else None
    if reason is None and target.gpu is not None:
        reason = devices.lacking(target.gpu.architecture, device or FIRST_GPU)
    return reason


def load_machine(
    artifact: Artifact,
    target: Target,
    programs: Sequence[CompiledProgram],
    device: str | None,
    links: Links | None = None,
) -> Machine:
    """Load a target's code, for all of its programs; `device` names the GPU, else it is the first.

    `links` are the ranks that it runs among. Raises ArtifactError.
    """
    collective = None if links is None else links.word
    native = None if target.cpu is None else load_native(artifact, target.cpu, collective)
    if target.gpu is None:
        assert native is not None
        return Processor(native)
    driver = devices.driver_of(device or FIRST_GPU)
    ranks = None
    if links is not None and target.gpu.collectives:
        ranks = collectives_on_gpus(links, artifact.manifest.mesh, driver)
    gpu = _gpu_machine()(artifact, target.gpu, driver, ranks)
    if native is None:
        return gpu
    tables = [(each.program, each.words) for each in programs]
    return _hetero_machine()(native, gpu, tables, artifact.manifest.weights)


def _gpu_machine() -> type[GpuMachine]:
    from dlc.runtime.gpu.machine import GpuMachine

    return GpuMachine


def _hetero_machine() -> type[HeteroMachine]:
    from dlc.runtime.hetero.machine import HeteroMachine

    return HeteroMachine
