"""Stacked modules and loops over what is known before the call: weights and constants."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.programs import Program

STACK = """dlc 1
module Layer(D) {
  param w: f32[D, D] = normal(0.5)
  param b: f32[D] = normal(1.0)
  fn call(x: f32[.., D]) -> f32[.., D] = tanh(x @ w + b)
}
module Group(D, M) {
  use layers = M * Layer(D)
  fn call(x: f32[.., D]) -> f32[.., D] = scan layer in layers with h = x { next h = layer(h) }
}
module Net(D = 3, L = 2, M = 3) {
  use groups = L * Group(D, M)
  export fn forth(x: f32[4, D]) -> f32[4, D] = scan g in groups with h = x { next h = g(h) }
  export fn back(x: f32[4, D]) -> f32[4, D] = scan g in reverse groups with h = x { next h = g(h) }
  export fn one(x: f32[4, D]) -> f32[4, D] = groups[1](x)
}
"""


@pytest.mark.parametrize("entry", ["forth", "back", "one"])
def test_a_stack_of_stacks_is_its_layers_one_after_the_other(entry: str) -> None:
    random = np.random.default_rng(0)
    w = random.standard_normal((2, 3, 3, 3)).astype(np.float32)
    b = random.standard_normal((2, 3, 3)).astype(np.float32)
    x = random.standard_normal((4, 3)).astype(np.float32)
    order = {"forth": [0, 1], "back": [1, 0], "one": [1]}[entry]
    wanted = x
    for group in order:
        for layer in range(3):
            wanted = np.tanh(wanted @ w[group, layer] + b[group, layer])
    program = Program(STACK, weights={"groups.layers.w": w, "groups.layers.b": b})
    np.testing.assert_allclose(program.result(entry, x), wanted, rtol=1e-4, atol=1e-5)


def test_a_stack_without_blocks_changes_nothing() -> None:
    x = np.ones((4, 3), np.float32)
    text = STACK.replace("groups[1](x)", "x")
    found = Program(text, settings={"L": 0}, weights="init:0").result("forth", x)
    np.testing.assert_array_equal(found, x)


def test_loops_walk_through_constants_along_any_axis() -> None:
    text = """dlc 1
const table = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
export fn rows(x: f32[3]) -> f32[3] = scan t in table with s = x { next s = 2 * s + t }
export fn columns(x: f32[2]) -> f32[2] =
  scan t in reverse table along 1 with s = x { next s = 2 * s + t }
"""
    program = Program(text)
    rows = program.result("rows", np.zeros(3, np.float32))
    np.testing.assert_array_equal(rows, [2 * 1 + 4, 2 * 2 + 5, 2 * 3 + 6])
    columns = program.result("columns", np.zeros(2, np.float32))
    np.testing.assert_array_equal(columns, [4 * 3 + 2 * 2 + 1, 4 * 6 + 2 * 5 + 4])
