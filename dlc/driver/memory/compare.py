"""Two memory plans side by side: what both need, and the values that only one of them has.

Values are the same where they are called the same and made at the same line. What differs is told by how
many bytes it takes and in how many waves it is in use: in another order waves have other numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.driver.call_memory.facts import EntryMemory, Root, sizes_text
from dlc.driver.memory.asked import ModelMemory
from dlc.driver.memory.report import shortened, waves_text
from dlc.driver.run.outputs import JSON
from dlc.driver.tables import Table

ROWS = 20
"""The most differences that the text lists, the largest first."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A root of one plan, of the other, or of both with other bytes or another length of life."""

    title: str
    place: str
    before: Root | None
    after: Root | None

    @property
    def weight(self) -> int:
        """By how much it matters: bytes times waves that are more or less."""
        return abs(_area(self.after) - _area(self.before))


@dataclass(frozen=True, slots=True)
class Compared:
    """An entry point of two models."""

    before: EntryMemory
    after: EntryMemory

    @property
    def amounts(self) -> dict[str, tuple[int, int]]:
        """The needs of both, in bytes except for the numbers of waves and roots."""
        pair = self.before, self.after
        one, other = pair
        return {
            "arena": (one.arena, other.arena),
            "order_bound": (one.order_bound, other.order_bound),
            "any_order_bound": (one.any_order_bound, other.any_order_bound),
            "results": (one.need.results, other.need.results),
            "weights": (one.need.weights, other.need.weights),
            "scratch": (one.need.call.scratch, other.need.call.scratch),
            "waves": (one.waves, other.waves),
            "roots": (len(one.roots), len(other.roots)),
        }

    @property
    def differences(self) -> list[Difference]:
        """The roots that differ, those that matter most first."""
        differences: list[Difference] = []
        before, after = _by_name(self.before), _by_name(self.after)
        for key in dict.fromkeys([*before, *after]):
            ones, others = before.get(key, []), after.get(key, [])
            for k in range(max(len(ones), len(others))):
                one = ones[k] if k < len(ones) else None
                other = others[k] if k < len(others) else None
                if _measure(one) != _measure(other):
                    differences.append(Difference(*key, one, other))
        return sorted(differences, key=lambda each: -each.weight)


def compared(before: ModelMemory, after: ModelMemory) -> list[Compared]:
    """The entry points that both have; where each has one alone, those, whatever they are called."""
    if len(before.entries) == len(after.entries) == 1:
        return [Compared(before.entries[0], after.entries[0])]
    others = {entry.name: entry for entry in after.entries}
    return [Compared(entry, others[entry.name]) for entry in before.entries if entry.name in others]


def _by_name(entry: EntryMemory) -> Mapping[tuple[str, str], list[Root]]:
    """The roots by title and place, those that are alike in the order of their first use."""
    roots: dict[tuple[str, str], list[Root]] = defaultdict(list)
    for root in sorted(entry.roots, key=lambda root: (root.first, root.number)):
        roots[root.title, root.place].append(root)
    return roots


def _measure(root: Root | None) -> tuple[int, int]:
    return (0, 0) if root is None else (root.bytes, root.last - root.first + 1)


def _area(root: Root | None) -> int:
    size, waves = _measure(root)
    return size * waves


# As text and data ---------------------------------------------------------------------------------


def comparison_text(before: ModelMemory, after: ModelMemory) -> str:
    """All entry points that both have, and the names of the others."""
    pairs = compared(before, after)
    parts = [_compared_text(before.model, after.model, each) for each in pairs]
    for model, names in zip((before.model, after.model), _alone(before, after, pairs), strict=True):
        if names:
            parts.append(f"only in {model}: {', '.join(names)}")
    return "\n\n".join(parts)


def comparison_data(before: ModelMemory, after: ModelMemory) -> JSON:
    """The same for programs."""
    pairs = compared(before, after)
    only_before, only_after = _alone(before, after, pairs)
    return {
        "before": before.model,
        "after": after.model,
        "entries": [_compared_data(each) for each in pairs],
        "only_before": only_before,
        "only_after": only_after,
    }


def _alone(
    before: ModelMemory, after: ModelMemory, pairs: Sequence[Compared]
) -> tuple[list[str], list[str]]:
    """The entry points of each model that the other does not have."""
    names_before = {each.before.name for each in pairs}
    names_after = {each.after.name for each in pairs}
    return (
        [entry.name for entry in before.entries if entry.name not in names_before],
        [entry.name for entry in after.entries if entry.name not in names_after],
    )


def _compared_text(one: str, other: str, pair: Compared) -> str:
    head = f"{pair.before.name}{sizes_text(pair.before.dims)}"
    if (pair.after.name, pair.after.dims) != (pair.before.name, pair.before.dims):
        head += f", and {pair.after.name}{sizes_text(pair.after.dims)}"
    rows = tuple(
        (name.replace("_", " "), a, b, _change(a, b))
        for name, (a, b) in pair.amounts.items()
        if a or b
    )
    amounts = Table(head, ("", one, other, "change"), rows).text
    differences = pair.differences
    if not differences:
        return f"{amounts}\n\nno value differs"
    more = len(differences) - ROWS
    title = "values that differ" + (f", {more} more not shown" if more > 0 else "")
    head_row = ("value", "made at", f"{one}: bytes", "waves", f"{other}: bytes", "waves")
    different = tuple(_difference_row(each) for each in differences[:ROWS])
    return f"{amounts}\n\n{Table(title, head_row, different).text}"


def _difference_row(each: Difference) -> tuple[str | int, ...]:
    row: list[str | int] = [shortened(each.title), each.place]
    for root in (each.before, each.after):
        row += ["", ""] if root is None else [root.bytes, waves_text(root)]
    return tuple(row)


def _change(before: int, after: int) -> str:
    """The change, as text."""
    if before == after:
        return ""
    if not before or after > 2 * before:
        return f"{after / before:.1f} times" if before else "new"
    return f"{100 * (after - before) / before:+.1f} %"


def _compared_data(pair: Compared) -> JSON:
    return {
        "name": pair.before.name,
        "other_name": pair.after.name,
        "dims": dict(pair.before.dims),
        "other_dims": dict(pair.after.dims),
        **{name: list(amounts) for name, amounts in pair.amounts.items()},
        "differences": [
            {
                "title": each.title,
                "place": each.place,
                "before": _root_data(each.before),
                "after": _root_data(each.after),
            }
            for each in pair.differences
        ],
    }


def _root_data(root: Root | None) -> JSON | None:
    if root is None:
        return None
    return {
        "number": root.number,
        "bytes": root.bytes,
        "offset": root.offset,
        "first": root.first,
        "last": root.last,
    }
