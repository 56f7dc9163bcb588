"""What `python3 -m benchmarks.gpu` itself computes: ours runs on the evaluator, no peers are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from benchmarks import gpu, gpu_contender_dlc
from benchmarks.gpu import DIFFERS, Outcome, allowed, furthest, is_fault, write
from benchmarks.gpu_cases import KINDS, PRECISIONS, GpuCase, cases
from benchmarks.gpu_contender_dlc import contender
from benchmarks.gpu_serve import Spec
from benchmarks.turns import NotReady
from dlc.dialects import func
from dlc.driver.open import open_model
from dlc.runtime.cuda import devices
from dlc.runtime.cuda.driver import Driver, NoGpu
from tests.runtime.fake_gpu import FakeGpu, fake_gpu

LINE = Path(__file__).parents[1] / "gpu/line.dlm"


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeGpu]:
    with fake_gpu() as found:
        yield found


def case_of(kind: gpu.Kind, name: str, precision: gpu.Precision = "f32") -> GpuCase:
    return next(each for each in cases(kind, precision, quick=True) if each.name == name)


def spec_of(case: GpuCase, folder: Path) -> Spec:
    """The case as a contender is told it."""
    np.savez(folder / "given.npz", allow_pickle=False, **case.arrays())
    (folder / "model.dlm").write_text(case.text, encoding="utf-8")
    return Spec(
        kind=case.kind,
        name=case.name,
        precision=case.precision,
        entry=case.entry,
        repeats=case.repeats,
        settings=dict(case.settings),
        optimizer=case.optimizer,
        given=str(folder / "given.npz"),
        text=str(folder / "model.dlm"),
        start=str(folder / "dlc.npz"),
        results=str(folder / "dlc.npz"),
    )


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["scale", "add", "row_sum"])
def test_a_kernel_is_right_and_timed(
    name: str, precision: gpu.Precision, fake: FakeGpu, tmp_path: Path
) -> None:
    case = case_of("kernels", name, precision)
    made = contender(spec_of(case, tmp_path))
    arrays = list(case.arrays().values())
    x = np.asarray(arrays[0], np.float64)
    wanted = {
        "scale": x * 2 + 1,
        "add": x + np.asarray(arrays[-1], np.float64),
        "row_sum": x.sum(-1),
    }[name]
    assert furthest({"result": made.results["result"]}, {"result": wanted}) <= case.limit
    assert made.measure() > 0
    assert made.facts["copy_gb_s"] > 0


@pytest.mark.parametrize("precision", PRECISIONS)
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


def test_large_arrays_are_drawn_once_and_repeated(tmp_path: Path) -> None:
    (large,) = [each for each in cases("kernels", "f32") if each.name == "scale"]
    rows, columns = next(iter(large.arrays().values())).shape
    assert 2 * 4 * large.repeats * rows * columns == large.amount
    spec = spec_of(replace(case_of("kernels", "scale"), repeats=3), tmp_path)
    (array,) = spec.arrays().values()
    assert array.shape == (24, 40)
    np.testing.assert_array_equal(spec.compared(array), array[-8:])


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
        "products product_4096 tf32",
        "inference resnet50 f32",
        "inference minilm tf32",
        "training lstm tf32",
        "kernels softmax bf16",
    ):
        assert expected in titles


def test_networks_are_compiled_for_the_one_example_that_they_are_called_with() -> None:
    for case in cases("inference", "f32", quick=True):
        opened = open_model(f"{case.name}.dlm", text=case.text, settings=case.settings)
        (function,) = [
            op
            for op in opened.module.body
            if isinstance(op, func.Func) and op.sym_name == case.entry
        ]
        assert function.bounds["B"] == (1, 1)
        assert {array.shape[0] for array in case.arrays().values()} == {1}


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
    def none(device: int = 0) -> Driver:
        raise NoGpu("an NVIDIA GPU with its driver, and there is none here")

    monkeypatch.setattr(devices, "open_driver", none)
    assert gpu.main(["--only", "kernels"]) == 4
    assert "there is nothing to measure: the target cuda needs" in capsys.readouterr().err


def test_the_precision_of_products_is_a_setting(fake: FakeGpu, tmp_path: Path) -> None:
    found = [
        gpu_contender_dlc.settings_of(spec_of(case_of("products", "product_48", each), tmp_path))
        for each in PRECISIONS
    ]
    assert [settings.matmul_precision for settings in found] == ["ieee", "tf32", "ieee"]
    assert {settings.target for settings in found} == {"cuda:sm_80"}
