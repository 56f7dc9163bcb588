"""The graph of an entry point for the page: boxes, edges, and the rows in which they stand.

Rows and their order are settled here, by `dlc.driver.drawing.layered_layout`; the script of the page finds
places from them and from the sizes of boxes, which change where a module opens or closes.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.driver.drawing.layered_layout import lay_out
from dlc.driver.drawing.svg import Box, Frame, Graph
from dlc.driver.report.page.schema import JsonBox, JsonGraph


def graph_data(graph: Graph) -> JsonGraph:
    """A graph with its rows, each from left to right, and the places through which its edges pass."""
    boxes = graph.boxes
    extents = [Frame(box, None).extent for box in boxes]
    first = [number for number, box in enumerate(boxes) if box.kind in ("name", "enter")]
    last = [number for number, box in enumerate(boxes) if box.kind == "leave"]
    layout = lay_out(extents, graph.edges, first, last)
    return {
        "boxes": [_box(box) for box in boxes],
        "edges": [[edge.source, edge.target, edge.port, edge.result] for edge in graph.edges],
        "rows": _lists(layout.order),
        "places": _lists(layout.places),
    }


def _lists(numbers: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(each) for each in numbers]


def _box(box: Box) -> JsonBox:
    data: JsonBox = {
        "kind": box.kind,
        "title": box.title,
        "lines": [[line.kind, line.text] for line in box.lines],
        "notes": list(box.notes),
        "ports": box.ports,
        "key": box.key,
    }
    if box.inside is not None:
        data["inside"] = graph_data(box.inside)
    return data
