"""Boxes and arrows as SVG, in light and in dark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate

from dlc.driver.layered_layout import Edge, Layout, lay_out

MARGIN = 20.0
TITLE = 32.0

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
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of small print in a box."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Box:
    """The box of one node: a title, small print, and below it a note for each value that leaves.

    `kind` is input, weight, constant, op or result; `ports` is how many edges end at it.
    """

    kind: str
    title: str
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    ports: int = 0

    @property
    def width(self) -> float:
        small = max([len(line.text) * _SMALL for line in self.lines], default=0.0)
        text = max(len(self.title) * _CHARACTER, small) + 20
        return max(text, (max(self.ports, len(self.notes)) + 1) * _PORT)

    @property
    def height(self) -> float:
        return _BOX + (len(self.lines) * _LINE + 5 if self.lines else 0)

    @property
    def extent(self) -> tuple[float, float]:
        """Its extent from the middle, with its notes, which stand right of the outgoing edges."""
        longest = max([len(note) * _SMALL for note in self.notes], default=0.0)
        notes = self.leaves(len(self.notes) - 1) + 6 + longest
        return self.width / 2, max(self.width / 2, notes)

    def leaves(self, result: int) -> float:
        """The offset from the middle at which the edges of a result leave."""
        return self.width * ((result + 1) / (max(len(self.notes), 1) + 1) - 0.5)


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
        layout = lay_out([box.extent for box in graph.boxes], graph.edges)
        rows = _Rows.of(graph, layout, top + TITLE)
        parts.append(f'<text class="title" x="{MARGIN:g}" y="{top + 12:g}">{escape(title)}</text>')
        parts += [
            _curve(graph.boxes, edge, layout, route, rows)
            for edge, route in zip(graph.edges, layout.routes, strict=True)
        ]
        parts += [
            _boxed(box, MARGIN + centre, rows.tops[row])
            for box, centre, row in zip(graph.boxes, layout.centres, layout.rows, strict=True)
        ]
        top = rows.end + MARGIN
        widest = max(widest, layout.width, len(title) * 9.0)
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
        ".small{font-size:11px}.title{font-weight:bold;font-size:14px}\n"
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


@dataclass(frozen=True, slots=True)
class _Rows:
    """The start of each row, and the ends of its boxes and of their notes."""

    tops: tuple[float, ...]
    bottoms: tuple[float, ...]
    end: float

    @classmethod
    def of(cls, graph: Graph, layout: Layout, top: float) -> _Rows:
        heights = [0.0] * layout.height
        for box, row in zip(graph.boxes, layout.rows, strict=True):
            notes = len(box.notes) * _NOTE + 6 if box.notes else 0
            heights[row] = max(heights[row], box.height + notes)
        tops = tuple(accumulate((height + _BEND for height in heights), initial=top))[:-1]
        bottoms = tuple(top + height for top, height in zip(tops, heights, strict=True))
        return cls(tops, bottoms, bottoms[-1] if bottoms else top)


def _curve(
    boxes: Sequence[Box],
    edge: Edge,
    layout: Layout,
    route: Sequence[tuple[int, float]],
    rows: _Rows,
) -> str:
    """From below the source to a port above the target.

    Between boxes and notes an edge goes straight down, and it bends only where there are none, so that
    it crosses no letter.
    """
    source, target = boxes[edge.source], boxes[edge.target]
    row = layout.rows[edge.source]
    x = MARGIN + layout.centres[edge.source] + source.leaves(edge.result)
    path = f"M{x:.1f} {rows.tops[row] + source.height:.1f}V{rows.bottoms[row]:.1f}"
    arrival = target.width * ((edge.port + 1) / (target.ports + 1) - 0.5)
    last = layout.rows[edge.target], layout.centres[edge.target] + arrival
    for following, at in [*route, last]:
        y, next_x, next_y = rows.bottoms[row], MARGIN + at, rows.tops[following]
        path += f"C{x:.1f} {y + _BEND / 2:.1f} {next_x:.1f} {next_y - _BEND / 2:.1f} "
        path += f"{next_x:.1f} {next_y:.1f}"
        if following != last[0]:
            path += f"V{rows.bottoms[following]:.1f}"
        row, x = following, next_x
    return f'<path d="{path}"/>'


def _boxed(box: Box, x: float, y: float) -> str:
    radius = 4 if box.kind == "op" else 13
    parts = [
        f'<rect class="{box.kind}" x="{x - box.width / 2:.1f}" y="{y:.1f}" '
        f'width="{box.width:.1f}" height="{box.height:g}" rx="{radius}"/>',
        f'<text x="{x:.1f}" y="{y + 17:.1f}" text-anchor="middle">{escape(box.title)}</text>',
    ]
    for number, line in enumerate(box.lines):
        parts.append(
            f'<text class="small of-{line.kind}" x="{x:.1f}" y="{y + 33 + number * _LINE:.1f}" '
            f'text-anchor="middle">{escape(line.text)}</text>'
        )
    left = x + box.leaves(len(box.notes) - 1) + 6
    for number, note in enumerate(box.notes):
        below = y + box.height + 14 + number * _NOTE
        parts.append(f'<text class="small" x="{left:.1f}" y="{below:.1f}">{escape(note)}</text>')
    return "".join(parts)
