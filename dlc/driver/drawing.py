"""The graph of entry points as a picture: operations as boxes, values with their types on the edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from dlc.dialects import array, func, weight
from dlc.driver.layered import Edge, Layout, lay_out
from dlc.errors import UsageError
from dlc.ir.core import Op, Value
from dlc.ir.types import TensorType

MAX_NODES = 3000

_CHARACTER = 7.3
"""Width of a character at 12 px in the usual monospaced fonts."""
_BOX = 26.0
_ROW = 84.0
_MARGIN = 20.0
_TITLE = 30.0
_COLOURS = {
    "input": ("#dbeafe", "#1d4ed8"),
    "weight": ("#fef3c7", "#b45309"),
    "constant": ("#f3f4f6", "#6b7280"),
    "op": ("#ffffff", "#374151"),
    "result": ("#dcfce7", "#15803d"),
}
_STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#111827}"
    ".type{font-size:11px;fill:#4b5563}.halo{font-size:11px;stroke:#fff;stroke-width:3px}"
    ".title{font-weight:bold;font-size:14px}"
    "path{fill:none;stroke:#9ca3af;stroke-width:1.3}"
)


@dataclass(frozen=True, slots=True)
class _Box:
    """What is drawn for one node; `note` is the value that leaves it, written below."""

    kind: str
    text: str
    note: str = ""

    @property
    def width(self) -> float:
        return len(self.text) * _CHARACTER + 20

    @property
    def space(self) -> float:
        """The width that it takes together with its note, which stands right of the middle."""
        return max(self.width, 2 * (len(self.note) * _CHARACTER * 0.92 + 8))


@dataclass(slots=True)
class _Graph:
    boxes: list[_Box] = field(default_factory=list[_Box])
    edges: list[Edge] = field(default_factory=list[Edge])

    def add(self, box: _Box) -> int:
        self.boxes.append(box)
        return len(self.boxes) - 1


def draw(functions: Sequence[func.Func]) -> str:
    """An SVG picture of functions, one above the other.

    Regions are not drawn: an operation that has some is one box. Raises UsageError (D0916) for functions
    that are too large to be seen.
    """
    parts: list[str] = []
    top, widest = _MARGIN, 0.0
    for function in functions:
        graph = _graph(function)
        if len(graph.boxes) > MAX_NODES:
            raise UsageError(
                f"{function.sym_name} has {len(graph.boxes)} operations, too many for a picture",
                code="D0916",
                help="--stage graph without --svg prints it",
            )
        layout = lay_out([box.space for box in graph.boxes], graph.edges)
        parts.append(f'<text class="title" x="{_MARGIN}" y="{top + 12}">{function.sym_name}</text>')
        parts += _drawn(graph, layout, top + _TITLE)
        top += _TITLE + layout.height * _ROW
        widest = max(widest, layout.width)
    width = widest + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top:.0f}" '
        f'viewBox="0 0 {width:.0f} {top:.0f}">\n<style>{_STYLE}</style>\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{chr(10).join(parts)}\n</svg>\n'
    )


def _graph(function: func.Func) -> _Graph:
    graph = _Graph()
    sources: dict[Value, int] = {}
    for name, argument in zip(function.input_names, function.body.arguments, strict=True):
        sources[argument] = graph.add(_Box("input", name, _type(argument)))
    for op in function.body:
        if op.terminator:
            break
        number = graph.add(_Box(_kind(op), _label(op), ", ".join(map(_note, op.results))))
        _connect(graph, op.operands, number, sources)
        sources.update((result, number) for result in op.results)
    results = function.results_returned
    names = function.result_names or [f"result {k}" for k in range(len(results))]
    for name, value in zip(names, results, strict=True):
        number = graph.add(_Box("result", name or function.sym_name))
        _connect(graph, (value,), number, sources)
    return graph


def _connect(
    graph: _Graph, values: Sequence[Value], target: int, sources: dict[Value, int]
) -> None:
    for port, value in enumerate(values):
        graph.edges.append(Edge(sources[value], target, port, len(values)))


def _kind(op: Op) -> str:
    match op:
        case weight.Get():
            return "weight"
        case array.Constant() | array.Fill():
            return "constant"
        case _:
            return "op"


def _label(op: Op) -> str:
    match op:
        case weight.Get(symbol=symbol):
            return symbol.name
        case array.Fill(value=value):
            return f"{value:g}" if isinstance(value, float) else str(value)
        case array.Constant(value=dense):
            return str(dense.array.tolist()) if dense.array.size <= 4 else "constant"
        case _:
            return op.name.removeprefix("array.")


def _note(value: Value) -> str:
    return f"{value.name}: {_type(value)}" if value.name else _type(value)


def _type(value: Value) -> str:
    return value.type.text if isinstance(value.type, TensorType) else str(value.type)


def _drawn(graph: _Graph, layout: Layout, top: float) -> list[str]:
    edges = [
        _curve(graph, edge, layout, route, top)
        for edge, route in zip(graph.edges, layout.routes, strict=True)
    ]
    boxes = [
        _boxed(box, _MARGIN + centre, top + row * _ROW)
        for box, centre, row in zip(graph.boxes, layout.centres, layout.rows, strict=True)
    ]
    return edges + boxes


def _curve(
    graph: _Graph,
    edge: Edge,
    layout: Layout,
    route: Sequence[tuple[int, float]],
    top: float,
) -> str:
    """From the middle below the source to a port above the target, straight through empty places."""
    x, y = _MARGIN + layout.centres[edge.source], top + layout.rows[edge.source] * _ROW + _BOX
    width = graph.boxes[edge.target].width
    port = width * ((edge.port + 1) / (edge.ports + 1) - 0.5)
    last = (
        _MARGIN + layout.centres[edge.target] + port,
        top + layout.rows[edge.target] * _ROW,
    )
    points = [(_MARGIN + at, top + row * _ROW) for row, at in route]
    path = f"M{x:.1f} {y:.1f}"
    for point_x, point_y in [*points, last]:
        bend = (point_y - y) * 0.45
        path += f" C{x:.1f} {y + bend:.1f} {point_x:.1f} {point_y - bend:.1f} {point_x:.1f} {point_y:.1f}"
        x, y = point_x, point_y
        if (point_x, point_y) != last:
            y += _BOX
            path += f" L{x:.1f} {y:.1f}"
    return f'<path d="{path}"/>'


def _boxed(box: _Box, x: float, y: float) -> str:
    fill, stroke = _COLOURS[box.kind]
    radius = 4 if box.kind == "op" else 13
    parts = [
        f'<rect x="{x - box.width / 2:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{_BOX}" '
        f'rx="{radius}" fill="{fill}" stroke="{stroke}"/>',
        f'<text x="{x:.1f}" y="{y + 17:.1f}" text-anchor="middle">{escape(box.text)}</text>',
    ]
    if box.note:
        # Once in white below, so that edges keep clear of the letters.
        parts += [
            f'<text class="{style}" x="{x + 6:.1f}" y="{y + _BOX + 15:.1f}">{escape(box.note)}</text>'
            for style in ("halo", "type")
        ]
    return "".join(parts)
