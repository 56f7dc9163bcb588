"""Programs on several devices: what is sent, where memory lies, and that the numbers are the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.dialects import func, mem
from dlc.dialects.comm import Recv, Send
from dlc.driver.compile.compile import compile_model, lower
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model, open_training
from dlc.driver.source.source_model import SourceModel
from dlc.errors import Unsupported
from dlc.passes.graph.device_placement import devices_of
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.artifact.spelling import python_name
from dlc.text.ir.printer import print_module
from tests.frontend.programs import Program, as_list
from tests.suites import every

MOVED = """dlc 1
dim N = 1..64
export fn f(x: f32[N, 4], y: f32[N, 4]) -> (f32[N, 4], f32[N]) {
  let h = on cpu:1 { exp(x) * 2 + y }
  let k = on cpu:2 { sum(h * x, axis=1) }
  return (h - x, k)
}
"""
LOOPS = """dlc 1
export fn f(x: f32[5, 4], s: f32[4]) -> (f32[4], f32[5, 4], f32[4]) {
  let (h, ys) = scan a in x with h = s {
    let b = on cpu:1 { tanh(a * h) }
    next h = b + h
    yield on cpu:1 { b * 2 }
  }
  let (w, n) = on cpu:1 {
    while sum(w) < 100 with w = h * h + 1, n = 0 limit 50 { next w = w * 2  next n = n + 1 }
  }
  let c = if n > 3 then on cpu:1 { w + h } else h
  return (h, ys, c)
}
"""
SLOPES = """dlc 1
fn loss(x: f32[3, 4], w: f32[4, 4]) -> f32 {
  let h = on cpu:1 { tanh(x @ w) }
  let (c, ys) = scan a in h with c = zeros([4]) {
    let d = on cpu:1 { sin(a * c + a) }
    next c = c * 0.5 + d
    yield c
  }
  return sum(ys * h) + sum(c)
}
export fn f(x: f32[3, 4], w: f32[4, 4]) -> (f32, f32[3, 4], f32[4, 4]) {
  let (l, (dx, dw)) = value_and_grad(loss, wrt=(x, w))(x, w)
  return (l, dx, dw)
}
export fn plain(x: f32[3, 4], w: f32[4, 4]) -> f32[4, 4] = grad(loss, wrt=w)(x, w)
"""


def random(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def on_one_device(text: str) -> str:
    return text.replace("cpu:1", "cpu").replace("cpu:2", "cpu")


def opened_at(text: str, stage: str, level: int = 2) -> SourceModel:
    opened = open_model("model.dlm", text=text)
    lower(opened, Settings(level), stage)
    return opened


@pytest.mark.parametrize("level", every(3, [0, 1, 2, 3]))
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        pytest.param(MOVED, [(7, 4), (7, 4)], id="moved"),
        pytest.param(LOOPS, [(5, 4), (4,)], id="loops"),
        pytest.param(SLOPES, [(3, 4), (4, 4)], id="slopes"),
    ],
)
def test_the_bits_do_not_depend_on_where_it_runs(
    text: str, shapes: list[tuple[int, ...]], level: int
) -> None:
    inputs = [random(*shape) for shape in shapes]
    wanted = as_list(dlc.compile(text=on_one_device(text), level=1).f(*inputs))
    found = as_list(dlc.compile(text=text, level=level, verify_each=level == 2).f(*inputs))
    for one, other in zip(found, wanted, strict=True):
        if level < 2:
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("level", [0, 2])
def test_a_value_is_sent_once_to_each_device_that_needs_it(level: int) -> None:
    opened = opened_at(MOVED, "kernel", level)
    ways = Counter((op.source, op.target) for op in opened.module.walk() if isinstance(op, Send))
    assert ways == {
        ("cpu:0", "cpu:1"): 2,  # x and y
        ("cpu:0", "cpu:2"): 1,  # x
        ("cpu:1", "cpu:0"): 1,  # h
        ("cpu:1", "cpu:2"): 1,  # h
        ("cpu:2", "cpu:0"): 1,  # k
    }
    assert sum(isinstance(op, Recv) for op in opened.module.walk()) == 6


@pytest.mark.parametrize("text", [MOVED, LOOPS, SLOPES])
def test_each_operation_reads_what_is_where_it_runs(text: str) -> None:
    for stage in ("graph", "kernel"):
        opened = opened_at(text, stage)
        for function in [op for op in opened.module.body if isinstance(op, func.Func)]:
            devices = devices_of(function)
            for op in function.walk():
                if isinstance(op, Send):
                    assert devices.get(op.inputs[0], op.source) == op.source
                elif not isinstance(op, Recv) and op.operands[:1] and op.operands[0] in devices:
                    here = {devices[operand] for operand in op.operands if operand in devices}
                    assert len(here) == 1, op


def test_each_device_has_a_part_of_the_arena_and_a_plan_of_its_own() -> None:
    opened = opened_at(MOVED, "plan")
    (program,) = [op for op in opened.module.body if isinstance(op, mem.Program)]
    parts: dict[str, set[int]] = {}
    for root in program.body:
        if isinstance(root, mem.Root) and root.kind == "arena":
            parts.setdefault(root.device or "cpu:0", set()).add(root.number)
    assert parts.keys() == {"cpu:0", "cpu:1", "cpu:2"}
    # What is lowest on a device lies above all of the device before, everything else above its own.
    for root in program.body:
        if isinstance(root, mem.Root) and root.kind == "arena":
            below = set(root.above or ())
            own = parts[root.device or "cpu:0"]
            assert below <= own or below in parts.values()


def test_kernels_on_different_devices_are_never_one() -> None:
    text = """dlc 1
export fn f(x: f32[64]) -> f32[64] = on cpu:1 { (x * 2 + 1) * x } - exp(x)
"""
    opened = opened_at(text, "kernel")
    kinds = Counter(
        op.name for op in opened.module.walk() if op.name.startswith(("kernel.generic", "comm"))
    )
    assert kinds == {"kernel.generic": 2, "comm.send": 2, "comm.recv": 2}


def test_the_derivative_of_a_transfer_is_one_the_other_way() -> None:
    program = Program(SLOPES, levels=(0, 2))
    x, w = random(3, 4), random(4, 4)
    program.run("f", x, w)
    opened = opened_at(SLOPES, "graph", 0)
    ways = Counter((op.source, op.target) for op in opened.module.walk() if isinstance(op, Send))
    assert ways["cpu:0", "cpu:1"] and ways["cpu:1", "cpu:0"]


def test_the_graph_in_an_artifact_is_placed_and_compiles_to_the_same_plan(tmp_path: Path) -> None:
    model = dlc.compile(text=MOVED)
    model.save(tmp_path / "model.dlc")
    again = dlc.compile(tmp_path / "model.dlc", level=3, matmul="generated")
    x, y = random(7, 4), random(7, 4)
    for one, other in zip(as_list(again.f(x, y)), as_list(model.f(x, y)), strict=True):
        np.testing.assert_array_equal(one, other)
    plan = str(again.artifact.section("plan"), "utf-8")
    assert plan.count('"comm.send"') == 6


TRAINED = """dlc 1
import nn (Linear, BatchNorm)
dim B = 1..8
module Net {{
  use first = Linear(4, 8) {one}
  use even = BatchNorm(8) {two}
  use last = Linear(8, 3)
  fn logits(x: f32[B, 4]) -> f32[B, 3] = x |> first |> even |> tanh |> last
}}
train Net {{
  data = npz("examples.npz", x="x", y="y")
  loss(x: f32[B, 4], y: i32[B]) = mean(cross_entropy(logits(x), y))
  optimizer = adam(lr=0.1, clip_norm=1)
  batch = 8
  epochs = 1
}}
"""


def trained(one: str, two: str, level: int) -> list[bytes]:
    """The bits of everything that two steps of training give: the loss, weights, states and moments."""
    opened = open_training("model.dlm", text=TRAINED.format(one=one, two=two))
    step = dlc.Model(compile_model(opened, Settings(level), "init:0")).entry_points["train_step"]
    draw = np.random.default_rng(0)
    given: dict[str, object] = {}
    for item in step.inputs:
        shape = tuple(8 if size == "B" else int(size) for size in item.shape)
        numbers = 3 * np.abs(draw.random(shape))
        given[python_name(item.name)] = numbers.astype(DTYPES[item.dtype].numpy)
    results: list[object] = []
    for _ in range(2):
        results = list(as_list(step(**given)))  # pyright: ignore[reportArgumentType]
    return [np.asarray(result).tobytes() for result in results]


@pytest.mark.parametrize("level", every(2, [2, 0]))
def test_training_does_not_depend_on_where_it_runs(level: int) -> None:
    assert trained("on cpu:1", "on cpu:2", level) == trained("", "", level)


def test_a_device_without_code_is_refused_in_a_graph_too(tmp_path: Path) -> None:
    graph = print_module(open_model("model.dlm", text=MOVED).module).replace("cpu:2", "cuda:1")
    (tmp_path / "model.dlir").write_text(graph, encoding="utf-8")
    with pytest.raises(Unsupported, match="there is no code for cuda:1 yet") as caught:
        dlc.compile(tmp_path / "model.dlir")
    assert [found.code for found in caught.value.diagnostics] == ["D0707"]
