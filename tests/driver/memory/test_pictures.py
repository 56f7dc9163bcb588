"""Pictures, pages and traces of a plan: all that is in use is there, and readable."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import cast
from xml.etree import ElementTree

import pytest

from dlc.driver.call_memory.facts import EntryMemory, Root, Value
from dlc.driver.memory.asked import ModelMemory
from dlc.driver.memory.page import html_page
from dlc.driver.memory.picture import LEFT, TOP, svg_file
from dlc.driver.memory.trace import in_rows, trace_file
from tests.driver.memory.models import TRAINED, chain, found

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</script><b>&\"'"


def roots_of(svg: str) -> dict[int, ElementTree.Element]:
    """The rectangles of roots, by number."""
    parts = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return {int(part.attrib["data-root"]): part for part in parts if "data-root" in part.attrib}


def alone(memory: ModelMemory, name: str) -> ModelMemory:
    """The memory of one entry point."""
    return replace(memory, entries=tuple(e for e in memory.entries if e.name == name))


def numbers(part: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a rectangle."""
    x, y, width, height = (float(part.attrib[key]) for key in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def test_each_root_is_a_rectangle_that_says_what_it_is() -> None:
    drawn = roots_of(svg_file(alone(chain(), "f")))
    assert len(drawn) == 2
    told = [part.findtext(f"{SVG}title") or "" for part in drawn.values()]
    (sums,) = [text for text in told if text.startswith("sums: f32[B, 16]\n")]
    assert "4,096 bytes at " in sums
    assert "made by prefix scan add B×16 in wave 0, m.dlm:5:14" in sums
    assert "    let sums = cumsum(x, axis=1)" in sums
    assert "kept for sort B×16 in wave 1" in sums
    assert any("also there: " in text and "(in place)" in text for text in told)


def test_rectangles_do_not_overlap() -> None:
    step = alone(found(TRAINED), "train_step")
    drawn = roots_of(svg_file(step)).values()
    assert len(drawn) > 10
    for one, other in itertools.combinations(map(numbers, drawn), 2):
        if min(one[3] - one[1], other[3] - other[1]) >= 1:
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] + 0.1
            assert apart or other[3] <= one[1] + 0.1


def test_names_of_bounds_have_room() -> None:
    step = alone(found(TRAINED), "train_step")
    picture = ElementTree.fromstring(svg_file(step))
    right = max(float(p.attrib["x"]) for p in picture.iter(f"{SVG}text"))
    rows = [p for p in picture.iter(f"{SVG}text") if float(p.attrib["x"]) == right]
    heights = [float(part.attrib["y"]) for part in rows]
    assert {"arena", "this order", "any order"} == {
        name for part in rows[::2] for name in (part.text or "").split(", ")
    }
    assert all(later - earlier >= 12 for earlier, later in itertools.pairwise(heights))


def test_the_peak_is_marked_where_it_is() -> None:
    (entry,) = alone(chain(), "f").entries
    picture = ElementTree.fromstring(svg_file(alone(chain(), "f")))
    (band,) = [p for p in picture.iter(f"{SVG}rect") if p.attrib.get("class") == "peak"]
    left, _, right, _ = numbers(band)
    assert (left - LEFT) / (right - left) == pytest.approx(entry.peak)
    assert "peak: wave 1, 8.0 KiB" in [part.text for part in picture.iter(f"{SVG}text")]


def many(count: int) -> EntryMemory:
    """One large root and so many that are too small to be seen."""
    (entry,) = alone(chain(), "f").entries
    large = replace(entry.roots[0], number=0, offset=0, bytes=1 << 30, first=0, last=count)
    small = [
        replace(large, number=k + 1, offset=(1 << 30) + 64 * k, bytes=64, first=k, last=k)
        for k in range(count)
    ]
    arena = small[-1].end
    return replace(entry, roots=(large, *small), work=(), arena=arena, order_bound=large.bytes + 64)


def test_a_picture_has_its_colours_itself_in_light_and_in_dark() -> None:
    style = svg_file(chain()).partition("<style>")[2].partition("</style>")[0]
    assert "var(" not in style
    assert "svg .paper{fill:#ffffff}" in style
    assert "svg .paper{fill:#0d1117}" in style.partition("@media (prefers-color-scheme:dark)")[2]


def test_what_is_too_small_to_be_seen_is_counted_and_not_drawn() -> None:
    svg = svg_file(ModelMemory("m.dlm", (many(4000),), {}))
    assert list(roots_of(svg)) == [0]
    assert "not drawn: 4,000 roots, 250.0 KiB in all" in svg
    assert len(svg) < 200_000


def test_an_entry_point_without_an_arena_is_told_as_such() -> None:
    assert "small: nothing in the arena" in svg_file(chain())
    assert "Nothing is in the arena." in html_page(chain())


def hostile() -> ModelMemory:
    """A model whose names and lines look like markup."""
    (entry,) = alone(chain(), "f").entries
    work = replace(entry.work[0], what=HOSTILE, place=f"{HOSTILE}:1:1")
    value = Value(HOSTILE, "f32", "own", HOSTILE, (work,), (work,))
    roots = tuple(replace(root, values=(value,)) for root in entry.roots)
    bad = replace(entry, name=HOSTILE, roots=roots, work=(work, *entry.work[1:]))
    return ModelMemory(HOSTILE, (bad,), {HOSTILE: HOSTILE})


def test_names_that_look_like_markup_are_text() -> None:
    drawn = roots_of(svg_file(hostile()))
    assert all(HOSTILE in (part.findtext(f"{SVG}title") or "") for part in drawn.values())
    page = html_page(hostile())
    assert page.count("</script>") == 2
    data = re.compile(r'<script type="application/json">.*?</script>')
    assert '<b>&"' not in data.sub("", page)


class _Balance(HTMLParser):
    """Which elements are open; what stands alone is not counted."""

    ALONE = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_whole_and_asks_for_nothing_else() -> None:
    page = html_page(found(TRAINED))
    reader = _Balance()
    reader.feed(page)
    assert not reader.open
    assert not re.search(r"(src|href)=|url\(|@import|https?://", page)
    assert page.count("<section>") == 3
    assert "prefers-color-scheme:dark" in page


def test_a_page_has_the_table_of_the_peak_and_the_facts_of_each_wave() -> None:
    page = html_page(alone(chain(), "f"))
    assert page.count("<tr data-root=") == 2
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', page)
    facts = cast("dict[str, object]", json.loads(text))
    assert facts["alive"] == [4096, 8192, 4096, 4096]
    assert facts["work"] == [
        ["prefix scan add B×16 m.dlm:5:14"],
        ["sort B×16 m.dlm:6:16"],
        ["exp 16*B m.dlm:7:15"],
        ["prefix scan add B×16 m.dlm:8:10"],
    ]
    assert (facts["left"], facts["top"]) == (LEFT, TOP)


def test_a_trace_counts_bytes_and_has_a_slice_for_each_root_and_op() -> None:
    memory = alone(chain(), "f")
    events = cast("list[dict[str, object]]", json.loads(trace_file(memory))["traceEvents"])
    counts = [event["args"] for event in events if event["ph"] == "C"]
    assert counts == [{"bytes": size} for size in (4096, 8192, 4096, 4096, 0)]
    slices = [event for event in events if event["ph"] == "X"]
    ops = [event["name"] for event in slices if event["tid"] == 0]
    assert ops == ["prefix scan add B×16", "sort B×16", "exp 16*B", "prefix scan add B×16"]
    roots = [event for event in slices if event["tid"] != 0]
    assert {event["name"] for event in roots} == {"sums: f32[B, 16]", "sorted: f32[B, 16]"}
    assert roots[0]["dur"] == 1000.0 * (memory.entries[0].roots[0].last + 1)


def test_slices_of_a_row_do_not_overlap() -> None:
    (step,) = alone(found(TRAINED), "train_step").entries
    rows = in_rows(step.roots)
    assert sum(map(len, rows)) == len(step.roots)
    for row in rows:
        inside: list[Root] = sorted(row, key=lambda root: root.first)
        assert all(one.last < other.first for one, other in itertools.pairwise(inside))
