"""Pictures of graphs: every box has its place, no two overlap, edges lead down."""

from __future__ import annotations

import random
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from dlc.driver.layered import GAP, Edge, lay_out
from dlc.driver.make import Wanted
from dlc.driver.show import Shown, show_stage

PRODUCT = """\
dlc 1
fn g(x: f32[..], y: f32[..], z: f32[..]) = (x + y) * z
export fn f(x: f32[2], y: f32[2], z: f32[2]) -> (out: f32[2], dz: f32[2]) {
  let dz = vjp(g, wrt=z)(x, y, z, dy=ones([2]))
  return (out = g(x, y, z), dz = dz)
}
"""


@pytest.mark.parametrize("seed", range(20))
def test_boxes_of_a_row_keep_apart_and_edges_lead_down(seed: int) -> None:
    choose = random.Random(seed)
    count = choose.randrange(1, 40)
    widths = [choose.uniform(10, 200) for _ in range(count)]
    pairs = {(choose.randrange(k), k) for k in range(1, count) for _ in range(2)}
    edges = [Edge(*pair) for pair in sorted(pairs)]
    layout = lay_out(widths, edges)
    for edge, route in zip(edges, layout.routes, strict=True):
        rows = [layout.rows[edge.source], *[row for row, _ in route], layout.rows[edge.target]]
        assert rows == list(range(rows[0], rows[0] + len(rows)))
    for row in range(layout.height):
        boxes = sorted(
            (layout.centres[k] - widths[k] / 2, layout.centres[k] + widths[k] / 2)
            for k in range(count)
            if layout.rows[k] == row
        )
        assert all(right + GAP <= left + 1e-6 for (_, right), (left, _) in pairwise(boxes))
    assert all(0 <= x <= layout.width + 1e-6 for x in layout.centres)


def test_a_tree_is_drawn_without_detours() -> None:
    layout = lay_out([10, 10, 10, 10], [Edge(0, 2), Edge(1, 2), Edge(2, 3)])
    assert layout.centres[2] == pytest.approx(layout.centres[3])
    assert layout.centres[2] == pytest.approx((layout.centres[0] + layout.centres[1]) / 2)


def test_the_picture_names_operations_values_and_types() -> None:
    wanted = Wanted("f.dlm", text=PRODUCT)
    root = ElementTree.fromstring(show_stage(wanted, Shown(svg=True)))
    space = "{http://www.w3.org/2000/svg}"
    elements = [e for e in root.iter(f"{space}text") if e.get("class") != "halo"]
    texts = [element.text or "" for element in elements]
    assert {"f", "x", "y", "z", "add", "multiply", "out", "dz"} <= set(texts)
    assert sum("f32[2]" in text for text in texts) == 5
    assert len(list(root.iter(f"{space}path"))) == 6
