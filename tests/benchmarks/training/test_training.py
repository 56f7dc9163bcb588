"""What `python -m benchmarks training` itself computes; no peers are needed here."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contenders.turns import ROOT, NotReady, Process, take_turns
from benchmarks.training.__main__ import table
from benchmarks.training.cases import (
    OPTIMIZERS,
    QUICK_STEPS,
    QUICK_TABLE,
    STEPS,
    TABLE,
    path_of,
    with_optimizer,
)
from benchmarks.training.steps import LIMIT, Outcome, allowed, apart, furthest
from benchmarks.training.table import row, speed
from dlc.driver.source.open import open_training
from tests.suites import every

CASES = {**TABLE, **STEPS}
QUICK = {**QUICK_TABLE, **QUICK_STEPS}


def outcome(contender: str, *turns: list[float], **facts: float) -> Outcome:
    return Outcome(
        "net", contender, 2, list(turns), {"ready_s": 1, "step_bytes": 2**20, **facts}, 0
    )


@pytest.mark.parametrize("name", CASES)
def test_a_network_gets_the_optimizer_that_all_contenders_use(name: str) -> None:
    wanted = OPTIMIZERS[CASES[name].optimizer]
    assert with_optimizer(path_of(name), wanted).count(f"  optimizer = {wanted}\n") == 1


def test_a_text_without_an_optimizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.dlm"
    path.write_text("dlc 1\nfn f(x: f32) = x\n")
    with pytest.raises(AssertionError, match="no optimizer"):
        with_optimizer(path, "sgd()")


@pytest.mark.parametrize("name", every(4, QUICK))
def test_a_batch_is_what_the_loss_of_its_network_reads(name: str) -> None:
    case = QUICK[name]
    opened = open_training(path_of(name), settings=dict(case.settings), purpose="loss")
    batch = case.batch(np.random.default_rng(1))
    assert opened.training is not None
    assert set(opened.training.inputs) == set(batch)


def test_the_furthest_gradient_is_named() -> None:
    ours = {"a": np.ones(4), "b": np.ones(4)}
    theirs = {"a": np.ones(4), "b": np.array([1, 1, 1, 1.5])}
    error, name = furthest(ours, theirs)
    assert name == "b"
    assert error == pytest.approx(0.5 / np.sqrt(5.25))


def test_peers_that_differ_from_each_other_allow_as_much_twice() -> None:
    alike, other = {"a": np.ones(1)}, {"a": np.full(1, 0.8)}
    assert allowed([alike]) == allowed([alike, alike]) == LIMIT
    assert allowed([alike, alike, other]) == pytest.approx(0.5)


def test_gradients_on_one_side_only_end_the_program() -> None:
    with pytest.raises(SystemExit, match="only one side has b"):
        furthest({"a": np.ones(1)}, {"a": np.ones(1), "b": np.ones(1)})


def test_arrays_of_other_shapes_are_infinitely_apart() -> None:
    assert apart(np.ones((1, 4)), np.ones(4)) == float("inf")


def test_a_ratio_is_that_to_the_fastest_peer() -> None:
    ours = outcome("dlc", [3, 4, 5], compile_s=2, compile_cpu_s=1, lower_bound_bytes=2**19)
    text = table([ours, outcome("torch eager", [2, 6, 7]), outcome("jax", [4, 5, 8])])
    assert "dlc / the fastest peer: best 1.50  median 0.80" in text
    assert "alive at once 0.5 MiB" in text


def test_a_speed_is_the_mean_of_the_runs_with_their_deviation() -> None:
    case = QUICK["ncf"]
    found = outcome("dlc", [16, 16], [32])
    assert speed(case, found) == (1500, pytest.approx(500 * np.sqrt(2)))
    jax = outcome("jax", [32, 32])
    late = "not ready in 120 s"
    assert row("ncf", case, [found, jax]) == (
        f"| ncf, batch of 32 samples | 1,500.0 ± 707.1 | {late} | {late} | 1,000.0 ± 0.0 |"
    )


def test_contenders_take_turns() -> None:
    code = "from benchmarks.contenders.serve import serve; serve(lambda: None, {'ready_s': 0.5})"
    command = [sys.executable, "-c", code]
    with Process("one", command, {}) as one, Process("two", command, {}) as two:
        take_turns([one, two], 2, seconds=0, least=4)
    assert [one.facts, two.facts] == [{"ready_s": 0.5}] * 2
    assert [len(turn) for process in (one, two) for turn in process.turns] == [4] * 4


def test_a_contender_that_fails_ends_the_program() -> None:
    with pytest.raises(SystemExit, match="one ended with status 3"):
        Process("one", [sys.executable, "-c", "raise SystemExit(3)"], {})


def test_a_contender_that_is_not_ready_in_time_is_ended() -> None:
    with pytest.raises(NotReady, match="late"):
        Process("late", [sys.executable, "-c", "input()"], {}, patience=0.2)


WITH_A_WORKER = """
import json, subprocess
print(json.dumps({"pid": subprocess.Popen(["sleep", "100"]).pid}), flush=True)
input()
"""


def test_what_a_contender_has_started_ends_with_it() -> None:
    with Process("one", [sys.executable, "-c", WITH_A_WORKER], {}) as one:
        state = Path(f"/proc/{one.facts['pid']}/stat")
        assert state.exists()
    end = time.monotonic() + 10
    while runs(state) and time.monotonic() < end:
        time.sleep(0.01)
    assert not runs(state)


def runs(state: Path) -> bool:
    """Whether a process has not ended; one that has stays until its parent has waited for it."""
    try:
        return state.read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_contenders_find_what_this_process_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "packages")
    code = "import os; print('\"' + os.environ['PYTHONPATH'] + '\"', flush=True); input()"
    with Process("one", [sys.executable, "-c", code], {}) as one:
        assert one.facts == os.pathsep.join([str(ROOT), "packages"])
