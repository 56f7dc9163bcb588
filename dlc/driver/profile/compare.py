"""Two profiles side by side: what became slower or faster, and which decisions differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dlc.driver.profile.data import OldKernel, OldProfile, decisions_of
from dlc.driver.run.outputs import JSON
from dlc.errors import UsageError
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import Row
from dlc.runtime.profiling.table import number, shortened

NOTABLE = 0.01
"""A kernel is told if it changed by this part of a call: less is noise."""
MOST_DECISIONS = 4
WIDTH = 80


class Change(NamedTuple):
    """A kernel in both profiles, or in one of them; milliseconds, 0 where it is not."""

    title: str
    old_ms: float
    new_ms: float
    decided: tuple[str, ...]
    """Decisions about its line that were not taken before, with `+`, and those that no longer are, `-`."""


def compare(old: OldProfile, new: Profile) -> tuple[Change, ...]:
    """The changes, the largest first.

    Kernels are the same if module and sizes are; of several alike the first pairs with the first. What
    computes the same module otherwise now, such as another form of a product, pairs by its module.
    Raises UsageError (D0907) where the entry points differ.
    """
    if old.entry != new.entry:
        raise UsageError(
            f"the old profile is of {old.entry}, and this one of {new.entry}",
            code="D0907",
            help=f"profile the same entry point: --entry {old.entry}",
        )
    left: dict[tuple[str, str], list[OldKernel]] = {}
    for each in old.kernels:
        left.setdefault((each.path, each.what), []).append(each)
    exact: list[tuple[OldKernel | None, Row]] = []
    for row in new.rows:
        alike = left.get((row.path, row.what), [])
        exact.append((alike.pop(0) if alike else None, row))
    spare: dict[str, list[OldKernel]] = {}
    for each in [each for rest in left.values() for each in rest]:
        spare.setdefault(each.path, []).append(each)
    changes: list[Change] = []
    for before, row in exact:
        others = spare.get(row.path, []) if row.path else []
        match = before or (others.pop(0) if others else None)
        changes.append(_change(match, row, decisions_of(new, row)))
    gone = [each for rest in spare.values() for each in rest]
    changes += [Change(_title(each.path, each.what), each.ms, 0.0, ()) for each in gone]
    return tuple(sorted(changes, key=lambda change: -abs(change.new_ms - change.old_ms)))


def differences(old: OldProfile, new: Profile) -> tuple[str, ...]:
    """What was profiled otherwise: the model, the device, sizes, threads."""
    before = {"model": old.model, "device": old.device, **_sizes(old.dims), "threads": old.threads}
    now = {"model": new.model, "device": new.device, **_sizes(new.dims), "threads": new.threads}
    return tuple(
        f"{name}: {before.get(name, 'none')} before, {now.get(name, 'none')} now"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    )


def _sizes(dims: Mapping[str, int]) -> dict[str, int]:
    return {f"size {name}": size for name, size in dims.items()}


def profile_comparison_text(old: OldProfile, new: Profile) -> str:
    """The changes that matter, as text of 80 columns."""
    told = [each for each in compare(old, new) if _matters(each, old.call_ms)]
    lines = [
        f"{new.entry}: {number(old.call_ms)} ms before, {number(new.call_ms)} ms now "
        f"({_ratio(old.call_ms, new.call_ms)})",
        *[f"not the same {text}" for text in differences(old, new)],
        "",
        " before     now  change  kernel",
    ]
    known: set[str] = set()
    for each in told:
        title = shortened(each.title, WIDTH - 26)
        change = f"{each.new_ms - each.old_ms:+7.4f}"
        lines.append(f"{each.old_ms:7.4f} {each.new_ms:7.4f} {change}  {title}")
        # Kernels of one line share what was decided about it.
        news = [text for text in each.decided if text not in known]
        known.update(news)
        lines += [f"{'':26}{shortened(text, WIDTH - 26)}" for text in news]
    if not told:
        lines.append(f"no kernel changed by more than {NOTABLE:.0%} of the call")
    return "\n".join(lines)


def profile_comparison_data(old: OldProfile, new: Profile) -> JSON:
    """The same for programs: all changes."""
    return {
        "entry": new.entry,
        "old_ms": old.call_ms,
        "new_ms": new.call_ms,
        "differences": list(differences(old, new)),
        "changes": [
            {**each._asdict(), "decided": list(each.decided)} for each in compare(old, new)
        ],
    }


def _change(before: OldKernel | None, row: Row, decisions: Iterable[str]) -> Change:
    if before is None:
        return Change(row.title, 0.0, row.ms, ())
    title = row.title
    if before.what != row.what:
        title = f"{row.title} (before: {before.what})"
    return Change(title, before.ms, row.ms, tuple(_otherwise(before.decisions, decisions)))


def _otherwise(old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, now = dict.fromkeys(old), dict.fromkeys(new)
    added = [f"+ {text}" for text in now if text not in before]
    dropped = [f"- {text}" for text in before if text not in now]
    yield from [*added[:MOST_DECISIONS], *dropped[:MOST_DECISIONS]]


def _matters(change: Change, call_ms: float) -> bool:
    return abs(change.new_ms - change.old_ms) > NOTABLE * call_ms


def _ratio(old: float, new: float) -> str:
    if not old or not new:
        return "no time"
    return f"{new / old:.2f} times as long" if new >= old else f"{old / new:.2f} times as fast"


def _title(path: str, what: str) -> str:
    return f"{path} · {what} (gone)" if path else f"{what} (gone)"
