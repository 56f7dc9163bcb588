"""Calls that simulated ranks share give what one process computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.runtime.model import Model
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated

TEXT = """\
dlc 1
import nn (Linear)
dim B = 1..64

module Net() {
  use a = Linear(3, 8)
  export fn predict(x: f32[B, 3], scale: f32) -> f32[B, 8] = softmax(a(x) * scale)
  export fn centred(x: f32[B, 3]) -> f32[B, 3] = x - mean(x, axis=0)
  export fn crossed(x: f32[B, 3], y: f32[3, B]) -> f32[B, B] = x @ y
  export fn weights(n: f32[3]) -> f32[8] = a(n)
}
"""


def shared(ranks: int, rows: int, entry: str, **more: object) -> list[tuple[Any, ...]]:
    """The results of a call by rank, and the names of the entry points."""
    request = CompileRequest("net.dlm", text=TEXT, weights="init:1", ranks=ranks)
    made = make_artifact(request).artifact
    x = np.random.default_rng(2).standard_normal((rows, 3), np.float32)

    def work(at: SimulatedRanks) -> tuple[Any, ...]:
        model = Model(made, threads=1, comm=at)
        call: Any = model[entry]
        return call(x, **more), list(model.entry_points)

    whole: Any = dlc.compile(text=TEXT, weights="init:1")[entry]
    alone = whole(x, **more)
    found = run_simulated(Mesh({"data": ranks}), work)
    for result, names in found:
        assert names == ["predict", "centred", "crossed", "weights"]
        np.testing.assert_allclose(result, alone, rtol=1e-6, atol=1e-7)
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_rank_has_the_whole_result(ranks: int) -> None:
    for result, _ in shared(ranks, 8, "predict", scale=2):
        assert result.shape == (8, 8)


def test_what_is_said_of_the_whole_batch_holds() -> None:
    shared(2, 6, "centred")


def test_a_batch_without_equal_parts_is_computed_by_each() -> None:
    shared(2, 7, "predict", scale=np.float32(0.5))


def test_a_size_that_is_no_batch_is_not_divided() -> None:
    y: NDArray[np.float32] = np.ones((3, 4), np.float32)
    shared(2, 4, "crossed", y=y)
