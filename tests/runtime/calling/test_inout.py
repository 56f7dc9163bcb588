"""`inout` parameters: a call changes the arrays that are passed for them, where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.dialects import kernel, mem
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.driver.source.open import open_model
from dlc.errors import CallError
from dlc.ir.dims import count
from dlc.ir.passes import Manager
from dlc.runtime.model import Model
from tests.suites import every

Floats = NDArray[np.float32]

STEP = """dlc 1
dim S = 1..64
module Block(D) {
  param w: f32[D, D] = normal(0.3)
  fn call(x: f32[D], k: f32[S, D], p: i32) -> (x: f32[D], k: f32[S, D]) {
    let new = update(k, x @ w, at=[p])
    return (x = x + softmax(new @ x) @ new, k = new)
  }
}
module Decoder(D = 8, L = 3) {
  use blocks = L * Block(D)
  fn stepped(x: f32[D], p: i32, ks: f32[L, S, D]) -> (x: f32[D], ks: f32[L, S, D]) {
    let (y, new) = scan (block, k) in (blocks, ks) with h = x {
      let (h2, k2) = block(h, k, p)
      next h = h2
      yield k2
    }
    return (x = y, ks = new)
  }
  export fn functional(x: f32[D], p: i32, ks: f32[L, S, D]) -> (x: f32[D], ks: f32[L, S, D]) =
    stepped(x, p, ks)
  export fn step(x: f32[D], p: i32, inout ks: f32[L, S, D]) -> f32[D] {
    let (y, new) = stepped(x, p, ks)
    set ks = new
    return y
  }
  ## Something else reads the keys before they change.
  export fn read(x: f32[D], p: i32, inout ks: f32[L, S, D]) -> (x: f32[D], before: f32[L, D]) {
    let (y, new) = stepped(x, p, ks)
    set ks = new
    return (x = y, before = sum(ks, axis=1))
  }
}
"""
STREAM = """dlc 1
dim T = 1..64
export fn chunk(xs: f32[T, 4], inout h: f32[4]) -> f32[T, 4] {
  let (last, ys) = scan x in xs with s = h {
    next s = 0.5 * s + x
    yield s
  }
  set h = last
  return ys
}
export fn swap(inout a: f32[4], inout b: f32[4]) -> f32 {
  set a = b
  set b = a
  return sum(a)
}
export fn both(x: f32[4], inout h: f32[4]) -> (y: f32[4], z: f32[4]) {
  let new = h + x
  set h = new
  return (y = new, z = 2 * new)
}
"""
INPUTS = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def decoder() -> Model:
    return dlc.compile(text=STEP, weights="init:0")


@pytest.fixture(scope="module")
def stream() -> Model:
    return dlc.compile(text=STREAM)


@pytest.mark.parametrize("level", every(2, [0, 2]))
def test_changed_arrays_have_the_bits_of_the_functional_form(level: int) -> None:
    model = dlc.compile(text=STEP, weights="init:0", level=level, verify_each=True)
    changed = np.zeros((3, 16, 8), np.float32)
    kept = changed
    for number, x in enumerate(INPUTS):
        position = np.int32(number)
        expected, kept = cast("tuple[Floats, Floats]", model.functional(x, position, kept))
        found = cast(Floats, model.step(x, position, changed))
        assert (found == expected).all()
        assert (changed == kept).all()


def test_the_plan_changes_the_keys_where_they_are() -> None:
    opened = open_model("model.dlm", text=STEP)
    Manager(opened.context).run(opened.module, pipeline("graph", "plan", 2))
    program = opened.module.symbol("step")
    assert isinstance(program, mem.Program)
    (update,) = [op for op in program.walk() if isinstance(op, kernel.Update)]
    assert mem.same_place(update.inputs[0], update.outs[0])
    assert "update in place" in [decision.what for decision in opened.context.log]
    arena = [op for op in program.walk() if isinstance(op, mem.Root) and op.kind == "arena"]
    assert all(count((root.bytes,), {"S": 64}) < 64 * 8 * 4 for root in arena)


def test_who_reads_before_the_change_reads_what_was_there(decoder: Model) -> None:
    keys = np.random.default_rng(1).standard_normal((3, 16, 8)).astype(np.float32)
    before = keys.sum(axis=1)
    expected, changed = cast(
        "tuple[Floats, Floats]", decoder.functional(INPUTS[0], np.int32(3), keys)
    )
    found, seen = cast("tuple[Floats, Floats]", decoder.read(INPUTS[0], np.int32(3), keys))
    np.testing.assert_allclose(seen, before, rtol=1e-5, atol=1e-5)
    assert (found == expected).all()
    assert (keys == changed).all()


def test_a_stream_goes_on_where_it_stopped(stream: Model) -> None:
    xs = np.random.default_rng(2).standard_normal((9, 4)).astype(np.float32)
    whole, parts = np.zeros(4, np.float32), np.zeros(4, np.float32)
    expected = cast(Floats, stream.chunk(xs, whole))
    found = [cast(Floats, stream.chunk(part, parts)) for part in (xs[:4], xs[4:5], xs[5:])]
    assert (np.concatenate(found) == expected).all()
    assert (whole == parts).all()


def test_all_assignments_take_effect_together(stream: Model) -> None:
    a, b = np.ones(4, np.float32), np.full(4, 2, np.float32)
    assert stream.swap(a, b) == 4
    assert (a.tolist(), b.tolist()) == ([2] * 4, [1] * 4)


def test_out_takes_some_of_the_results(stream: Model) -> None:
    x, h = np.ones(4, np.float32), np.zeros(4, np.float32)
    z = np.empty(4, np.float32)
    found = cast("tuple[Floats, Floats]", stream.both(x, h, out={"z": z}))
    assert found[1] is z
    assert (found[0].tolist(), z.tolist(), h.tolist()) == ([1] * 4, [2] * 4, [1] * 4)
    found = cast("tuple[Floats, Floats]", stream.both(x, h, out=(None, z)))
    assert (found[0].tolist(), z.tolist(), h.tolist()) == ([2] * 4, [4] * 4, [2] * 4)
    with pytest.raises(CallError, match=r"D0806.*shares memory with an input"):
        stream.both(x, h, out={"y": h})


class _Foreign:
    """An array of another library."""

    def __init__(self, array: Floats) -> None:
        self.array = array

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> object:
        return self.array.__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("wrap", [np.asarray, dlc.Tensor, _Foreign])
def test_arrays_of_every_kind_are_changed(stream: Model, wrap: Callable[[Floats], object]) -> None:
    h = np.zeros(4, np.float32)
    stream.both(x=np.ones(4, np.float32), h=wrap(h))
    assert h.tolist() == [1] * 4


def _frozen() -> Floats:
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("h", "why"),
    [
        (np.zeros(8, np.float32)[::2], "h is not C-contiguous"),
        (_frozen(), "h is read-only"),
        ([0, 0, 0, 0], "h is a list"),
        (0.0, "h is a float"),
    ],
)
def test_what_cannot_be_changed_in_place_is_refused(stream: Model, h: object, why: str) -> None:
    x = np.ones(4, np.float32)
    for call in (lambda: stream.both(x, h), lambda: stream.both(x=x, h=h)):
        with pytest.raises(CallError, match=rf"D0820.*{why}, and the call changes it in place"):
            call()


def test_an_array_is_passed_for_each_inout_parameter(stream: Model) -> None:
    with pytest.raises(CallError, match=r"D0801.*the input h is missing"):
        stream.both(np.ones(4, np.float32))
    x = np.ones(4, np.float32)
    with pytest.raises(CallError, match=r"D0806.*x and h share memory, and one is changed"):
        stream.both(x, x)


def test_the_signature_says_what_a_call_changes(stream: Model) -> None:
    assert "inout h: f32[4]) -> (y: f32[4], z: f32[4])" in repr(stream.both)


def test_compiling_says_what_is_copied_and_why() -> None:
    text = STREAM.replace("  return ys\n", "  return ys * h\n")
    for _ in range(2):  # the second may come from the cache
        request = CompileRequest("stream.dlm", text=text)
        notes = make_artifact(request).report.notes
        assert notes[0] == (
            "stream.dlm:4:20: h is copied at the end of each call: "
            "the value from before the call is read after the loop"
        )
