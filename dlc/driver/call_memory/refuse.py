"""Why a call does not fit: what it needs, and the values that are alive when it needs most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlc.driver.call_memory.facts import EntryMemory, Root, sizes_text
from dlc.driver.call_memory.needs import WORDS
from dlc.errors import Diagnostic, Label, SourceLocation
from dlc.runtime.artifact.manifest import OF_STAGE, function_of
from dlc.runtime.calling.status import place_of

SHOWN = 5
"""The most values at a peak that a message lists."""


def refusal(
    entry: EntryMemory, parts: Mapping[str, int], most: int, place: SourceLocation | None, help: str
) -> Diagnostic:
    """An entry point that needs more than `most` bytes at these sizes, even on one thread (D0706)."""
    total = sum(parts.values())
    told = ", ".join(f"{size:,} bytes of {WORDS[name]}" for name, size in parts.items() if size)
    return Diagnostic(
        "D0706",
        f"{_call_of(entry.name)} needs {total:,} bytes{sizes_text(entry.dims)} ({told}), "
        f"the limit is {most:,} bytes",
        place,
        tuple(_labels(entry)),
        help=help,
    )


def _call_of(name: str) -> str:
    """What a message says of a call of an entry point, which may be the part of a rank."""
    function = function_of(name)
    if function == name:
        return f"a call of {function}"
    stage = OF_STAGE.search(name)
    whose = "a rank" if stage is None else f"stage {stage[1]}"
    return f"the part of {whose} in {function}"


def _labels(entry: EntryMemory) -> Iterator[Label]:
    """The largest values that are alive at the peak, with their places in the text."""
    for root in entry.at_peak[:SHOWN]:
        where = place_of(root.place)
        if where is not None:
            yield Label(where, f"{root.title} takes {root.bytes:,} bytes{_until(root)}")


def _until(root: Root) -> str:
    last = root.last_reader
    return "" if last is None else f" until {last} has read it"
