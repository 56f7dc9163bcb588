"""Notes about `inout` parameters that a call does not change in place, but by a copy at its end."""

from __future__ import annotations

from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.decisions import SECTION, read_decisions

REFUSAL = "update in place: "
"""How the planner begins to say why it copies."""


def copied_updates(artifact: Artifact) -> tuple[str, ...]:
    """A note for each `inout` parameter that is copied: the line of its new value, and the reason."""
    inouts = {name for entry in artifact.manifest.entries for name in entry.inouts}
    if not inouts or SECTION not in artifact.sections:
        return ()
    notes: list[str] = []
    for each in read_decisions(bytes(artifact.section(SECTION))).decisions:
        over = next((text for text in each.figures if text.startswith("over ")), "")
        name = over.removeprefix("over ")
        if each.kind == "refused" and each.what.startswith(REFUSAL) and name in inouts:
            why = each.what.removeprefix(REFUSAL)
            notes.append(f"{each.place}: {name} is copied at the end of each call: {why}")
    return tuple(notes)
