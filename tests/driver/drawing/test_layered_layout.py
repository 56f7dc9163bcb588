"""Layered layouts: every box has its place, no two overlap, edges lead down."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from dlc.driver.drawing.layered_layout import GAP, Edge, lay_out
from tests.suites import together


@together("seed", range(20))
def test_boxes_of_a_row_keep_apart_and_edges_lead_down(seed: int) -> None:
    choose = random.Random(seed)
    count = choose.randrange(1, 40)
    extents = [(choose.uniform(5, 100), choose.uniform(5, 200)) for _ in range(count)]
    pairs = {(choose.randrange(k), k) for k in range(1, count) for _ in range(2)}
    edges = [Edge(*pair) for pair in sorted(pairs)]
    layout = lay_out(extents, edges)
    for edge, route in zip(edges, layout.routes, strict=True):
        rows = [layout.rows[edge.source], *[row for row, _ in route], layout.rows[edge.target]]
        assert rows == list(range(rows[0], rows[0] + len(rows)))
    for row in range(layout.height):
        boxes = sorted(
            (layout.centres[k] - extents[k][0], layout.centres[k] + extents[k][1])
            for k in range(count)
            if layout.rows[k] == row
        )
        assert all(right + GAP <= left + 1e-6 for (_, right), (left, _) in pairwise(boxes))
    assert all(0 <= x <= layout.width + 1e-6 for x in layout.centres)


def test_boxes_stand_in_the_order_in_which_a_reader_takes_them() -> None:
    layout = lay_out([(5, 5)] * 3, [Edge(0, 2, port=1), Edge(1, 2, port=0)])
    assert layout.order == ((1, 0), (2,))
    layout = lay_out([(5, 5)] * 3, [Edge(0, 1, result=1), Edge(0, 2, result=0)])
    assert layout.order == ((0,), (2, 1))


@pytest.mark.parametrize("seed", [0, 1, 60])
def test_an_order_has_no_more_crossings_than_that_in_which_boxes_come(seed: int) -> None:
    chosen = random.Random(seed)
    pairs = [
        (k, 6 + m)
        for k in range(6)
        for m in range(6)
        if (m in (k, (k + 1) % 6) and chosen.random() < 0.8) or chosen.random() < 0.08
    ]
    edges = [Edge(source, target, 1, 1) for source, target in pairs]
    layout = lay_out([(5, 5)] * 12, edges)
    found = {node: place for row in layout.order for place, node in enumerate(row)}
    assert _crossings(pairs, found) <= _crossings(pairs, dict(enumerate([*range(6)] * 2)))


def _crossings(pairs: list[tuple[int, int]], at: dict[int, int]) -> int:
    return sum((at[a] - at[c]) * (at[b] - at[d]) < 0 for (a, b), (c, d) in combinations(pairs, 2))


def test_a_tree_is_drawn_without_detours() -> None:
    layout = lay_out([(5, 5)] * 4, [Edge(0, 2), Edge(1, 2), Edge(2, 3)])
    assert layout.centres[2] == pytest.approx(layout.centres[3])
    assert layout.centres[2] == pytest.approx((layout.centres[0] + layout.centres[1]) / 2)
