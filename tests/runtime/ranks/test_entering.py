"""Ranks begin a call together, or none of them does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import CallError, DlcError, UsageError
from dlc.runtime.model import Model
from dlc.runtime.ranks.agreement import made_by_all
from dlc.runtime.ranks.entering import Entering
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from dlc.runtime.training.trainer import Trainer
from tests.runtime.ranks.trainings import LAYERS, WORDS, artifact

TEXT = """\
dlc 1
import nn (Linear)
dim B = 1..64

module Net() {
  use a = Linear(3, 8)
  export fn predict(x: f32[B, 3]) -> f32[B, 8] = softmax(a(x))
  export fn centred(x: f32[B, 3]) -> f32[B, 3] = x - mean(x, axis=0)
}
"""
X = np.random.default_rng(2).standard_normal((8, 3), np.float32)
BATCH: dict[str, Any] = {"x": np.ones((8, 6), np.float32), "y": np.ones((8, 2), np.float32)}
Act = Callable[[Any, int], object]


def outcomes(act: Act) -> list[str]:
    """What each of two ranks raises where it does this with the model; then all call it as they should."""
    request = CompileRequest("net.dlm", text=TEXT, weights="init:1", ranks=2)
    made = make_artifact(request).artifact

    def work(at: SimulatedRanks) -> str:
        model = Model(made, threads=1, comm=at)
        message = ""
        try:
            act(model, at.rank)
        except (DlcError, ValueError) as error:
            message = str(error)
        result: Any = model["predict"](X)
        assert result.shape == (8, 8)
        return message

    return run_simulated(Mesh({"data": 2}), work)


ARGUMENTS: dict[str, Act] = {
    "another shape": lambda model, rank: model.predict(X[:, :2] if rank else X),
    "another dtype": lambda model, rank: model.predict(X.astype(complex) if rank else X),
    "nothing": lambda model, rank: model.predict(*[X][rank:]),
    "an unknown name": lambda model, rank: model.predict(**{"y" if rank else "x": X}),
    "a ragged list": lambda model, rank: model.predict([[1.0], [2.0, 3.0]] if rank else X),
    "a wrong shape of a trace": lambda model, rank: model.predict.trace(X[:, :2] if rank else X),
    "a wrong shape of a profile": lambda model, rank: model.predict.profile(X[:, :2] if rank else X),
    "no rounds": lambda model, rank: model.predict.profile(X, rounds=1 - rank),
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_where_one_rank_is_refused_the_others_say_so_and_go_on(name: str) -> None:
    first, second = outcomes(ARGUMENTS[name])
    assert first.startswith("error[D0824]: rank 1 failed, so that no rank goes on: ")
    assert second
    assert "D0824" not in second


def test_what_all_refuse_each_says_itself() -> None:
    for message in outcomes(lambda model, rank: model.predict(X[:, :2])):
        assert re.match(r"error\[D\d+\]: predict: x ", message), message


DIFFERENT: dict[str, tuple[Act, str]] = {
    "functions": (
        lambda model, rank: (model.centred if rank else model.predict)(X),
        "rank 0 calls a part of predict(B=4), and rank 1 calls a part of centred(B=4)",
    ),
    "sizes": (
        lambda model, rank: model.predict(X[: 6 if rank else 8]),
        "rank 0 calls a part of predict(B=4), and rank 1 calls a part of predict(B=3)",
    ),
    "parts": (
        lambda model, rank: model.predict(X[: 7 if rank else 8]),
        "rank 0 calls a part of predict(B=4), and rank 1 calls predict(B=7)",
    ),
}


def test_an_index_that_is_wrong_on_one_rank_leaves_no_other_waiting() -> None:
    """All indices of a call are looked at before it begins."""
    right, wrong = np.arange(4, dtype=np.int32), np.array([0, 1, 2, 99], np.int32)
    request = CompileRequest("words.dlm", text=WORDS, weights="init:1", ranks=2)
    trains, calls = artifact(WORDS, 2), make_artifact(request).artifact

    def work(at: SimulatedRanks) -> list[str]:
        trainer, model = Trainer(trains, threads=1, comm=at), Model(calls, threads=1, comm=at)
        acts: list[Callable[[Any], object]] = [lambda ids: trainer.step(ids=ids), model.at]
        told: list[str] = []
        for act in acts:
            with pytest.raises(CallError, match="the index 99 is out of range") as refused:
                act(wrong)
            told.append(refused.value.diagnostics[0].code)
            act(right)
        return told

    assert run_simulated(Mesh({"data": 2}), work) == [["D0824"] * 2, ["D0807"] * 2]


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_call_different_things_are_refused_on_all(name: str) -> None:
    act, message = DIFFERENT[name]
    for found in outcomes(act):
        assert found.startswith(f"error[D0824]: {message}")


def test_a_trace_and_a_profile_are_of_the_part_of_a_rank() -> None:
    def act(model: Any, rank: int) -> None:  # noqa: ANN401 - it has the methods of its text
        result, trace = model.predict.trace(X)
        assert result.shape == (8, 8)
        assert trace
        profile = model.predict.profile(X, rounds=6 + rank)
        assert profile.entry == "predict"
        assert profile.dims == {"B": 4}

    assert outcomes(act) == ["", ""]


def test_a_profile_of_a_step_is_of_the_part_of_a_rank_and_changes_nothing() -> None:
    made = artifact(LINE, 2)

    def work(at: SimulatedRanks) -> None:
        trainer = Trainer(made, threads=1, comm=at)
        before = {name: np.array(value) for name, value in trainer.trained().items()}
        found = trainer.profile(rounds=1, x=X, y=X[:, :1])
        assert (found.entry, found.dims, trainer.steps) == ("train_step", {"B": 4}, 0)
        assert any(row.kernel.startswith("all_reduce") for row in found.rows)
        for name, value in trainer.trained().items():
            np.testing.assert_array_equal(np.array(value), before[name])
        for _ in range(2):
            trainer.step(x=X, y=X[:, :1])
        assert trainer.rank_work.calls == 1
        assert 0 < trainer.rank_work.waited <= trainer.rank_work.seconds

    run_simulated(Mesh({"data": 2}), work)


def test_inner_values_are_refused_on_each_rank() -> None:
    for message in outcomes(lambda model, _: model.predict.values(["h"], X)):
        assert "D0811" in message


STEPS: dict[str, Callable[[int], dict[str, object]]] = {
    "another shape": lambda rank: {"x": X[:, :2] if rank else X, "y": X[:, :1]},
    "no y": lambda rank: {"x": X} if rank else {"x": X, "y": X[:, :1]},
    "another input": lambda rank: {"x": X, "y": X[:, :1], **({"z": X} if rank else {})},
    "another number of examples": lambda rank: {"x": X[: 7 if rank else 8], "y": X[:8, :1]},
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("act", ["step", "measure"])
def test_a_step_that_one_rank_refuses_none_makes(name: str, act: str) -> None:
    made = artifact(LINE, 2)

    def work(at: SimulatedRanks) -> str:
        trainer = Trainer(made, threads=1, comm=at)
        message = ""
        try:
            getattr(trainer, act)(**STEPS[name](at.rank))
        except CallError as error:
            message = str(error)
        assert trainer.steps == 0
        trainer.step(x=X, y=X[:, :1])
        return message

    first, second = run_simulated(Mesh({"data": 2}), work)
    assert first.startswith("error[D0824]")
    assert second
    assert "D0824" not in second


LINE = """\
dlc 1
import nn (Linear)
dim B = 1..64

module Line() {
  use a = Linear(3, 1)
  export fn predict(x: f32[B, 3]) -> f32[B, 1] = a(x)
}

train Line {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 3], y: f32[B, 1]) = mean((predict(x) - y) ** 2)
  optimizer = sgd(lr=0.01)
  batch = 8
}
"""


WIDE = LINE.replace("Linear(3, 1)", "Linear(4, 1)").replace("B, 3", "B, 4")
WIDE_X = np.ones((8, 4), np.float32)


def test_what_one_rank_cannot_make_none_has() -> None:
    def work(at: SimulatedRanks) -> str:
        def make() -> int:
            if at.rank == 1:
                raise UsageError("there is no file", code="D0501")
            return 1

        try:
            made_by_all(at, make)
        except DlcError as error:
            return error.diagnostics[0].message
        return ""

    found = run_simulated(Mesh({"data": 3}), work)
    others = "rank 1 failed, so that no rank goes on: there is no file"
    assert found == [others, "there is no file", others]


def test_a_rank_that_cannot_make_a_batch_ends_the_training_of_all() -> None:
    made = artifact(LINE, 2)

    def work(at: SimulatedRanks) -> tuple[str, int]:
        trainer = Trainer(made, threads=1, comm=at)

        def batches() -> Iterator[dict[str, Any]]:
            for number in range(4):
                if at.rank == 1 and number == 2:
                    raise ValueError("the camera is off")
                yield {"x": X, "y": X[:, :1]}

        try:
            trainer.fit(batches(), epochs=1)
        except (CallError, ValueError) as error:
            return str(error), trainer.steps
        return "", trainer.steps

    (first, steps), second = run_simulated(Mesh({"data": 2}), work)
    assert "rank 1 failed, so that no rank goes on: ValueError: the camera is off" in first
    assert steps == 2
    assert second == ("the camera is off", 2)


def test_a_rank_whose_data_ends_before_that_of_others_leaves_none_waiting() -> None:
    made = artifact(LINE, 2)

    def work(at: SimulatedRanks) -> tuple[str, int]:
        trainer = Trainer(made, threads=1, comm=at)
        batch = {"x": X, "y": X[:, :1]}
        trainer.fit([batch] * 2, epochs=1)
        with pytest.raises(CallError) as told:
            trainer.fit([batch] * (3 - at.rank), epochs=2)
        return told.value.diagnostics[0].message, trainer.steps

    message = "rank 0 calls a part of train_step(B=4), and rank 1 calls train_step no more"
    message += ", as its data has ended"
    assert run_simulated(Mesh({"data": 2}), work) == [(message, 4)] * 2


def test_a_checkpoint_that_one_rank_cannot_read_none_takes(tmp_path: Path) -> None:
    made = artifact(LINE, 2)
    kept = tmp_path / "kept.safetensors"

    def work(at: SimulatedRanks) -> str:
        trainer = Trainer(made, threads=1, comm=at)
        trainer.step(x=X, y=X[:, :1])
        trainer.save(kept)
        trainer.step(x=X, y=X[:, :1])
        message = ""
        try:
            trainer.resume(tmp_path / "none.safetensors" if at.rank else kept)
        except DlcError as error:
            message = error.diagnostics[0].code
        assert trainer.steps == 2
        return message

    assert run_simulated(Mesh({"data": 2}), work) == ["D0824", "D0501"]


@pytest.mark.parametrize("split", [None, "weights"])
def test_a_checkpoint_that_cannot_be_written_all_ranks_say(
    tmp_path: Path, split: Shard | None
) -> None:
    made = artifact(WIDE, 2, split)

    def work(at: SimulatedRanks) -> str:
        trainer = Trainer(made, threads=1, comm=at)
        path = tmp_path / "kept.safetensors"
        data = {"x": WIDE_X, "y": X[:, :1]}
        try:
            trainer.fit(data, checkpoint=path, report=lambda _: path.mkdir(exist_ok=True))
        except DlcError as error:
            return error.diagnostics[0].code
        return ""

    assert run_simulated(Mesh({"data": 2}), work) == ["D0502", "D0824"]


def test_a_checkpoint_that_could_not_be_written_is_refused_before_the_first_step(
    tmp_path: Path,
) -> None:
    made = artifact(LINE, 2)

    def work(at: SimulatedRanks) -> tuple[str, int]:
        trainer = Trainer(made, threads=1, comm=at)
        try:
            trainer.fit({"x": X, "y": X[:, :1]}, checkpoint=tmp_path / "none" / "kept.safetensors")
        except DlcError as error:
            return error.diagnostics[0].code, trainer.steps
        return "", trainer.steps

    assert run_simulated(Mesh({"data": 2}), work) == [("D0502", 0), ("D0824", 0)]


ALONE: dict[str, tuple[Act, str]] = {
    "save": (
        lambda trainer, rank: trainer.step(**BATCH) if rank else trainer.save("a.safetensors"),
        "[D0824]: rank 0 calls trainer.save, and rank 1 calls a part of train_step(B=4)",
    ),
    "trained": (
        lambda trainer, rank: trainer.trained() if rank else trainer.save("a.safetensors"),
        "[D0824]: rank 0 calls trainer.save, and rank 1 calls trainer.trained",
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_ranks_with_parts_do_together_none_does_alone(name: str) -> None:
    made = artifact(LAYERS, 2, "weights")
    act, message = ALONE[name]

    def work(at: SimulatedRanks) -> list[float]:
        trainer = Trainer(made, threads=1, comm=at)
        trainer.total_steps = 100
        with pytest.raises(CallError, match=re.escape(message)):
            act(trainer, at.rank)
        return [trainer.step(**BATCH)]

    first, second = run_simulated(Mesh({"data": 2}), work)
    assert first == second


def test_nobody_waits_for_a_rank_that_has_ended() -> None:
    def work(at: SimulatedRanks) -> None:
        entering = Entering.simulated(at)
        if not at.rank:
            for _ in range(2):
                with pytest.raises(CallError, match=r"D0824.*rank 1 failed.*program has ended"):
                    entering.begin("predict")
        entering.end()

    run_simulated(Mesh({"data": 2}), work)
