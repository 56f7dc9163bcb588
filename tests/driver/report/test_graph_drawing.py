"""Pictures of graphs: what the boxes say, and what no edge crosses."""

from __future__ import annotations

import operator
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dlc.driver.compile.compile import lower
from dlc.driver.compile.entries import find_function
from dlc.driver.compile.settings import Settings
from dlc.driver.drawing.layered_layout import GAP
from dlc.driver.drawing.svg import Graph, place
from dlc.driver.report.graph_drawing import graph_of
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest

PRODUCT = """\
dlc 1
fn g(x: f32[..], y: f32[..], z: f32[..]) = (x + y) * z
export fn f(x: f32[2], y: f32[2], z: f32[2]) -> (out: f32[2], dz: f32[2]) {
  let dz = vjp(g, wrt=z)(x, y, z, dy=ones([2]))
  return (out = g(x, y, z), dz = dz)
}
"""


EXAMPLES = Path(__file__).parents[3] / "examples"
SPACE = "{http://www.w3.org/2000/svg}"


def drawn(text: str) -> Graph:
    """The picture of the only entry point of a model."""
    opened = CompileRequest("f.dlm", text=text).open()
    lower(opened, Settings(), "graph")
    return graph_of(find_function(opened.module, None))


MEASURED = """\
dlc 1
dim B = 1..64
export fn positive(x: f32[B, 8]) -> (rows: f32[_, 8], doubled: f32[B, 8]) {
  let (places, _) = nonzero(sum(x, axis=1) > 0)
  return (rows = x[places[:, 0]], doubled = 2 * x)
}
"""
UPDATED = "dlc 1\nexport fn f(x: f32[4], inout n: f32[4]) -> f32[4] {\n  set n = n + x\n  return n * x\n}\n"


def test_what_a_part_of_a_weight_comes_from_is_its_name_alone() -> None:
    text = (
        "dlc 1\ndim T = 1..8\nmodule M() {\n  param w: f32[8, 4] = zeros()\n"
        "  export fn f(x: f32[T, 4]) -> f32[T, 4] = x + w[0:T]\n}\n"
    )
    boxes = drawn(text).boxes
    assert [line.text for box in boxes for line in box.lines] == ["from w"]


def test_what_is_written_over_an_argument_has_its_name() -> None:
    assert [box.title for box in drawn(UPDATED).boxes if box.kind == "result"] == ["f", "n"]


def test_a_count_that_no_caller_sees_is_no_result() -> None:
    svg = show_stage(CompileRequest("f.dlm", text=MEASURED), Shown(svg=True))
    assert ">rows<" in svg and ">doubled<" in svg


def test_the_picture_names_operations_values_and_types() -> None:
    wanted = CompileRequest("f.dlm", text=PRODUCT)
    root = ElementTree.fromstring(show_stage(wanted, Shown(svg=True)))
    texts = [element.text or "" for element in root.iter(f"{SPACE}text")]
    assert {"f", "x", "y", "z", "add", "multiply", "out", "dz"} <= set(texts)
    assert sum("f32[2]" in text for text in texts) == 5
    assert len(list(root.iter(f"{SPACE}path"))) == 6


def test_constants_and_weights_are_small_print_in_the_boxes_that_need_them() -> None:
    text = """\
dlc 1
module M {
  param once: f32[3] = ones()
  param twice: f32[3] = ones()
  export fn f(x: f32[3]) -> f32[3] = 2 ** (sin(x + once) * twice + twice)
}
"""
    graph = drawn(text)
    assert [(box.kind, box.title) for box in graph.boxes] == [
        ("input", "x"),
        ("op", "add"),
        ("op", "sin"),
        ("op", "multiply"),
        ("op", "add"),
        ("op", "power"),
        ("result", "f"),
    ]
    small = {box.title: [line.text for line in box.lines] for box in graph.boxes[1:2]}
    assert small == {"add": ["once: f32[3]"]}
    assert [line.text for line in graph.boxes[3].lines] == ["twice: f32[3]"]
    assert [line.text for line in graph.boxes[5].lines] == ["lhs 2"]


def test_a_choice_says_which_constant_is_for_what() -> None:
    text = "dlc 1\nexport fn f(x: f32[3], y: f32[3]) -> f32[3] = where(x > y, 2, where(x < y, sin(x), 0))\n"
    lines = [
        [line.text for line in box.lines] for box in drawn(text).boxes if box.title == "select"
    ]
    assert sorted(lines) == [["else 0"], ["if so, 2"]]


def test_the_body_of_a_loop_is_drawn_in_a_frame() -> None:
    text = "dlc 1\nexport fn f(x: f32[5]) -> f32 = scan a in x with s = 0 { next s = s + sin(a) }\n"
    (scan,) = [box for box in drawn(text).boxes if box.title == "scan"]
    assert scan.inside is not None
    kinds = Counter(box.kind for box in scan.inside.boxes)
    assert kinds == {"name": 1, "enter": 1, "input": 1, "op": 2, "leave": 1}
    assert [line.text for line in scan.lines] == ["5 times"]


def test_both_branches_of_a_choice_are_drawn_and_meet_where_they_leave() -> None:
    text = "dlc 1\nexport fn f(x: f32[5]) -> f32[5] = if sum(x) > 0 then sin(x) else cos(x)\n"
    (choice,) = [box for box in drawn(text).boxes if box.title == "if"]
    assert choice.inside is not None
    branches = [box for box in choice.inside.boxes if box.kind == "group"]
    assert [box.title for box in branches] == ["then", "else"]
    titles = [{b.title for b in box.inside.boxes} for box in branches if box.inside]
    assert "sin" in titles[0] and "cos" in titles[1]
    (leave,) = [n for n, box in enumerate(choice.inside.boxes) if box.kind == "leave"]
    assert len([edge for edge in choice.inside.edges if edge.target == leave]) == 2


def test_each_result_of_an_operation_leaves_at_a_place_of_its_own() -> None:
    text = """\
dlc 1
export fn f(x: f32[5]) -> (total: f32, sums: f32[5]) {
  let (total, sums) = scan a in x with s = 0 {
    next s = s + a
    yield s + a
  }
  return (total = total, sums = sums)
}
"""
    graph = drawn(text)
    leaving = [edge.result for edge in graph.edges if graph.boxes[edge.target].kind == "result"]
    assert leaving == [0, 1]
    placed = place(graph)
    (scan,) = [frame for frame in placed.frames if frame.box.title == "scan"]
    assert abs(scan.leaves(0) - scan.leaves(1)) >= GAP


def test_a_module_is_a_frame_around_its_operations() -> None:
    text = """\
dlc 1
import nn (Linear)
module Block(n) {
  use up = Linear(n, n)
  use down = Linear(n, n)
  fn call(x: f32[2, n]) = x + down(relu(up(x)))
}
module M {
  use blocks = chain(Block(3), Block(3))
  export fn f(x: f32[2, 3]) -> f32[2, 3] = exp(blocks(x))
}
"""
    root = ElementTree.fromstring(show_stage(CompileRequest("f.dlm", text=text), Shown(svg=True)))
    names = [e.text for e in root.iter(f"{SPACE}text") if e.get("class") == "name"]
    assert names == ["blocks.0", "blocks.1"]


@pytest.mark.parametrize("name", ["poly", "lenet", "byte_lm", "tiny_gpt"])
@pytest.mark.parametrize("stage", ["graph", "kernel"])
def test_no_edge_of_an_example_crosses_a_letter(name: str, stage: str) -> None:
    wanted = CompileRequest(str(EXAMPLES / f"{name}.dlm"))
    root = ElementTree.fromstring(show_stage(wanted, Shown(stage, svg=True)))
    letters = [letters_of(element) for element in root.iter(f"{SPACE}text")]
    points = [p for path in root.iter(f"{SPACE}path") for p in points_of(path.get("d", ""))]
    assert len(letters) > 10 and len(points) > 100
    assert not [
        (x, y)
        for x, y in points
        for left, right, top, bottom in letters
        if left < x < right and top < y < bottom
    ]


def letters_of(element: ElementTree.Element) -> tuple[float, float, float, float]:
    """The rectangle of a text: left, right, top, bottom."""
    x, y = float(element.get("x", "")), float(element.get("y", ""))
    width = 6.5 * len(element.text or "")
    left = x - width / 2 if element.get("text-anchor") == "middle" else x
    return left, left + width, y - 9, y + 2


def points_of(path: str) -> list[tuple[float, float]]:
    """Points along a path of absolute moves, verticals and cubic curves."""
    points: list[tuple[float, float]] = []
    for letter, numbers in re.findall(r"([MVC])([^MVC]*)", path):
        values = [float(number) for number in numbers.split()]
        match letter, values:
            case "M", [x, y]:
                points.append((x, y))
            case "V", [y]:
                x, start = points[-1]
                points += [(x, start + (y - start) * k / 16) for k in range(1, 17)]
            case "C", [_, _, _, _, x, y]:
                points += along_curve(points[-1], values)
            case other:
                raise AssertionError(other)
    return points


def along_curve(start: tuple[float, float], values: list[float]) -> list[tuple[float, float]]:
    xs, ys = [start[0], *values[0::2]], [start[1], *values[1::2]]
    found: list[tuple[float, float]] = []
    for k in range(1, 17):
        t = k / 16
        weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
        x, y = (sum(map(operator.mul, weights, along)) for along in (xs, ys))
        found.append((x, y))
    return found
