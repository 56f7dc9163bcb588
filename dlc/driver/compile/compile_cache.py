"""The compile cache: compiling the same graph again reuses the artifact that was made before.

Everything in an artifact but the numbers of its weights follows from the graph as it was read, the texts
that its messages point into, the user's choices, the processor and the compiler. So the artifact without
those numbers is kept under the hash of these.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from uuid import uuid4

from dlc import version
from dlc.codegen.kernels import Processor, facts_of
from dlc.codegen.llvm import target_machine
from dlc.codegen.llvm.begun import ObjectCache
from dlc.dialects.builtin import Module
from dlc.driver.compile.code_maker import blas_in_use
from dlc.driver.source.weight_sources import Weights
from dlc.errors import ArtifactError
from dlc.runtime.artifact import manifest
from dlc.runtime.artifact.contents import Artifact
from dlc.text.ir.printer import print_module

WEIGHTS = "weights"
"""The section that is left out."""


def key_of(
    module: Module, facts: Iterable[str], texts: Mapping[str, str], processor: Processor
) -> str:
    """The hash of all that an artifact follows from: the module as it was read, first of all."""
    digest = hashlib.sha256(_compiler())
    for part in (
        *facts_of(processor),
        *(part for item in texts.items() for part in item),
        *(print_module(module), *facts, *_elsewhere(module)),
    ):
        digest.update(f"{len(part)} {part}".encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """A cached artifact: everything but the numbers of the weights of these names."""

    bare: Artifact
    names: frozenset[str]

    def complete(self, weights: Weights, training: manifest.Training | None) -> Artifact:
        """The artifact with its weights, and what is to be known about training them."""
        sections = dict(self.bare.sections)
        if len(weights.data):
            sections[WEIGHTS] = weights.data
        facts = self.bare.manifest._replace(weights=weights.table, training=training)
        return Artifact.of(facts, sections)


def remember(cache: ObjectCache, key: str, artifact: Artifact) -> None:
    """Keep an artifact without its weights but for their names: a line, then a file."""
    sections = {name: data for name, data in artifact.sections.items() if name != WEIGHTS}
    facts = artifact.manifest._replace(weights=(), training=None)
    bare = replace(artifact, manifest=facts, sections=sections)
    names = json.dumps([row.name for row in artifact.manifest.weights])
    cache.put(key, names.encode() + b"\n" + bare.to_bytes())


def recall(cache: ObjectCache, key: str) -> Kept | None:
    """The entry of a key, or None.

    An artifact whose code calls another BLAS than there is now says so in its manifest, and counts as
    none.
    """
    data = cache.get(key)
    if data is None:
        return None
    names, _, file = data.partition(b"\n")
    try:
        bare = Artifact.from_bytes(file)
    except ArtifactError:  # of another version of the format: as good as none
        return None
    libraries = [target.cpu.library for target in bare.manifest.targets if target.cpu is not None]
    if any(library not in (None, blas_in_use()) for library in libraries):
        return None
    return Kept(bare, frozenset(json.loads(names)))


def _elsewhere(module: Module) -> list[str]:
    """The files, as they are, of operations that are not part of this compiler.

    One that was defined in a notebook or on a command line has no file: nothing says whether it is the
    same as before, so what stands for it is the same never again.
    """
    homes = {sys.modules[type(op).__module__] for op in module.walk()}
    found = {getattr(home, "__file__", None) for home in homes}
    own = str(Path(version.__file__).parent)
    files = [Path(name) for name in found if name is not None and not name.startswith(own)]
    unknown = [uuid4().hex] if None in found else []
    return [*unknown, *(_as_it_is(path, path) for path in sorted(files))]


@cache
def _compiler() -> bytes:
    """The fingerprint of this compiler: its version, its source files, and LLVM's version."""
    digest = hashlib.sha256(f"{version.VERSION} {target_machine.version()}".encode())
    for line in _files(Path(version.__file__).parent):
        digest.update(line.encode())
    return digest.digest()


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        yield _as_it_is(path, path.relative_to(folder))


def _as_it_is(path: Path, name: Path) -> str:
    """A line that changes when the file does."""
    found = path.stat()
    return f"{name} {found.st_size} {found.st_mtime_ns}\n"
