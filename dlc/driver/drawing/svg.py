"""Boxes and arrows as SVG, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate

from dlc.driver.drawing.layered_layout import Edge, Layout, lay_out

MARGIN = 20.0
TITLE = 32.0
PADDING = 10.0
"""Between the border of a group and what is in it."""

_CHARACTER = 7.3
"""Width of a character at 12 px in the usual monospaced fonts."""
_SMALL = 6.7
"""The same at 11 px."""
_BOX = 26.0
_LINE = 15.0
_NOTE = 14.0
_BEND = 36.0
"""The height in which an edge goes from the x where it leaves to the x where it arrives."""
_PORT = 14.0

# Kind of box: outline and background in light, then in dark.
_COLOURS = {
    "input": ("#1d4ed8", "#dbeafe", "#60a5fa", "#172554"),
    "weight": ("#b45309", "#fef3c7", "#fbbf24", "#3b2506"),
    "constant": ("#6b7280", "#f3f4f6", "#9ca3af", "#262b33"),
    "op": ("#374151", "#ffffff", "#9ca3af", "#161b22"),
    "result": ("#15803d", "#dcfce7", "#4ade80", "#0a2e17"),
    "group": ("#9ca3af", "#f8fafc", "#4b5563", "#11161d"),
}
CROSSING = ("enter", "leave")
"""Kinds of boxes that are points: where values cross the border of a group."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of small print in a box."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Box:
    """The box of one node: a title, small print, and below it a note for each value that leaves.

    `kind` is input, weight, constant, op or result; group, for a box with a graph `inside` it. Inside,
    enter and leave are the places at which values cross the border, and name is the title, left of what
    enters. `ports` is how many edges end at it; `key` is for who draws it.
    """

    kind: str
    title: str
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    ports: int = 0
    inside: Graph | None = None
    key: str = ""


@dataclass(slots=True)
class Graph:
    """Boxes and the edges between them, by number."""

    boxes: list[Box] = field(default_factory=list[Box])
    edges: list[Edge] = field(default_factory=list[Edge])

    def add(self, box: Box) -> int:
        """The number of a new box."""
        self.boxes.append(box)
        return len(self.boxes) - 1


def page(graphs: Sequence[tuple[str, Graph]]) -> str:
    """An SVG picture of graphs with their titles, one above the other."""
    parts: list[str] = []
    top, widest = MARGIN, 0.0
    for title, graph in graphs:
        placed = place(graph)
        parts.append(f'<text class="title" x="{MARGIN:g}" y="{top + 12:g}">{escape(title)}</text>')
        parts += _drawn(placed, MARGIN, top + TITLE)
        top += TITLE + placed.height + MARGIN
        widest = max(widest, placed.width, len(title) * 9.0)
    return document(widest + 2 * MARGIN, top, parts)


def document(width: float, height: float, parts: Sequence[str], style: str = "") -> str:
    """A whole SVG file with a paper behind the parts.

    The style (that of boxes, where there is no other) follows the reader's choice of light or dark.
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">\n<style>\n{style or _style()}</style>\n'
        f'<rect class="paper" width="100%" height="100%"/>\n{chr(10).join(parts)}\n</svg>\n'
    )


def _style() -> str:
    dark = {kind: colours[2:] for kind, colours in _COLOURS.items()}
    light = {kind: colours[:2] for kind, colours in _COLOURS.items()}
    return (
        "text{font:12px ui-monospace,Menlo,Consolas,monospace}\n"
        ".small{font-size:11px}.title{font-weight:bold;font-size:14px}.name{font-weight:bold}\n"
        "path{fill:none;stroke-width:1.3}\n"
        f"{_colours('#ffffff', '#111827', '#4b5563', '#9ca3af', light)}\n"
        "@media (prefers-color-scheme:dark){\n"
        f"{_colours('#0d1117', '#e6edf3', '#9ba6b4', '#6b7684', dark)}\n}}\n"
    )


def _colours(paper: str, ink: str, small: str, edge: str, boxes: dict[str, tuple[str, ...]]) -> str:
    kinds = "".join(
        f".{kind}{{stroke:{stroke};fill:{fill}}}" for kind, (stroke, fill) in boxes.items()
    )
    weight = boxes["weight"][0]
    return (
        f".paper{{fill:{paper}}}text{{fill:{ink}}}.small{{fill:{small}}}"
        f".of-weight{{fill:{weight}}}path{{stroke:{edge}}}\n{kinds}"
    )


# Places -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """The size of a box, with the places of what is inside it."""

    box: Box
    inside: Placed | None

    @property
    def width(self) -> float:
        box = self.box
        if box.kind in CROSSING:
            return 0.0
        if self.inside is not None:
            return self.inside.width + 2 * PADDING
        small = max([len(line.text) * _SMALL for line in box.lines], default=0.0)
        text = max(len(box.title) * _CHARACTER, small) + (0 if box.kind == "name" else 20)
        return max(text, (max(box.ports, len(box.notes)) + 1) * _PORT)

    @property
    def height(self) -> float:
        if self.box.kind in CROSSING:
            return 0.0
        if self.inside is not None:
            return self.inside.height + 2 * PADDING
        return _BOX + (len(self.box.lines) * _LINE + 5 if self.box.lines else 0)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is said below it; inside a group that is open it has been said already."""
        return () if self.inside is not None else self.box.notes

    @property
    def extent(self) -> tuple[float, float]:
        """Its extent from the middle, with its notes, which stand right of the outgoing edges."""
        longest = max([len(note) * _SMALL for note in self.notes], default=0.0)
        notes = self.leaves(len(self.notes) - 1) + 6 + longest if self.notes else 0.0
        return self.width / 2, max(self.width / 2, notes)

    def arrives(self, port: int) -> float:
        """The offset from the middle at which the edge to a port ends."""
        if self.inside is not None:
            return self.inside.crossing("enter", port) - self.inside.width / 2
        return self.width * ((port + 1) / (self.box.ports + 1) - 0.5)

    def leaves(self, result: int) -> float:
        """The offset from the middle at which the edges of a result leave."""
        if self.inside is not None:
            return self.inside.crossing("leave", result) - self.inside.width / 2
        return self.width * ((result + 1) / (max(len(self.box.notes), 1) + 1) - 0.5)


@dataclass(frozen=True, slots=True)
class Placed:
    """A graph with a place for everything: the frames of its boxes, their centres, the tops of its rows."""

    graph: Graph
    frames: tuple[Frame, ...]
    layout: Layout
    tops: tuple[float, ...]
    bottoms: tuple[float, ...]
    """Where the boxes of each row and their notes end."""

    @property
    def width(self) -> float:
        return self.layout.width

    @property
    def height(self) -> float:
        return self.bottoms[-1] if self.bottoms else 0.0

    def crossing(self, kind: str, number: int) -> float:
        """The x at which a value enters or leaves."""
        found = [k for k, box in enumerate(self.graph.boxes) if box.kind == kind]
        return self.layout.centres[found[number]]


def place(graph: Graph) -> Placed:
    """Places for the boxes of a graph and for what is inside them."""
    frames = tuple(
        Frame(box, None if box.inside is None else place(box.inside)) for box in graph.boxes
    )
    first = {number for number, box in enumerate(graph.boxes) if box.kind in ("name", "enter")}
    last = {number for number, box in enumerate(graph.boxes) if box.kind == "leave"}
    layout = lay_out([frame.extent for frame in frames], graph.edges, first, last)
    heights = [0.0] * layout.height
    for frame, row in zip(frames, layout.rows, strict=True):
        notes = len(frame.notes) * _NOTE + 6 if frame.notes else 0
        heights[row] = max(heights[row], frame.height + notes)
    tops = tuple(accumulate((height + _BEND for height in heights), initial=0.0))[:-1]
    bottoms = tuple(top + height for top, height in zip(tops, heights, strict=True))
    return Placed(graph, frames, layout, tops, bottoms)


# Drawing ------------------------------------------------------------------------------------------


def _drawn(placed: Placed, left: float, top: float) -> Iterator[str]:
    """Frames of groups, then edges, then what stands on them."""
    for number, frame in enumerate(placed.frames):
        if frame.inside is not None:
            yield from _group(placed, number, left, top)
    for edge, route in zip(placed.graph.edges, placed.layout.routes, strict=True):
        yield _curve(placed, edge, route, left, top)
    for number, frame in enumerate(placed.frames):
        x, y = left + placed.layout.centres[number], top + placed.tops[placed.layout.rows[number]]
        if frame.inside is None and frame.box.kind not in CROSSING:
            yield _boxed(frame, x, y)
        yield from _notes(frame, x, y)


def _group(placed: Placed, number: int, left: float, top: float) -> Iterator[str]:
    """The frame of a group and what is in it, with the ends of edges that cross its border."""
    frame = placed.frames[number]
    inside = frame.inside
    assert inside is not None
    x = left + placed.layout.centres[number] - frame.width / 2
    y = top + placed.tops[placed.layout.rows[number]]
    yield (
        f'<rect class="group" x="{x:.1f}" y="{y:.1f}" '
        f'width="{frame.width:.1f}" height="{frame.height:.1f}" rx="8"/>'
    )
    for at, box in enumerate(inside.graph.boxes):
        if box.kind in CROSSING:
            line = x + PADDING + inside.layout.centres[at]
            start = y if box.kind == "enter" else y + frame.height - PADDING
            yield f'<path d="M{line:.1f} {start:.1f}V{start + PADDING:.1f}"/>'
    yield from _drawn(inside, x + PADDING, y + PADDING)


def _curve(
    placed: Placed, edge: Edge, route: Sequence[tuple[int, float]], left: float, top: float
) -> str:
    """From below the source to a port above the target.

    Between boxes and notes an edge goes straight down, and it bends only where there are none, so that
    it crosses no letter.
    """
    source, target = placed.frames[edge.source], placed.frames[edge.target]
    layout, tops, bottoms = placed.layout, placed.tops, placed.bottoms
    row = layout.rows[edge.source]
    x = left + layout.centres[edge.source] + source.leaves(edge.result)
    path = f"M{x:.1f} {top + tops[row] + source.height:.1f}V{top + bottoms[row]:.1f}"
    arrival = layout.centres[edge.target] + target.arrives(edge.port)
    last = layout.rows[edge.target], arrival
    for following, at in [*route, last]:
        y, next_x, next_y = top + bottoms[row], left + at, top + tops[following]
        path += f"C{x:.1f} {y + _BEND / 2:.1f} {next_x:.1f} {next_y - _BEND / 2:.1f} "
        path += f"{next_x:.1f} {next_y:.1f}"
        if following != last[0]:
            path += f"V{top + bottoms[following]:.1f}"
        row, x = following, next_x
    return f'<path d="{path}"/>'


def _boxed(frame: Frame, x: float, y: float) -> str:
    box = frame.box
    radius = 4 if box.kind == "op" else 13
    named = box.kind == "name"
    parts: list[str] = []
    if not named:
        parts.append(
            f'<rect class="{box.kind}" x="{x - frame.width / 2:.1f}" y="{y:.1f}" '
            f'width="{frame.width:.1f}" height="{frame.height:g}" rx="{radius}"/>'
        )
    at = x - frame.width / 2 if named else x
    anchor = "" if named else ' text-anchor="middle"'
    style = ' class="name"' if named else ""
    parts.append(f'<text{style} x="{at:.1f}" y="{y + 17:.1f}"{anchor}>{escape(box.title)}</text>')
    for number, line in enumerate(box.lines):
        parts.append(
            f'<text class="small of-{line.kind}" x="{at:.1f}" y="{y + 33 + number * _LINE:.1f}"'
            f"{anchor}>{escape(line.text)}</text>"
        )
    return "".join(parts)


def _notes(frame: Frame, x: float, y: float) -> Iterator[str]:
    """What is said of the values that leave, beside the edges."""
    if not frame.notes:
        return
    left = x + frame.leaves(len(frame.notes) - 1) + 6
    for number, note in enumerate(frame.notes):
        below = y + frame.height + 14 + number * _NOTE
        yield f'<text class="small" x="{left:.1f}" y="{below:.1f}">{escape(note)}</text>'
