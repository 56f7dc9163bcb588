"""A slice that a loop is at stays that slice in the branches and loops inside."""

from __future__ import annotations

from typing import TypeAlias, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.interpret import evaluate_entry
from dlc.driver.run.request import CompileRequest

Pair: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32]]

PROGRAMS = {
    "a branch": "scan (row, k) in (x, c) { yield if k then row * 2 else -row }",
    "a branch, backwards": "scan (row, k) in reverse (x, c) { yield if k then row + 1 else -row }",
    "along another axis": "scan a in x along 1 { yield if all(a > 0) then a else -a }",
    "a reshape in a branch": """scan (row, k) in (x, c) {
    yield if k then reshape(transpose(reshape(row, [2, 2])), [4]) else row }""",
    "a loop around": """scan (row, k) in (x, c) {
    yield while sum(h) < 20 and k with h = abs(row) limit 9 { next h = h + abs(row) } }""",
    "a scan around": """scan row in x {
    yield scan y in x with h = row { next h = if all(y > row) then h + row else h - y } }""",
    "a scan through a slice in a branch": """scan (row, k) in (x, c) {
    yield if k then scan a in row with h = row { next h = h + a * row } else row }""",
    "branches in branches": """scan (row, k) in (x, c) with s = zeros([4]) {
    next s = if k then (if sum(s) > 1 then s + row else s - row) else row }""",
}
X = np.array([[1, 2, -3, 4], [5, -6, 7, 8], [9, 10, 11, -12], [0, 1, 1, 0]], np.float32)
C = np.array([True, False, True, False])


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_a_slice_is_the_same_inside(body: str, level: int) -> None:
    result = "f32[4]" if body.startswith("scan (row, k) in (x, c) with") else "f32[4, 4]"
    text = f"dlc 1\nexport fn f(x: f32[4, 4], c: bool[4]) -> {result} = {body}\n"
    opened = CompileRequest("f.dlm", text=text).open()
    request = CallRequest("f.dlm", inputs={"x": str(X.tolist()), "c": str(C.tolist()).lower()})
    ((_, wanted),) = evaluate_entry(opened, request)[0].values
    found = dlc.compile(text=text, level=level).entry_points["f"](X, C)
    assert np.asarray(found).tolist() == wanted.tolist()


@pytest.mark.parametrize("axis", [1, 2])
def test_what_is_yielded_may_also_be_read_in_another_shape(axis: int) -> None:
    """Its place in the stack is in pieces, and a reshape of pieces would read what lies between."""
    text = f"""\
dlc 1
export fn f(x: f32[4, 4, 4]) -> (h: f32[4, 4], y: f32[4, 4, 4]) {{
  let (h, y) = scan a in x along {axis} with h = zeros([4, 4]) {{
    let t = a * 2 + h
    next h = reshape(transpose(reshape(t, [2, 8])), [4, 4]) + t @ t
    yield t
  }}
  return (h = h, y = y)
}}
"""
    x = np.random.default_rng(axis).uniform(-0.1, 0.1, (4, 4, 4)).astype(np.float32)
    h = np.zeros((4, 4), np.float32)
    rows: list[NDArray[np.float32]] = []
    for a in np.moveaxis(x, axis, 0):
        rows.append(a * 2 + h)
        h = rows[-1].reshape(2, 8).T.reshape(4, 4) + rows[-1] @ rows[-1]
    for level in (0, 2):
        last, stack = cast("Pair", dlc.compile(text=text, level=level).entry_points["f"](x))
        np.testing.assert_allclose(last, h, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(stack, np.stack(rows, axis), rtol=1e-4, atol=1e-6)


def test_a_slice_of_stacked_weights_is_the_same_in_a_branch() -> None:
    text = """\
dlc 1
module Block { param w: f32[3] = normal()
  fn call(x: f32[3]) -> f32[3] = if sum(x) > 0 then x - abs(w) else x + 2 * abs(w)
}
module Net { use blocks = 4 * Block()
  export fn f(x: f32[3]) -> f32[3] = scan block in blocks with h = x { next h = block(h) }
}
"""
    model = dlc.compile(text=text, weights="init:3")
    weights = np.asarray(model.weights["blocks.w"])
    wanted = X[0, :3]
    for w in np.abs(weights):
        wanted = wanted - w if wanted.sum() > 0 else wanted + 2 * w
    np.testing.assert_allclose(np.asarray(model.entry_points["f"](X[0, :3])), wanted, rtol=1e-6)
