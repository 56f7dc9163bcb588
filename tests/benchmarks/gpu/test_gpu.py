"""What `python3 -m benchmarks.gpu` itself computes: ours runs on the evaluator, no peers are needed."""

from __future__ import annotations

import itertools
import math
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from numpy.typing import NDArray

import dlc
from benchmarks.contenders.turns import NotReady, Process
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import contender_dlc as gpu_contender_dlc
from benchmarks.gpu.__main__ import (
    DIFFERS,
    Outcome,
    allowed,
    furthest,
    is_compared,
    is_fault,
    write,
)
from benchmarks.gpu.case import KINDS, PRECISIONS, GpuCase
from benchmarks.gpu.cases import NETWORK_LIMITS, cases
from benchmarks.gpu.contender_dlc import contender
from benchmarks.gpu.serve import NARROW, Spec
from benchmarks.gpu.shapes import KERNELS
from benchmarks.training.cases import NETWORKS
from dlc.dialects import func
from dlc.driver.run.request import CompileRequest, make_model
from dlc.driver.source.open import open_model
from dlc.runtime.cuda import devices
from dlc.runtime.cuda.driver import Driver, NoGpu
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu
from tests.suites import every

LINE = Path(__file__).parents[2] / "gpu/line.dlm"


LAUNCHES = 2
"""Of a kernel that is timed; the evaluator takes long for each."""


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeGpu]:
    with fake_gpu() as found, pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_contender_dlc, "LAUNCHES", LAUNCHES)
        yield found


def case_of(kind: gpu.Kind, name: str, precision: gpu.Precision = "f32") -> GpuCase:
    return next(each for each in cases(kind, precision, quick=True) if each.name == name)


def spec_of(case: GpuCase, folder: Path) -> Spec:
    """The case as a contender is told it."""
    np.savez(folder / "given.npz", allow_pickle=False, **case.arrays())
    (folder / "model.dlm").write_text(case.text, encoding="utf-8")
    return Spec(
        **case.spec(),  # pyright: ignore[reportArgumentType]
        given=str(folder / "given.npz"),
        text=str(folder / "model.dlm"),
        start=str(folder / "dlc.npz"),
        results=str(folder / "dlc.npz"),
    )


def computed(name: str, given: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """What a kernel gives, by its definition."""
    x, y = given[0], given[-1]
    match name:
        case "scale":
            return [x * 2 + 1]
        case "add":
            return [x + y]
        case "gelu":
            return [x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2]
        case "softmax":
            powers = np.exp(x - x.max(-1, keepdims=True))
            return [powers / powers.sum(-1, keepdims=True)]
        case "layer_norm":
            return [(x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)]
        case "row_sum" | "column_sum":
            return [x.sum(-1 if name == "row_sum" else 0)]
        case "transpose":
            return [x.T]
        case "embedding":
            return [x[y.astype(int)]]
        case _:
            x, y, m, v = given
            m, v = 0.9 * m + 0.1 * y, np.sqrt(0.999 * v**2 + 0.001 * y * y)
            return [x - 0.001 * m / (v + 1e-6), m, v]


@pytest.mark.parametrize(
    ("precision", "name"), every(7, itertools.product(["f32", "f16", "bf16"], KERNELS))
)
def test_a_kernel_is_right_and_timed(
    precision: gpu.Precision, name: str, fake: FakeGpu, tmp_path: Path
) -> None:
    case = case_of("kernels", name, precision)
    made = contender(spec_of(case, tmp_path))
    wanted = computed(name, [np.asarray(x, np.float64) for x in case.arrays().values()])
    names = ["result", "result1", "result2"][: len(wanted)]
    results = {each: made.results[each] for each in names}
    assert furthest(results, dict(zip(names, wanted, strict=True))) <= case.limit
    before = len(fake.launched)
    assert made.measure() > 0
    assert len(fake.launched) >= before + LAUNCHES
    assert made.facts["copy_gb_s"] > 0


@pytest.mark.parametrize("kind", every(2, ["convolutions", "attention"]))
def test_convolutions_and_attention_are_right(
    kind: gpu.Kind, fake: FakeGpu, tmp_path: Path
) -> None:
    for case in cases(kind, "bf16", quick=True):
        spec = spec_of(case, tmp_path)
        found, wanted = (contender(replace(spec, device=each)).results for each in ("cuda", "cpu"))
        results = [name for name in found if name.startswith("result")]
        assert len(results) == (3 if "gradient" in case.name else 1)
        pair = ({name: each[name] for name in results} for each in (found, wanted))
        assert furthest(*pair) <= case.limit


def test_each_kernel_moves_at_least_what_goes_in_and_out() -> None:
    amounts = {case.name: case.amount for case in cases("kernels", "bf16")}
    array = 2.0 * (1 << 26)
    assert amounts["transpose"] == amounts["scale"] == 2 * array
    assert amounts["adam"] == 7 * array
    assert amounts["embedding"] == 2 * array + 4 * (1 << 16)


@pytest.mark.parametrize("precision", every(2, PRECISIONS))
def test_a_product_is_right_in_each_precision(
    precision: gpu.Precision, fake: FakeGpu, tmp_path: Path
) -> None:
    case = case_of("products", "product_48", precision)
    made = contender(spec_of(case, tmp_path))
    x, y = (np.asarray(array, np.float64) for array in case.arrays().values())
    assert furthest({"result": made.results["result"]}, {"result": x @ y}) <= case.limit
    assert made.measure() > 0


def test_a_network_is_called_with_weights_for_the_others(fake: FakeGpu, tmp_path: Path) -> None:
    def one() -> dict[str, gpu.Array]:
        return {"x": np.ones((1, 3), np.float32)}

    case = GpuCase("inference", "line", "f32", LINE.read_text("utf-8"), "guess", one, 1e-3)
    made = contender(spec_of(case, tmp_path))
    weights = made.results["weight:w"].astype(np.float64)
    wanted = {"result": np.tanh(weights.sum(keepdims=True))}
    assert furthest({"result": made.results["result"]}, wanted) < 1e-5
    assert {"upload_ms", "compute_ms", "download_ms", "ready_s"} <= made.facts.keys()
    assert made.measure() > 0


def test_a_step_of_training_leaves_losses_and_moments(fake: FakeGpu, tmp_path: Path) -> None:
    def batch() -> dict[str, gpu.Array]:
        return {"x": np.ones((3, 3), np.float32), "y": np.ones(3, np.float32)}

    case = GpuCase(
        "training", "line", "f32", LINE.read_text("utf-8"), "", batch, 1, optimizer="adam"
    )
    made = contender(spec_of(case, tmp_path))
    assert made.results["second_loss"] != made.results["loss"]
    assert made.results["moment:w"].shape == (3,)
    assert made.measure() > 0


def quick_ones(names: Iterable[str], *quick: str) -> list[ParameterSet]:
    """The names, all but some for the long tests only."""
    return [pytest.param(n, marks=() if n in quick else pytest.mark.long) for n in names]


def tiny(kind: gpu.Kind, name: str) -> GpuCase:
    """A network in bf16, so small that the evaluator runs it, and two or four examples."""
    sizes, count, known = TINY[name]
    case = case_of(kind, name.removeprefix("wide "), "bf16")

    def some() -> dict[str, gpu.Array]:
        cut = {
            key: x[:count, :7] if key == "ids" else x[:count] for key, x in case.arrays().items()
        }
        return {
            key: x.astype(np.int32) % np.int32(known) if key in ("ids", "user", "item") else x
            for key, x in cut.items()
        }

    return replace(case, settings=sizes, arrays=some)


TINY: dict[str, tuple[dict[str, int], int, int]] = {
    "mlp": ({"hidden": 16}, 4, 0),
    "gpt": ({"V": 32, "D": 16, "H": 2, "L": 1}, 2, 32),
    "minilm": ({"V": 20, "D": 24, "L": 1}, 1, 20),
    "lstm": ({"V": 16, "D": 8}, 2, 16),
    "ncf": ({"users": 12, "items": 6, "width": 4}, 4, 6),
    "wide ncf": ({"users": 20, "items": 10, "width": 8}, 4, 10),
}
"""Sizes, examples, and how many tokens or items there are."""


@pytest.mark.long
@pytest.mark.parametrize("name", quick_ones(TINY, "mlp"))
def test_a_network_in_bf16_gives_what_it_gives_on_a_processor(
    name: str, fake: FakeGpu, tmp_path: Path
) -> None:
    case = tiny("inference", name)
    spec = spec_of(case, tmp_path)
    found = contender(spec).results
    assert len(found[NARROW]) >= 6
    wanted = contender(replace(spec, device="cpu")).results
    assert furthest({"result": found["result"]}, {"result": wanted["result"]}) <= case.limit
    wide, _ = make_model(CompileRequest(spec.text, parameters=spec.settings, weights="init:1"))
    exact = wide.entry_points[case.entry](*spec.arrays().values())
    assert furthest({"result": found["result"]}, {"result": np.asarray(exact)}) > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["mlp", "gpt", "lstm", "ncf", "wide ncf"])
def test_a_step_in_bf16_is_that_of_a_processor(name: str, fake: FakeGpu, tmp_path: Path) -> None:
    case = tiny("training", name)
    spec = spec_of(case, tmp_path)
    found, wanted = (contender(replace(spec, device=each)).results for each in ("cuda", "cpu"))
    names = [key for key in found if key.startswith("moment:")]
    assert len(names) >= len(found[NARROW]) > 0
    compared = ["loss", "second_loss", *names]
    apart = furthest(*({key: each[key] for key in compared} for each in (found, wanted)))
    assert apart <= case.limit


def test_results_of_16_bits_are_numbers_on_a_processor_too(tmp_path: Path) -> None:
    (case,) = [each for each in cases("kernels", "bf16", quick=True) if each.name == "scale"]
    spec = replace(spec_of(case, tmp_path), device="cpu")
    spec.write(contender(spec).results)
    with np.load(spec.results) as file:
        found = file["result"]
    x = case.arrays()["x"].astype(np.float64)
    np.testing.assert_allclose(found, x * 2 + 1, rtol=2**-7, atol=2**-6)


def test_large_arrays_are_drawn_once_and_repeated(tmp_path: Path) -> None:
    (large,) = [each for each in cases("kernels", "f32") if each.name == "scale"]
    rows, columns = next(iter(large.arrays().values())).shape
    assert 2 * 4 * large.repeats["x"] * rows * columns == large.amount
    spec = spec_of(replace(case_of("kernels", "scale"), repeats={"x": 3}), tmp_path)
    (array,) = spec.arrays().values()
    assert array.shape == (24, 40)
    np.testing.assert_array_equal(spec.compared([array])["result"], array[-8:])


def test_every_precision_says_what_it_compares() -> None:
    titles = [
        f"{case.kind} {case.title}"
        for kind in KINDS
        for precision in PRECISIONS
        for case in cases(kind, precision)
    ]
    assert len(titles) == len(set(titles))
    for expected in (
        "products product_4096 bf16",
        "products product_30000 f32",
        "products gpt_logits f16",
        "convolutions conv5_3x3 bf16",
        "attention attention_gradient_16384x128 bf16",
        "inference resnet50_32 bf16",
        "products product_4096 tf32",
        "inference resnet50 f32",
        "inference minilm tf32",
        "inference resnet50 bf16",
        "training lstm tf32",
        "training gpt bf16",
        "kernels softmax bf16",
    ):
        assert expected in titles


def test_networks_are_compiled_for_the_one_example_that_they_are_called_with() -> None:
    assert {case.name.endswith("_32") for case in cases("inference", "f32")} == {True, False}
    for case in cases("inference", "f32", quick=True):
        opened = open_model(f"{case.name}.dlm", text=case.text, settings=case.settings)
        (function,) = [
            op
            for op in opened.module.body
            if isinstance(op, func.Func) and op.sym_name == case.entry
        ]
        assert function.bounds["B"] == (1, 1)
        assert {array.shape[0] for array in case.arrays().values()} == {1}


BOTTLENECK = """dlc 1
import "resnet50.dlm" (Bottleneck)
dim B = 1..4
module Small(F: dtype = bf16) {
  use block = Bottleneck(8, 4, 2, F)
  fn call(x: f32[B, 6, 6, 8]) -> f32[B, 3, 3, 16] = f32(block(F(x)))
}
train Small {
  data = npz("pictures.npz", x="x")
  loss(x: f32[B, 6, 6, 8]) = mean(call(x) ** 2)
  optimizer = momentum(lr=0.1)
}
"""


@pytest.mark.long
def test_a_block_of_a_residual_network_trains_in_bf16(fake: FakeGpu, tmp_path: Path) -> None:
    (tmp_path / "resnet50.dlm").write_bytes((NETWORKS / "resnet50.dlm").read_bytes())
    (tmp_path / "small.dlm").write_text(BOTTLENECK, encoding="utf-8")
    x = np.random.default_rng(1).standard_normal((2, 6, 6, 8), np.float32)
    losses: list[list[float]] = []
    for target in ("cuda", "cpu"):
        trainer = dlc.trainer(tmp_path / "small.dlm", weights="init:1", target=target)
        losses.append([trainer.step(x=x) for _ in range(2)])
        assert trainer.weights.tensor("block.down.w").dtype == "bf16"
        assert trainer.weights.tensor("block.norm1.scale").dtype == "f32"
    assert losses[0][1] < losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], NETWORK_LIMITS["bf16"])


def test_gradients_of_inner_layers_count_where_rounding_leaves_something_of_them() -> None:
    names = ["narrow", "weight:head.w", "moment:stem.0.w", "moment:head.w", "second_loss"]
    assert [is_compared(name, "") for name in names] == [False, False, True, True, True]
    assert [is_compared(name, "head.") for name in names] == [False, False, False, True, True]
    of = {case.title: case.gradients for p in PRECISIONS for case in cases("training", p)}
    assert of["gpt f32"] == of["gpt bf16"] == ""
    assert {of[f"resnet50 {p}"] for p in ("f32", "tf32", "bf16")} == {"head."}


# What comes of it ---------------------------------------------------------------------------------


class Pretended:
    """A contender that is none: its result is a number, and a call takes a millisecond."""

    def __init__(self, name: str, case: GpuCase, folder: Path, patience: float | None) -> None:
        assert (folder / "given.npz").exists()
        if name == "jax":
            raise NotReady(name)
        self.name, self.facts = name, {"ready_s": 1.0}
        self.turns: list[list[float]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of_error: object) -> None:
        self.turns.append([])

    def results(self) -> dict[str, gpu.Array]:
        return {"result": np.full(3, 2.0 if self.name == "torch.compile" else 1.0)}

    def turn(self, calls: int) -> list[float]:
        return [1.0] * calls


def test_only_those_that_agree_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "Contender", Pretended)
    case = case_of("products", "product_48", "tf32")
    effort = gpu.Effort(rounds=2, seconds=0, patience=7)
    found = {one.contender: one for one in gpu.measure(case, list(gpu.PEERS), effort)}
    assert [len(found[name].turns) for name in ("dlc", "torch eager")] == [3, 3]
    assert found["torch.compile"].missing == "differs by 5.0e-01"
    assert found["jax"].missing == "not ready after 7 s"


def outcome(contender: str, times: Sequence[float], missing: str = "", **facts: float) -> Outcome:
    turns = [list(times)] if times else []
    return Outcome("products", "product_8", "f32", contender, 1e9, turns, facts, 0, missing)


def test_results_are_as_far_apart_as_the_furthest() -> None:
    ours = {"a": np.ones(4), "b": np.ones(4)}
    theirs = {"a": np.ones(4), "b": np.full(4, 1.25)}
    assert furthest(ours, theirs) == pytest.approx(0.2)
    assert furthest(ours, {"a": np.ones(4)}) == float("inf")
    case = case_of("products", "product_48")
    assert allowed(case, [ours, theirs]) == 10 * case.limit
    near = {name: value * (1 + 2 * case.limit) for name, value in ours.items()}
    assert allowed(case, [near, ours]) == pytest.approx(4 * case.limit)
    assert allowed(case, [ours]) == case.limit


def test_the_files_have_every_time_and_what_is_missing(tmp_path: Path) -> None:
    outcomes = [
        outcome("dlc", [2.0, 1.0, 3.0]),
        outcome("torch eager", [2.0, 4.0]),
        outcome("jax", [], f"{DIFFERS} by 1e-01"),
    ]
    write(tmp_path / "new", "bench", outcomes)
    page = (tmp_path / "new/bench.md").read_text("utf-8")
    row = "| product_8 f32 | 1 (2), 1.0 | 2 (3), 0.5 | – | differs by 1e-01 | 0.50 |"
    assert row in page
    assert "- device: " in page
    assert "- commit: " in page
    data = (tmp_path / "new/bench.json").read_text("utf-8")
    assert '"turns": [' in data
    assert [is_fault(one) for one in outcomes] == [False, False, True]


def test_kernels_and_networks_have_tables_of_their_own(tmp_path: Path) -> None:
    outcomes = [
        Outcome("kernels", "add", "f32", "dlc", 3e6, [[1.0]], {"copy_gb_s": 4.0}),
        Outcome(
            "inference", "mlp", "f32", "dlc", 0, [[0.5]], {"upload_ms": 0.25, "download_ms": 0.125}
        ),
        Outcome("training", "mlp", "f32", "dlc", 0, [], {}, 0, "dlc ended with status 1"),
    ]
    write(tmp_path, "bench", outcomes)
    page = (tmp_path / "bench.md").read_text("utf-8")
    assert "| add f32 | 1 (1) | – | – | – | 75% of 4 GB/s |" in page
    assert "| mlp f32 | 0.5 (0.5) | – | – | – | 0.25, 0.125 |" in page
    assert "| mlp f32 | dlc ended with status 1 | – | – | – | – |" in page


def test_without_a_gpu_it_says_so_before_work_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(device: int) -> Driver:
        raise NoGpu("an NVIDIA GPU with its driver, and there is none here")

    monkeypatch.setattr(devices, "open_driver", none)
    assert gpu.main(["--only", "kernels"]) == 4
    assert "there is nothing to measure: the target cuda needs" in capsys.readouterr().err


def test_the_precision_of_products_is_a_setting(fake: FakeGpu, tmp_path: Path) -> None:
    found = [
        gpu_contender_dlc.settings_of(spec_of(case_of("products", "product_48", each), tmp_path))
        for each in PRECISIONS
    ]
    assert [settings.matmul_precision for settings in found] == ["ieee", "tf32", "ieee", "ieee"]
    assert {settings.target for settings in found} == {"cuda:sm_80"}


class Clock:
    """A clock that goes on where somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_run_is_over_in_time_and_a_case_that_was_not_is_measured_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake: FakeGpu
) -> None:
    clock = Clock()

    class Late(Pretended):
        """A contender that takes three seconds, if it is waited for so long."""

        def __init__(self, name: str, case: GpuCase, folder: Path, patience: float | None) -> None:
            assert patience is not None
            clock.now += min(3.0, patience)
            if patience < 3:
                raise NotReady(name)
            super().__init__(name, case, folder, patience)

        def results(self) -> dict[str, gpu.Array]:
            return {"result": np.ones(3)}

    monkeypatch.setattr(gpu, "time", clock)
    monkeypatch.setattr(gpu, "Contender", Late)
    monkeypatch.setattr(gpu, "PEERS", {name: "numpy" for name in gpu.PEERS if name != "jax"})
    case = case_of("convolutions", "conv_3x3")
    both = [replace(case, name=name) for name in ("first", "second")]

    def of(kind: gpu.Kind, precision: gpu.Precision, *, quick: bool) -> list[GpuCase]:
        return both

    monkeypatch.setattr(gpu, "cases", of)
    command = ["--only", "convolutions", "--precision", "f32", "--quick", "--out", str(tmp_path)]
    found = list[Outcome]()
    for limit, wanted in ((13, ["first"]), (8, ["first", "second"])):
        begin = clock.now
        assert gpu.main([*command, "--limit", str(limit)]) == 0
        assert clock.now - begin <= limit
        found = gpu.earlier(tmp_path, "bench-convolutions-f32")
        assert [one.name for one in found if one.contender == "dlc"] == wanted
    told = {(one.name, one.contender): one.missing for one in found}
    assert {why for (name, _), why in told.items() if name == "first"} == {""}
    assert told["second", "torch eager"] == ""
    assert told["second", "torch.compile"] == "not ready after 2 s"


def test_a_run_with_a_limit_goes_on_from_one_before(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fake: FakeGpu,
) -> None:
    measured: list[str] = []

    def measure(case: GpuCase, peers: Sequence[str], effort: gpu.Effort) -> list[Outcome]:
        measured.append(case.name)
        return [Outcome(case.kind, case.name, case.precision, "dlc", 1, [[1.0]], {})]

    monkeypatch.setattr(gpu, "measure", measure)
    command = ["--only", "products", "--precision", "f32", "--out", str(tmp_path)]
    wanted = [case.name for case in cases("products", "f32")]
    assert gpu.main([*command, "--limit", "0"]) == 0
    assert f"{len(wanted)} cases are left for the next run" in capsys.readouterr().out
    for _ in range(2):
        assert gpu.main([*command, "--limit", "100"]) == 0
        assert measured == wanted
    gpu.main([*command, "--name", wanted[0]])
    assert measured == [*wanted, wanted[0]]


def test_a_case_in_which_ours_did_not_run_is_tried_again_after_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fake: FakeGpu
) -> None:
    measured: list[str] = []
    missing = "dlc ended with status 1"

    def measure(case: GpuCase, peers: Sequence[str], effort: gpu.Effort) -> list[Outcome]:
        measured.append(case.name)
        why = missing if case.name == wanted[0] else ""
        turns = [] if why else [[1.0]]
        return [Outcome(case.kind, case.name, case.precision, "dlc", 1, turns, {}, missing=why)]

    monkeypatch.setattr(gpu, "measure", measure)
    command = ["--only", "products", "--precision", "f32", "--out", str(tmp_path), "--limit", "100"]
    wanted = [case.name for case in cases("products", "f32")]
    assert gpu.main(command) == 1
    missing = ""
    assert gpu.main(command) == 0
    assert measured == [*wanted, wanted[0]]
    found = gpu.earlier(tmp_path, "bench-products-f32")
    assert sorted(one.name for one in found) == sorted(wanted)
    assert all(one.turns for one in found)


def test_the_plan_of_thirty_minutes_has_cases_for_every_command() -> None:
    text = (Path(__file__).parents[3] / "docs/gpu_results.md").read_text("utf-8")
    rows = [row.split("|")[1:3] for row in text.splitlines() if row.startswith("| ") and "`" in row]
    plan = [(int(minutes), shlex.split(command.strip(" `"))) for minutes, command in rows]
    assert sum(minutes for minutes, _ in plan) == 30
    for minutes, words in plan:
        assert minutes <= 9
        if words[1:3] != ["-m", "benchmarks.gpu"]:
            continue
        given = gpu._parser().parse_args(words[3:])  # pyright: ignore[reportPrivateUsage]
        assert given.limit < 60 * minutes
        found = [
            case.name
            for kind in given.only
            for each in given.precision
            for case in cases(kind, each)
        ]
        assert set(given.name or found) <= set(found)


NOISY = """
import os
from benchmarks.gpu.serve import answers, serve
out = answers()
print("a table of what was tuned", flush=True)
os.write(1, b"and a line of C")
serve(out, lambda: 2.5, {"ready_s": 1.0})
"""


def test_what_libraries_print_is_no_answer() -> None:
    with Process("noisy", [sys.executable, "-c", NOISY], {}) as running:
        assert running.facts == {"ready_s": 1.0}
        assert running.turn(2) == [2.5, 2.5]
