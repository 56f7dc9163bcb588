"""Checks of the parts of functions that the stages of a pipeline run: each finds what it takes."""

from __future__ import annotations

from collections.abc import Callable

from dlc.runtime.artifact.manifest import MICROBATCH, STAGE, Entry, Manifest, Staged

MAX_MICROBATCHES = 1 << 20
_ORDER = ("before", "each", "after")

Refuse = Callable[[str], Exception]


def check_stages(manifest: Manifest, refuse_: Refuse) -> None:
    """Raises what `refuse_` makes for a function of stages whose parts do not fit together."""
    entries = {entry.name: entry for entry in manifest.entries}
    weights = {weight.name for weight in manifest.weights}
    ranks = {axis.name: axis.ranks for axis in manifest.mesh}
    names = [staged.interface.name for staged in manifest.staged]
    parts = [part.entry for staged in manifest.staged for part in staged.parts]
    if len({*names, *parts}) < len(names) + len(parts) or entries.keys() & set(names):
        raise refuse_("two of its functions of stages, or of their parts, have one name")
    for staged in manifest.staged:
        name = staged.interface.name[:40]

        def refuse(message: str, name: str = name) -> Exception:
            return refuse_(f"the stages of {name!r}: {message}")

        if ranks.get(STAGE) != staged.stages:
            raise refuse("the mesh has another number of them")
        homes = staged.homes
        if not all(0 <= stage < staged.stages for stage in homes.values()):
            raise refuse("a weight is on none of them")
        if manifest.training is not None and manifest.weights and not homes.keys() <= weights:
            raise refuse("what is not a weight is on one of them")
        if not 1 <= staged.microbatches <= MAX_MICROBATCHES:
            raise refuse("the number of microbatches is out of range")
        _check_parts(staged, entries, refuse)


def _check_parts(staged: Staged, entries: dict[str, Entry], refuse: Refuse) -> None:
    """Each part takes what the function is given or another part gives, at a stage that is there."""
    phases = [_ORDER.index(part.when) for part in staged.parts]
    if phases != sorted(phases) or any(part.entry not in entries for part in staged.parts):
        raise refuse("their parts are not entry points, or not in order")
    if not all(0 <= part.stage < staged.stages for part in staged.parts):
        raise refuse("a part is on none of them")
    given = {item.name: item.shape for item in staged.interface.inputs}
    fixed = {name for name in staged.homes if name in given}
    for name in fixed:
        if not all(size.isdecimal() for size in given[name]):
            raise refuse("the size of a weight is not a number")
    phase_of: dict[str, int] = dict.fromkeys(given, 0)
    dims = {dim.name for dim in staged.interface.dims}
    for part, phase in zip(staged.parts, phases, strict=True):
        entry = entries[part.entry]
        if not {dim.name for dim in entry.dims} <= dims:
            raise refuse(f"{part.entry[:40]!r} has sizes that the function has not")
        for item in entry.inputs:
            source = staged.rows.get(item.name, item.name)
            is_number = item.name == MICROBATCH and phase == 1
            is_row = item.name in staged.rows
            if not is_number and (source not in given or (is_row and phase != 1)):
                raise refuse(f"{part.entry[:40]!r} takes {item.name[:40]!r}, which no part gives")
        for output in entry.outputs:
            changes = output.updates
            if changes and changes not in staged.carried and changes not in given:
                raise refuse(f"{part.entry[:40]!r} changes {changes[:40]!r}, which is not there")
            if not changes:
                given[output.name] = output.shape
                phase_of[output.name] = phase
    kept = [output for output in staged.interface.outputs if not output.updates]
    if len(kept) != len(staged.results):
        raise refuse("they give another number of results than the function")
    if not all(name in given and phase_of[name] != 1 for name in staged.results):
        raise refuse("a result is given by no part")
