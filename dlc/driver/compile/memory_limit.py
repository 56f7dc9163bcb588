"""`limit memory`: a promise about every call of an artifact, proved from its own memory plan.

A call takes its working memory, with the scratch of each thread, its results, and the weights; the arrays
that it is given are the caller's. All of it is taken at the upper bounds of the dims. An artifact that
keeps the promise with few threads only says so, and then runs with no more.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc.driver.call_memory.facts import entry_memory, sizes_text
from dlc.driver.call_memory.needs import Need, need_of
from dlc.driver.call_memory.refuse import refusal
from dlc.errors import CallError, Diagnostic, ModelError, SourceLocation, Unsupported
from dlc.errors.options import option
from dlc.runtime.abi import MAX_THREADS
from dlc.runtime.artifact import manifest
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.calling.specialization import Specialization, Specializations
from dlc.runtime.loaded_code import Loaded, load_code

__all__ = ["check_bounded", "kept_within"]


def check_bounded(entries: Iterable[manifest.Entry], place: SourceLocation | None) -> None:
    """Raises ModelError (D0708) for dims without an upper bound: no number of bytes is enough for them."""
    open_ends = {
        dim.name: entry.name
        for entry in entries
        for dim in entry.dims
        if dim.upper is None and dim.measured is None
    }
    if open_ends:
        name, entry = next(iter(open_ends.items()))
        diagnostic = Diagnostic(
            "D0708",
            f"{entry} has no largest {' and no largest '.join(open_ends)}, so its memory has no limit",
            place,
            help=f"compile with {option('dims', {name: (1, 64)})}, or write dim {name} = 1..64",
        )
        raise ModelError([diagnostic])


def kept_within(artifact: Artifact, most: int, place: SourceLocation | None) -> Artifact:
    """The artifact, which now says that a call needs no more than `most` bytes.

    Raises Unsupported (D0706) for every entry point that needs more, even on one thread, with the
    values that are alive when it needs most.
    """
    loaded = load_code(artifact, untrusted=True)
    needs = _needs(artifact, loaded)
    wrong = [need for need in needs if need.least > most]
    if wrong:
        diagnostics = [_refusal(artifact, loaded, need, most, place) for need in wrong]
        raise Unsupported(diagnostics, sources=artifact.texts())
    threads = min([need.threads_within(most) for need in needs], default=MAX_THREADS)
    promise = manifest.Promise(most, threads)
    return Artifact.of(artifact.manifest._replace(promise=promise), dict(artifact.sections))


def least_memory(artifact: Artifact) -> int:
    """The bytes that a call of the entry point that needs most needs on one thread."""
    needs = _needs(artifact, load_code(artifact, untrusted=True))
    return max([need.least for need in needs], default=0)


def _needs(artifact: Artifact, loaded: Loaded) -> list[Need]:
    return [
        need_of(artifact, loaded, entry, _largest(entry, loaded))
        for entry in artifact.manifest.entries
    ]


def _largest(entry: manifest.Entry, loaded: Loaded) -> Specialization:
    """The entry point at the upper bounds of its dims."""
    found = Specializations(entry, loaded.programs[entry.name]).at_bounds()
    upper = {dim.name: dim.upper for dim in entry.dims if dim.measured is None}
    if not found or found[-1].dims != upper:
        raise CallError(
            f"{entry.name}: its sizes are beyond measure{sizes_text(upper)}",
            code="D0804",
            help="lower the bounds of its dims",
        )
    return found[-1]


def _refusal(
    artifact: Artifact, loaded: Loaded, need: Need, most: int, place: SourceLocation | None
) -> Diagnostic:
    entry = entry_memory(artifact, loaded, need.entry, need.dims)
    dims = [dim.name for dim in need.entry.dims if dim.measured is None]
    first = "use smaller sizes"
    if dims:
        name = dims[0]
        first = (
            f"lower the bounds of {name}, dim {name} = 1..64 or {option('dims', {name: (1, 64)})}"
        )
    enough = f"{-(-need.least >> 10)}KiB"
    return refusal(entry, need.parts, most, place, f"{first}, or raise the limit to {enough}")
