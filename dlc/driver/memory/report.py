"""The memory of a model as tables for people, and as data for programs (`docs/json.md`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dlc.driver.call_memory.facts import EntryMemory, Root, Value, Work, sizes_text
from dlc.driver.memory.asked import ModelMemory
from dlc.driver.run.outputs import JSON
from dlc.driver.tables import Table
from dlc.runtime.model_repr import bytes_text
from dlc.runtime.system.counts import counted

ROWS = 24
"""The most values at the peak that are listed; the rest is summed up."""
_LINE, _TITLE = 96, 48
"""Letters of a source line, and of what a value is called."""


def memory_text(memory: ModelMemory) -> str:
    """All entry points, one after the other."""
    return "\n\n".join(_entry_text(memory, entry) for entry in memory.entries)


def exact(size: int) -> str:
    """A number of bytes to the last one, and in short where that is shorter.

    >>> exact(999), exact(1 << 20)
    ('999 bytes', '1,048,576 bytes (1.0 MiB)')
    """
    return f"{size:,} bytes ({bytes_text(size)})" if size >= 1024 else bytes_text(size)


def percent(gap: float) -> str:
    """The excess over a bound, as text.

    >>> percent(0.0), percent(1e-6), percent(0.0213), percent(1.5)
    ('met', 'less than 0.1 % above', '2.1 % above', '2.5 times as much')
    """
    if gap <= 0:
        return "met"
    if gap < 0.001:
        return "less than 0.1 % above"
    return f"{100 * gap:.1f} % above" if gap < 1 else f"{gap + 1:.1f} times as much"


def waves_text(root: Root) -> str:
    """The waves in which a root is in use."""
    return str(root.first) if root.first == root.last else f"{root.first}-{root.last}"


def also_text(root: Root) -> str:
    """The other values that are computed into a root."""
    return "; ".join(f"{value.title} ({value.how})" for value in root.sharing)


def _entry_text(memory: ModelMemory, entry: EntryMemory) -> str:
    head = f"{entry.name}{sizes_text(entry.dims)}"
    if not entry.roots:
        return f"{head}\n  arena       nothing: no value is in memory of the plan"
    lines = [head, *_facts(entry)]
    tables = [_peak_table(entry).text, *_places_table(memory, entry)]
    return "\n\n".join(["\n".join(lines), *tables])


def _facts(entry: EntryMemory) -> Iterator[str]:
    roots, waves = counted(len(entry.roots), "root"), counted(entry.waves, "wave")
    yield f"  arena       {exact(entry.arena)}, {roots} in {waves}"
    bound = "no placement for this order of the work needs less"
    yield f"  this order  {exact(entry.order_bound)}, {percent(entry.order_gap)}: {bound}"
    bound = "no order needs less"
    yield f"  any order   {exact(entry.any_order_bound)}, {percent(entry.any_order_gap)}: {bound}"
    if len(devices := _devices(entry)) > 1:
        of_each = [f"{device} {described}" for device, described in devices.items()]
        yield f"  devices     {'; '.join(of_each)}: each has a part of its own"
    need = entry.need
    parts = {
        "results": need.results,
        "weights": need.weights - need.prepared,
        "prepared weights": need.prepared,
        "scratch of a thread": need.call.scratch,
        "inputs": need.given,
    }
    described = [f"{name} {bytes_text(size)}" for name, size in parts.items() if size]
    if described:
        yield f"  besides     {', '.join(described)}"
    works = "; ".join(map(str, entry.work_at_peak))
    yield f"  peak        wave {entry.peak}: {works or 'copies'}"


def _devices(entry: EntryMemory) -> dict[str, str]:
    """The bytes of the part of the arena that each device has, and how far they are above its bound."""
    found: dict[str, list[Root]] = {}
    for root in entry.roots:
        found.setdefault(root.device, []).append(root)
    return {device: _part(roots) for device, roots in sorted(found.items())}


def _part(roots: Sequence[Root]) -> str:
    size = max(root.end for root in roots) - min(root.offset for root in roots)
    waves = {root.first for root in roots}
    bound = max(
        sum(root.bytes for root in roots if root.first <= wave <= root.last) for wave in waves
    )
    return f"{bytes_text(size)}, {percent(size / bound - 1 if bound else 0.0)}"


def _peak_table(entry: EntryMemory) -> Table:
    roots = entry.at_peak
    rows: list[tuple[str | int, ...]] = [
        (
            root.bytes,
            f"{root.bytes / max(1, entry.order_bound):.1%}",
            waves_text(root),
            shortened(root.title),
            str(root.maker or ""),
            str(root.last_reader or ""),
            also_text(root),
        )
        for root in roots[:ROWS]
    ]
    if len(roots) > ROWS:
        rest = sum(root.bytes for root in roots[ROWS:])
        share = f"{rest / max(1, entry.order_bound):.1%}"
        rows.append((rest, share, "", f"{len(roots) - ROWS} more", "", "", ""))
    head = ("bytes", "share", "waves", "value", "made by", "kept for", "also there")
    return Table(f"alive in wave {entry.peak}", head, tuple(rows))


def _places_table(memory: ModelMemory, entry: EntryMemory) -> Iterator[str]:
    """The lines of the text that the table of the peak names."""
    works = [work for root in entry.at_peak[:ROWS] for work in (root.maker, root.last_reader)]
    works += entry.work_at_peak
    places = dict.fromkeys(work.place for work in works if work is not None)
    rows = [(place, shortened(memory.line(place), _LINE)) for place in sorted(places)]
    described = tuple((place, line) for place, line in rows if line)
    if described:
        yield Table("these lines", ("place", "line"), described).text


def shortened(text: str, most: int = _TITLE) -> str:
    """The text, cut to a number of letters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


# For programs -------------------------------------------------------------------------------------


def memory_data(memory: ModelMemory) -> JSON:
    """All of it, as `docs/json.md` says."""
    return {"model": memory.model, "entries": [entry_data(entry) for entry in memory.entries]}


def entry_data(entry: EntryMemory) -> JSON:
    """The plan of one entry point."""
    need = entry.need
    return {
        "name": entry.name,
        "dims": dict(entry.dims),
        "arena": entry.arena,
        "order_bound": entry.order_bound,
        "order_gap": entry.order_gap,
        "any_order_bound": entry.any_order_bound,
        "any_order_gap": entry.any_order_gap,
        "inputs": need.given,
        "results": need.results,
        "weights": need.weights,
        "prepared": need.prepared,
        "scratch": need.call.scratch,
        "peak": {
            "wave": entry.peak,
            "ops": _ids(entry.work_at_peak),
            "roots": [root.number for root in entry.at_peak],
        },
        "alive": list(entry.alive),
        "roots": [_root_data(root) for root in entry.roots],
        "ops": [
            {"id": work.op, "wave": work.wave, "what": work.what, "place": work.place}
            for work in entry.work
        ],
    }


def _root_data(root: Root) -> JSON:
    return {
        "number": root.number,
        "title": root.title,
        "device": root.device,
        "offset": root.offset,
        "bytes": root.bytes,
        "first": root.first,
        "last": root.last,
        "place": root.place,
        "values": [_value_data(value) for value in root.values],
    }


def _value_data(value: Value) -> JSON:
    return {
        "name": value.name,
        "type": value.type,
        "how": value.how,
        "place": value.place,
        "made_by": _ids(value.made_by),
        "read_by": _ids(value.read_by),
    }


def _ids(works: Iterable[Work]) -> list[int]:
    return [work.op for work in works]
