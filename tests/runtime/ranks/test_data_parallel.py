"""Data parallel training among simulated ranks: the losses are those of one process."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.runtime.artifact.decisions import SECTION, read_decisions
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from tests.runtime.ranks.trainings import LAYERS, LSTM, artifact, batches_of, losses, model_of
from tests.suites import each_value


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        *each_value(("digits_mlp", "lstm"), (2, 4)),
        *[
            pytest.param(name, ranks, marks=pytest.mark.long)
            for name in ("digits_cnn", "char_gpt")
            for ranks in (2, 4)
        ],
    ],
)
def test_the_losses_are_those_of_one_process(name: str, ranks: int) -> None:
    model = model_of(name)
    batches = batches_of(model)
    alone = losses(artifact(model, 1), batches, None)
    made = artifact(model, ranks)

    def work(at: SimulatedRanks) -> list[float]:
        return losses(made, batches, at)

    by_rank = run_simulated(Mesh({"data": ranks}), work)
    assert all(found == by_rank[0] for found in by_rank)
    np.testing.assert_allclose(by_rank[0], alone, rtol=1e-6 if name != "digits_cnn" else 1e-5)


def test_ranks_divide_each_microbatch_and_sum_gradients_once_behind_them() -> None:
    text = LAYERS.replace("  batch = 8\n", "  batch = 8\n  accumulate = 4\n")
    batches = batches_of(text)[:5]
    batches += [{name: rows[:12] for name, rows in batches[0].items()}]  # 3 of each: no equal parts
    made = artifact(text, 2)
    shapes = [entry.inputs[0].shape for entry in made.manifest.entries]
    assert shapes[:2] == [("4*B", "6"), ("4", "B", "6")]
    by_rank = run_simulated(Mesh({"data": 2}), lambda at: losses(made, batches, at))
    assert by_rank[0] == by_rank[1]
    np.testing.assert_allclose(by_rank[0], losses(artifact(text, 1), batches, None), rtol=1e-6)
    graph = bytes(made.section("graph")).decode()
    of_rank = graph.partition("train_step_of_rank")[2].partition("func.func")[0]
    loop = of_rank.partition("flow.scan")[2]
    assert "comm." not in of_rank.replace(loop, "")
    assert of_rank.count("comm.") == of_rank.count("comm.all_reduce") == 1


@pytest.mark.long
def test_products_of_ranks_are_computed_in_16_bits_and_dlc_why_says_so() -> None:
    text = LSTM.replace("  batch = 8\n", "  batch = 8\n  precision = bf16\n")
    for ranks in (1, 2):
        said = read_decisions(bytes(artifact(text, ranks).section(SECTION))).decisions
        assert any(each.what == "compute in 16 bits" for each in said)
