"""The memory plan of an entry point for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.driver.call_memory.facts import EntryMemory, Root, Work, sizes_text
from dlc.driver.memory.picture import kind_of
from dlc.driver.memory.report import also_text
from dlc.driver.report.page.schema import JsonMemory, JsonRoot


def memory_data(
    memory: EntryMemory, line: Callable[[str], int], steps: Sequence[str]
) -> JsonMemory:
    """The arena and its roots; `line` gives the line of the text at a place, `steps` the ids of the steps.

    The ops of the program are the steps in their order.
    """
    work = sorted(memory.work, key=lambda each: each.op)
    known = len(work) == len(steps)
    ids = {each.op: id for each, id in zip(work, steps, strict=True)} if known else {}

    def named(made: Sequence[Work]) -> list[str]:
        return [ids[each.op] for each in made if each.op in ids]

    def root(each: Root) -> JsonRoot:
        return {
            "title": each.title,
            "kind": kind_of(each),
            "device": each.device,
            "offset": each.offset,
            "bytes": each.bytes,
            "first": each.first,
            "last": each.last,
            "line": line(each.main.place or each.place),
            "also": also_text(each),
            "made": named([work for value in each.values for work in value.made_by]),
            "read": named([work for value in each.values for work in value.read_by]),
        }

    waves: list[list[str]] = [[] for _ in range(memory.waves)]
    for each in work:
        if each.op in ids:
            waves[each.wave].append(ids[each.op])
    return {
        "title": f"{memory.name}{sizes_text(memory.dims)}",
        "arena": memory.arena,
        "bounds": {"this order": memory.order_bound, "any order": memory.any_order_bound},
        "alive": list(memory.alive),
        "roots": [root(each) for each in memory.roots],
        "steps": waves,
    }
