"""The code of an artifact with its programs: what models that differ in weights only share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dlc.runtime.artifact import Artifact
from dlc.runtime.buffers import Bytes, address, aligned_bytes, as_bytes
from dlc.runtime.compiled import CompiledProgram
from dlc.runtime.frames import Frame
from dlc.runtime.manifest import Target
from dlc.runtime.native import Native, choose_target, load_native
from dlc.runtime.status import call_error
from dlc.runtime.weights import WeightStore


class Loaded(NamedTuple):
    """One target of an artifact, checked; `native` is None if its code must not run."""

    target: Target
    native: Native | None
    programs: Mapping[str, CompiledProgram]
    prepare: CompiledProgram | None

    def weight_store(self, artifact: Artifact, sources: Bytes, threads: int) -> WeightStore | None:
        """The weights for root SOURCES and WEIGHTS; None if the code must not run."""
        native, program, prepare = self.native, self.prepare, self.target.prepare
        if native is None:
            return None
        if program is None or prepare is None:
            return WeightStore(sources, None)
        if prepare.cached in artifact.sections:
            return WeightStore(sources, None, as_bytes(artifact.section(prepare.cached)))

        def run(sources: Bytes) -> Bytes:
            return _prepared(native, program, sources, prepare.bytes, threads, artifact.texts)

        return WeightStore(sources, run)


def load_code(artifact: Artifact, untrusted: bool) -> Loaded:
    """Choose the target for this machine, check its programs, and load its code.

    With `untrusted` the first target is checked and none is loaded. Raises ArtifactError.
    """
    manifest = artifact.manifest
    if untrusted and manifest.targets:
        target = manifest.targets[0]
    else:
        target = choose_target(manifest, artifact.where)
    programs = {
        entry.name: CompiledProgram(
            artifact, target, target.programs[entry.name], len(entry.inputs) + len(entry.outputs)
        )
        for entry in manifest.entries
    }
    prepare = None
    if target.prepare is not None:
        prepare = CompiledProgram(artifact, target, target.prepare.program, 0)
        prepare.at({}, ())
    native = None if untrusted else load_native(artifact, target)
    return Loaded(target, native, programs, prepare)


def _prepared(
    native: Native,
    program: CompiledProgram,
    sources: Bytes,
    length: int,
    threads: int,
    texts: Callable[[], Mapping[str, str]],
) -> Bytes:
    """Run `prepare`. Raises CallError if it fails."""
    block = aligned_bytes(length)
    frame = Frame(native, program.words, threads, (address(block), address(sources)), 0)
    if frame.run(program.at({}, ())):
        what = "computing from the weights alone"
        raise call_error(what, frame.status_words(), program.program.ops, texts)
    return block
