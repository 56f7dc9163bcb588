"""What a certificate says of a compiled model: right at every size, and true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.errors import InternalError
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.certificate import Certificate, plan_at, read_certificate
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.plan import Plan
from dlc.runtime.model import Model
from tests.driver.diff.planting import forget_next_iteration, reuse_too_early
from tests.suites import every


def compiled(text: str, level: int = 2) -> Artifact:
    opened = open_model("m.dlm", text=f"dlc 1\n{text}\n")
    artifact = compile_model(opened, Settings(level), "init:0")
    Model(artifact)  # checks the plans at the bounds of the dims
    return artifact


def certificate_of(artifact: Artifact) -> Certificate:
    program = artifact.manifest.targets[0].programs["f"]
    return read_certificate(bytes(artifact.section(program.certificate)))


def plan(artifact: Artifact, dims: Mapping[str, int] | None = None) -> Plan:
    """The plan of `f` at these sizes."""
    program = artifact.manifest.targets[0].programs["f"]
    sizes = size_expressions.evaluate_all(program.sizes, dims or {})
    return plan_at(certificate_of(artifact), dims or {}, sizes)


CHAIN = """dim B = 1..64
export fn f(x: f32[B, 16]) -> f32[B] {
  let y = cumsum(x, axis=1)
  let z = sort(y, axis=1)
  return sum(cumsum(z, axis=1), axis=1)
}"""


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_bounds_are_at_most_the_arena_at_every_size(rows: int) -> None:
    found = plan(compiled(CHAIN), {"B": rows})
    # Each step but the first and the last reads one array and writes another.
    assert found.any_order_bound == 2 * 64 * rows
    assert found.any_order_bound <= found.order_bound <= found.arena


def test_a_kernel_that_could_work_in_place_needs_its_operand_alone() -> None:
    chain = "export fn f(x: f32[16, 16]) -> f32[16, 16] = cumsum(exp(cumsum(x, axis=1)), axis=1)"
    found = plan(compiled(chain, level=0))
    assert (found.any_order_bound, found.order_bound) == (1024, 1024)


EMPTY = """dim N = 1..64
export fn f(x: f32[N, 16]) -> f32[N, 16] {
  let a = cumsum(x, axis=1)
  let b = sort(x, axis=1)
  let e = sort(a[1:], axis=1)
  let g = cumsum(b[1:], axis=1)
  let s = sum(sort(e + g, axis=1))
  let h = sort(a + s, axis=1)
  return cumsum(b + sum(h), axis=1)
}"""


@pytest.mark.parametrize("level", [0, 2])
def test_what_is_empty_ties_no_call_to_another_and_the_rest_is_held_in_any_order(
    level: int,
) -> None:
    artifact = compiled(EMPTY, level)
    # Without `e` and `g`, of one row less, nothing makes `b` before `a` is done with.
    assert plan(artifact, {"N": 1}).any_order_bound == 2 * 64
    assert plan(artifact, {"N": 2}).any_order_bound >= 3 * 64 * 2


READ_IN_LOOP = """dim T = 1..9
export fn f(x: f32[T, 4], h0: f32[4]) -> f32[4] {
  let a = sort(h0, axis=0)
  let h = scan t in x with h = h0 {
    let b = sort(t * a, axis=0)
    next h = cumsum(sort(b + h, axis=0), axis=0)
  }
  return h
}"""


@pytest.mark.parametrize(
    ("text", "plant", "wave"),
    [(CHAIN, reuse_too_early, 1), (READ_IN_LOOP, forget_next_iteration, 6)],
    ids=["one wave early", "before the next iteration"],
)
def test_memory_that_is_given_away_too_early_is_noticed_by_every_compilation(
    text: str,
    plant: Callable[[pytest.MonkeyPatch], None],
    wave: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    monkeypatch.setenv("DLC_CACHE", "")
    with pytest.raises(
        InternalError, match=rf"root r\d is used in wave {wave}, and is live from 0"
    ):
        compiled(text)


def test_every_root_and_view_says_which_line_it_comes_from() -> None:
    said = certificate_of(compiled(CHAIN))
    places = [*[root.place for root in said.roots], *[view.place for view in said.views]]
    assert {place.rpartition(":")[0] for place in places} == {"m.dlm:4", "m.dlm:5", "m.dlm:6"}


SCAN = """dim T = 1..9
export fn f(x: f32[T, 4], h0: f32[4]) -> f32[T, 4] {
  let (.., ys) = scan t in x with h = h0 {
    next h = sort(h + t, axis=0)
    yield h
  }
  return cumsum(ys, axis=0)
}"""


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_a_view_that_a_loop_moves_is_as_large_as_its_way(steps: int) -> None:
    found = plan(compiled(SCAN), {"T": steps})
    stack = next(view for view in found.views if view.bytes == 16 * steps)
    assert found.roots[stack.root].bytes >= 16 * steps


BACKWARD = """dim N = 0..6
export fn f(x: f64[N, 2]) -> (last: f64[2], sums: f64[N, 2], sorted: f64[N, 2]) {
  let (c, v) = scan r in reverse x with c = zeros([2], dtype=f64) {
    let s = sort(c + r, axis=0)
    next c = s
    yield cumsum(s, axis=0)
  }
  return (last = c, sums = v, sorted = sort(v, axis=1))
}"""


@pytest.mark.parametrize("level", [0, 2])
def test_a_loop_without_rounds_that_goes_backward_begins_nowhere_else(level: int) -> None:
    model = Model(compiled(BACKWARD, level))
    last, sums, in_order = called(model, np.zeros((0, 2)))
    assert (last.tolist(), sums.shape, in_order.shape) == ([0, 0], (0, 2), (0, 2))
    last, sums, in_order = called(model, np.array([[2.0, 1.0], [5.0, -4.0]]))
    assert last.tolist() == [-2, 6]
    assert sums.tolist() == [[-2, 4], [-4, 1]]
    assert in_order.tolist() == [[-2, 4], [-4, 1]]


def called(model: Model, x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The results of `f`."""
    found = cast("tuple[object, ...]", model["f"](x))
    return [np.asarray(each, np.float64) for each in found]


def test_the_same_bytes_are_listed_once() -> None:
    views = sorted((v.root, v.offset, v.bytes) for v in certificate_of(compiled(CHAIN)).views)
    assert all(one != other for one, other in pairwise(views))


CTC = """import nn (ctc)
dim T = {lower}..
fn loss(x: f32[2, T, 3], y: i32[2, 2], n: i32[2]) -> f32 = ctc(x, y, full([2], T, i32), n)
export fn f(x: f32[2, T, 3], y: i32[2, 2], n: i32[2]) -> f32[2, T, 3] = grad(loss, wrt=x)(x, y, n)"""


@pytest.mark.parametrize("lower", every(2, [1, 2]))
def test_an_empty_array_that_lies_where_another_begins_does_not_end_that_one(lower: int) -> None:
    # Of T = 1 the loop has no rounds: what it stacks is empty, and the next array begins at its address.
    artifact = compiled(CTC.format(lower=lower), level=0)
    assert plan(artifact, {"T": 2}).any_order_bound > 640
    entry = Model(artifact).entry_points["f"]
    for length in (lower, 2, 3, 40):
        assert entry.working_memory(T=length) > 0  # it checks the plan
