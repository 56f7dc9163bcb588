"""Training and calls by the stages of a pipeline of simulated ranks: as one process computes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, get_ident
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver.call_memory.needs import need_of
from dlc.driver.compile.compile import Report
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.driver.run.train import plan_training
from dlc.errors import CallError, DlcError, Unsupported
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import OF_RANK, STEP
from dlc.runtime.calling.specialization import Specializations
from dlc.runtime.loaded_code import load_code
from dlc.runtime.model import Model
from dlc.runtime.ranks.links import SimulatedChannel
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from dlc.runtime.training.trainer import Trainer
from tests.runtime.ranks.trainings import EXAMPLES, LSTM, batches_of, losses

TIED = """\
dlc 1
import nn (BatchNorm, Dropout)
dim B = 1..64
mesh stage = 3

module Tied(H = 8) {
  param w: f32[H, H] = normal(0.3)
  use norm = BatchNorm(H)
  use drop = Dropout(0.2)
  export fn predict(x: f32[B, 8]) -> f32[B, 8] {
    let h = on stage 0 { tanh(x @ w) }
    let g = on stage 1 { drop(norm(h @ w + h)) }
    return on stage 2 { g @ transpose(w) + h }
  }
}

train Tied {
  data = npz("data.npz", x="x", y="y", test=0.25)
  loss(x: f32[B, 8], y: f32[B, 8]) = mean((predict(x) - y) ** 2) + 0.01 * sum(w ** 2)
  metric error(x: f32[B, 8], y: f32[B, 8]) = mean(abs(predict(x) - y))
  optimizer = adam(lr=0.01, clip_norm=1)
  average = ema(decay=0.9)
  batch = 8
  accumulate = 4
}
"""


def text_of(name: str) -> str:
    """The text of a model whose parts are on two stages, with four microbatches; one of them on three."""
    if name == "tied":
        return TIED
    text = LSTM if name == "lstm" else (EXAMPLES / f"{name}.dlm").read_text()
    text = text.replace("\ndim B", "\nmesh stage = 2\ndim B", 1)
    match name:
        case "lstm":
            changes = {
                "head(lstm(x)[0][:, -1])": "on stage 1 { head(on stage 0 { lstm(x)[0][:, -1] }) }"
            }
        case "digits_mlp":
            changes = {
                "use net = chain(flatten, Linear(64, hidden), relu, Linear(hidden, 10))": (
                    "use low = chain(flatten, Linear(64, hidden), relu) on stage 0\n"
                    "  use high = Linear(hidden, 10) on stage 1"
                ),
                "net(f32(image) / 16)": "f32(image) / 16 |> low |> high",
            }
        case "digits_cnn":
            changes = {
                "max_pool2d(2))\n  use head": "max_pool2d(2)) on stage 0\n  use head",
                "Linear(256, 10))": "Linear(256, 10)) on stage 1",
            }
        case _:
            changes = {
                "use blocks = L * Block(D, H)": (
                    "use low = Block(D, H) on stage 0\n  use high = Block(D, H) on stage 1"
                ),
                "scan block in blocks with h = emb[ids] + place[:T] { next h = block(h) }": (
                    "high(low(on stage 0 { emb[ids] + place[:T] }))"
                ),
            }
    for old, new in {**changes, "\n  batch = ": "\n  accumulate = 4\n  batch = "}.items():
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def trains(text: str, ranks: int = 1, split: Shard | None = None) -> Artifact:
    """The artifact that trains a model, by so many ranks."""
    return plan_training(CompileRequest(path="", text=text)).artifact(Report(), ranks, split)


@pytest.mark.parametrize(
    "name",
    [
        "tied",
        *[
            pytest.param(name, marks=pytest.mark.long)
            for name in ("lstm", "digits_mlp", "digits_cnn", "char_gpt")
        ],
    ],
)
def test_the_losses_are_those_of_one_process(name: str) -> None:
    text = text_of(name)
    batches = batches_of(text)
    alone = losses(trains(text), batches, None)
    stages = 3 if name == "tied" else 2
    made = trains(text, stages)
    mesh = Mesh({"stage": stages})
    found = [run_simulated(mesh, lambda at: losses(made, batches, at)) for _ in range(2)]
    assert found[0] == found[1]
    assert all(own == found[0][0] for own in found[0])
    np.testing.assert_allclose(found[0][0], alone, rtol=1e-6)


@pytest.mark.parametrize(
    ("axes", "split"),
    [
        ({"data": 2, "stage": 3}, None),
        pytest.param({"stage": 3, "data": 2}, "weights", marks=pytest.mark.long),
        pytest.param({"stage": 3, "model": 2}, None, marks=pytest.mark.long),
        pytest.param({"data": 2, "stage": 3, "model": 2}, "optimizer", marks=pytest.mark.long),
    ],
)
def test_the_ranks_of_a_stage_divide_batches_and_weights(
    axes: Mapping[str, int], split: Shard | None, tmp_path: Path
) -> None:
    batches, mesh = batches_of(TIED), Mesh(axes)
    text = TIED.replace("stage = 3", ", ".join(f"{name} = {size}" for name, size in axes.items()))
    if "model" in axes:
        text = text.replace("f32[H, H] =", "f32[H, H] split (none, model) =")
    made, index = trains(text, mesh.size, split), tmp_path / "tied.safetensors.index.json"

    def work(at: SimulatedRanks) -> tuple[list[float], dict[str, float], set[str]]:
        trainer = Trainer(made, threads=1, comm=at)
        found = [trainer.step(**batch) for batch in batches]
        trainer.save(index)
        return found, trainer.measure(**batches[0]), set(trainer.weights)

    first, *others = run_simulated(mesh, work)
    assert all(found[:2] == first[:2] for found in others)
    alone = Trainer(trains(TIED), threads=1)
    np.testing.assert_allclose(first[0], [alone.step(**batch) for batch in batches], rtol=1e-6)
    expected = pytest.approx(alone.measure(**batches[0]), rel=1e-6)
    assert first[1] == expected
    resumed = Trainer(trains(TIED), threads=1)
    resumed.resume(index)
    assert resumed.measure(**batches[0]) == expected
    assert not any("norm.scale" in names and "w" in names for _, _, names in (first, *others))


@pytest.mark.parametrize("axes", [{"stage": 3}, {"data": 2, "stage": 3}])
def test_a_stage_measures_the_next_batch_while_later_ones_compute(
    axes: Mapping[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last stage takes nothing until the first one has sent two batches; the third is not divided."""
    random = np.random.default_rng(5)
    data = {name: random.standard_normal((28, 8), np.float32) for name in ("x", "y")}
    alone = Trainer(trains(TIED), threads=1).evaluate(data)
    made = trains(
        TIED.replace("stage = 3", ", ".join(f"{k} = {n}" for k, n in axes.items())), Mesh(axes).size
    )
    two_are_sent, numbers = Event(), Counter[tuple[int, int, int]]()
    send, receive = SimulatedChannel.send, SimulatedChannel.receive

    def sending(self: SimulatedChannel, target: int, tag: int, array: NDArray[Any]) -> None:
        send(self, target, tag, array)
        if self.stage == 0:
            numbers[get_ident(), target, tag] += 1
            if max(numbers.values()) == 2:
                two_are_sent.set()

    def receiving(self: SimulatedChannel, source: int, tag: int, array: NDArray[Any]) -> None:
        assert self.stage < 2 or two_are_sent.wait(20)
        receive(self, source, tag, array)

    monkeypatch.setattr(SimulatedChannel, "send", sending)
    monkeypatch.setattr(SimulatedChannel, "receive", receiving)
    found = run_simulated(Mesh(axes), lambda at: Trainer(made, threads=1, comm=at).evaluate(data))
    assert all(own == found[0] for own in found)
    assert found[0] == pytest.approx(alone, rel=1e-6)


def test_a_rank_of_a_stage_computes_its_part_of_each_microbatch() -> None:
    made = trains(TIED.replace("mesh stage", "mesh data = 2, stage"), 6)
    staged = next(each for each in made.manifest.staged if each.interface.name == STEP + OF_RANK)
    assert [item.shape for item in staged.interface.inputs[:2]] == [("4", "B", "8")] * 2


def test_a_stage_holds_its_own_weights_and_the_first_rank_writes_all() -> None:
    made, alone = trains(TIED, 3), Trainer(trains(TIED), threads=1)

    def work(at: SimulatedRanks) -> tuple[set[str], dict[str, NDArray[np.generic]]]:
        trainer = Trainer(made, threads=1, comm=at)
        return set(trainer.weights), trainer.trained()

    by_rank = run_simulated(Mesh({"stage": 3}), work)
    names = [own for own, _ in by_rank]
    assert "w" in names[0]
    assert {"norm.scale", "norm.shift", "$optimizer.norm.scale.m"} < names[1]
    assert not names[2]
    assert sorted([*names[0], *names[1]]) == sorted(alone.weights)
    first, *others = [trained for _, trained in by_rank]
    assert first.keys() == alone.trained().keys()
    for name, array in alone.trained().items():
        np.testing.assert_array_equal(first[name], array)
    assert not any(others)


def test_stages_write_a_checkpoint_of_several_files_that_one_process_reads(tmp_path: Path) -> None:
    index, made = tmp_path / "tied.safetensors.index.json", trains(TIED, 3)

    def work(at: SimulatedRanks) -> dict[str, NDArray[np.generic]]:
        trainer = Trainer(made, threads=1, comm=at)
        trainer.save(index)
        return trainer.trained()

    first = run_simulated(Mesh({"stage": 3}), work)[0]
    alone = Trainer(trains(TIED), threads=1)
    alone.resume(index)
    for name, array in alone.trained().items():
        np.testing.assert_array_equal(first[name], array)


def calls(text: str) -> Artifact:
    """The artifact with the entry points of a model, by three stages."""
    return make_artifact(CompileRequest(path="", text=text, weights="init:3", ranks=3)).artifact


def test_stages_call_an_entry_point_as_one_process() -> None:
    made = calls(TIED)
    x = np.random.default_rng(1).standard_normal((5, 8), np.float32)
    alone = make_artifact(CompileRequest(path="", text=TIED, weights="init:3")).artifact
    expected = np.asarray(Model(alone).predict(x))
    for found in run_simulated(Mesh({"stage": 3}), lambda at: Model(made, comm=at).predict(x)):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


def errors_of(make: Callable[[Model, SimulatedRanks], object]) -> list[str]:
    """What a call raises, by rank."""
    made = calls(TIED)

    def work(at: SimulatedRanks) -> str:
        model = Model(made, comm=at)
        with pytest.raises(CallError) as error:
            make(model, at)
        return str(error.value)

    return run_simulated(Mesh({"stage": 3}), work)


def test_a_rank_with_other_sizes_ends_the_call_on_all_of_them() -> None:
    x = np.zeros((6, 8), np.float32)
    for error in errors_of(lambda model, at: model.predict(x[: 2 + at.rank // 2])):
        assert "D0824" in error
        assert "rank 0 calls predict(B=2), and rank 2 calls predict(B=3)" in error


def test_a_rank_that_refuses_its_arguments_ends_the_call_on_all_of_them() -> None:
    x = np.zeros((6, 8), np.float32)
    first, *others = errors_of(lambda model, at: model.predict(x if at.rank else x[:, :3]))
    assert "D0803" in first
    for error in others:
        assert "D0824" in error
        assert "rank 0 failed" in error


WRONG = {
    "values go back": (
        "on stage 2 { g @ transpose(w) + h }",
        "on stage 0 { on stage 2 { g @ transpose(w) + h } + g }",
        "stage 0 cannot use f32[B, 8], which stage 2 computes",
    ),
    "a loop is on two": (
        "return on stage 2 { g @ transpose(w) + h }",
        "return scan i in 0..2 with u = g { next u = on stage 2 { 3 * h } + on stage 1 { 2 * u } }",
        "a loop or a choice is on one stage",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_divided_is_refused_at_its_line(what: str) -> None:
    old, new, message = WRONG[what]
    text = TIED.replace(old, new)
    assert text != TIED
    with pytest.raises(DlcError) as error:
        trains(text, 3)
    assert "D0383" in str(error.value)
    assert message in str(error.value)
    assert ":13:" in str(error.value)


def test_where_a_rank_is_lost_all_stages_start_again_and_of_others_those_that_divide_batches() -> (
    None
):
    assert plan_training(CompileRequest(path="", text=TIED)).ranks_without_one(3) == 3
    text = LSTM.replace("batch = 8", "batch = 12")
    assert plan_training(CompileRequest(path="", text=text)).ranks_without_one(6) == 4


@pytest.mark.parametrize(
    "mesh", ["stage = 3", pytest.param("stage = 3, data = 2", marks=pytest.mark.long)]
)
def test_a_limit_of_memory_counts_what_a_rank_has_of_weights(mesh: str) -> None:
    text = TIED.replace("stage = 3", mesh).replace("H = 8", "H = 64").replace("B, 8", "B, 64")
    split = "weights" if "data" in mesh else None
    made = trains(text, 6 if split else 3, split)
    rows = {row.name: row.bytes // (2 if split else 1) for row in made.manifest.weights}
    homes, loaded = made.manifest.homes, load_code(made, untrusted=True)
    entries = {entry.name: entry for entry in made.manifest.entries}
    for part in [part for staged in made.manifest.staged for part in staged.parts]:
        entry = entries[part.entry]
        at = Specializations(entry, loaded.programs[entry.name]).at_bounds()[-1]
        own = sum(bytes for name, bytes in rows.items() if homes.get(name) == part.stage)
        assert own <= need_of(made, loaded, entry, at).weights <= own + 64 * len(rows)


def test_a_limit_of_memory_that_stages_cannot_keep_is_told() -> None:
    text = """dlc 1
dim B = 1..64
mesh stage = 2

module Line() {
  param w: f32[8, 8] = normal(0.3)
  fn predict(x: f32[B, 8]) -> f32[B, 8] = on stage 1 { (on stage 0 { tanh(x @ w) }) * 2 }
}

train Line {
  loss(x: f32[B, 8]) = mean(predict(x) ** 2)
  optimizer = sgd(lr=0.1)
  batch = 8
}
"""
    request = CompileRequest(path="", text=text, settings=Settings(max_memory=256))
    with pytest.raises(Unsupported, match=r"D0706.*part of stage 0 in train_step needs"):
        plan_training(request).artifact(Report(), 2)


def test_another_number_of_ranks_than_stages_is_refused() -> None:
    with pytest.raises(DlcError, match="D0936"):
        trains(TIED, 2)


def test_stages_on_a_gpu_are_refused() -> None:
    request = CompileRequest(path="", text=TIED, settings=Settings(target="cuda:sm_90"))
    with pytest.raises(Unsupported, match="D0701"):
        plan_training(request).artifact(Report(), 3)


def test_one_process_computes_all_stages() -> None:
    assert not trains(TIED).manifest.staged
