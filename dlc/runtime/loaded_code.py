"""The code of an artifact with its programs: what models that differ in weights only share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dlc.errors import UsageError
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Target
from dlc.runtime.calling.sized_program import CompiledProgram
from dlc.runtime.calling.status import call_error
from dlc.runtime.cuda.devices import own_gpu
from dlc.runtime.machines import Machine, choose_target, load_machine
from dlc.runtime.ranks.links import Links, link, ranks_of
from dlc.runtime.system.buffers import Bytes, as_bytes
from dlc.runtime.weights.model_weights import Preparation, WeightRoots, WeightStore


class Loaded(NamedTuple):
    """One target of an artifact, checked; `machine` is None if its code must not run."""

    target: Target
    machine: Machine | None
    programs: Mapping[str, CompiledProgram]
    prepare: CompiledProgram | None
    links: Links | None = None
    """The ranks that it runs among; its functions live as long as the code."""

    def weight_store(self, artifact: Artifact, sources: Bytes, threads: int) -> WeightStore | None:
        """The weights for root SOURCES and WEIGHTS; None if the code must not run."""
        machine, program, prepare = self.machine, self.prepare, self.target.prepare
        if machine is None:
            return None
        if program is None or prepare is None:
            return machine.weights(sources, None, None)
        if prepare.cached in artifact.sections:
            return machine.weights(sources, as_bytes(artifact.section(prepare.cached)), None)

        def run(roots: WeightRoots) -> None:
            _prepare(machine, program, threads, roots, artifact.texts)

        return machine.weights(sources, None, Preparation(prepare.bytes, run))


def load_code(
    artifact: Artifact, untrusted: bool, device: str | None = None, comm: object = None
) -> Loaded:
    """Choose the target for this machine and a device, check its programs, and load its code.

    `comm` is the communicator of the ranks that run a model for a mesh.

    With `untrusted` the first target is checked and none is loaded. Raises ArtifactError.
    """
    manifest = artifact.manifest
    if untrusted and manifest.targets:
        target = manifest.targets[0]
    else:
        target = choose_target(manifest, artifact.error_context, device)
    kernels = frozenset(target.kernels)
    programs = {
        entry.name: CompiledProgram(
            artifact,
            target,
            target.programs[entry.name],
            entry,
            kernels,
        )
        for entry in manifest.entries
    }
    prepare = None
    if target.prepare is not None:
        prepare = CompiledProgram(artifact, target, target.prepare.program, None, kernels)
        prepare.at({}, ())
    tables = [*programs.values(), *([] if prepare is None else [prepare])]
    links = None if untrusted else _links(artifact, comm)
    if links is not None and target.gpu is not None and device is None:
        device = own_gpu(links.place_on_host)
    machine = None if untrusted else load_machine(artifact, target, tables, device, links)
    return Loaded(target, machine, programs, prepare, links)


def _links(artifact: Artifact, comm: object) -> Links | None:
    """What the code imports of the ranks of its mesh. Raises UsageError (D0936) if there are none."""
    mesh = artifact.manifest.mesh
    if comm is not None and (mesh or ranks_of(comm) > 1):
        return link(comm, mesh)
    if not mesh:
        return None
    shape = ", ".join(f"{axis.name}={axis.ranks}" for axis in mesh)
    raise UsageError(
        f"{artifact.name} is for the ranks of a mesh, {shape}",
        code="D0936",
        help="start it with mpiexec, and write dlc.load(path, comm=MPI.COMM_WORLD)",
    )


def _prepare(
    machine: Machine,
    program: CompiledProgram,
    threads: int,
    roots: WeightRoots,
    texts: Callable[[], Mapping[str, str]],
) -> None:
    """Run `prepare` from root SOURCES to root WEIGHTS. Raises CallError if it fails."""
    frame = machine.preparing_frame(program.words, threads, roots)
    if frame.run(program.at({}, ())):
        what = "computing from the weights alone"
        raise call_error(what, frame.status_words(), program.program.ops, texts)
