"""Iterables of batches: sizes that differ from batch to batch, a length, and batches made ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import CallError, ModelError, UsageError

GRAPH = """\
dlc 1
dim N = 1..100, E = 1..500
module Graph {
  param w: f32[4, 2] = normal(0.1)
  fn call(x: f32[N, 4], source: i32[E], target: i32[E]) -> f32[N, 2] {
    let h = x @ w
    return scatter_add(h, target, h[source])
  }
  export fn scores(x: f32[N, 4], source: i32[E], target: i32[E]) -> f32[N, 2] = call(x, source, target)
}
train Graph {
  data = npy("graphs")
  loss(x: f32[N, 4], source: i32[E], target: i32[E], y: i32[N]) =
    mean(cross_entropy(call(x, source, target), y))
  optimizer = sgd(lr=LR)
}
"""
RNG = np.random.default_rng(2)


def graph(nodes: int, edges: int) -> dict[str, NDArray[np.generic]]:
    ends = RNG.integers(0, nodes, (2, edges), dtype=np.int32)
    x = RNG.normal(size=(nodes, 4)).astype(np.float32)
    return {"x": x, "source": ends[0], "target": ends[1], "y": RNG.integers(0, 2, nodes, np.int32)}


def trainer(lr: str = "0.1") -> dlc.Trainer:
    return dlc.trainer(text=GRAPH.replace("LR", lr))


def test_graphs_of_different_sizes_go_through_fit() -> None:
    graphs = [graph(30, 100), graph(50, 70), graph(20, 200)]
    fitted, stepped = trainer(), trainer()
    fitted.fit(graphs, epochs=2)
    for batch in graphs * 2:
        stepped.step(**batch)
    np.testing.assert_array_equal(fitted.trained()["w"], stepped.trained()["w"])
    assert fitted.evaluate(graphs)["loss"] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(5, np.int32)}, "N is 30 in x but 5 in y"),
        (
            {"source": np.zeros(600, np.int32), "target": np.zeros(600, np.int32)},
            "outside its bounds",
        ),
    ],
)
def test_sizes_of_one_name_are_one_size_and_within_their_bounds(
    change: dict[str, NDArray[np.generic]], message: str
) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        trainer().fit([{**graph(30, 100), **change}])
    assert caught.value.diagnostics[0].code == "D0543"


class Loader:
    """An iterable that is gone through once for each epoch, with or without a length."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def __iter__(self) -> Iterator[dict[str, NDArray[np.generic]]]:
        for _ in range(3):
            self.threads.add(threading.get_ident())
            yield graph(10, 10)


class Sized(Loader):
    def __len__(self) -> int:
        return 3


def test_an_iterable_with_a_length_says_how_many_steps_there_are() -> None:
    made = trainer("cosine(peak=0.1)")
    made.fit(Sized(), epochs=4)
    assert (made.total_steps, made.steps) == (12, 12)
    with pytest.raises(CallError, match="how many steps that has is not known"):
        trainer("cosine(peak=0.1)").fit(Loader(), epochs=4)


def test_batches_are_made_by_another_thread_where_that_is_asked_for() -> None:
    here, ahead = Sized(), Sized()
    trainer().fit(here)
    trainer().fit(ahead, ahead=2)
    assert here.threads == {threading.get_ident()}
    assert threading.get_ident() not in ahead.threads


def test_a_negative_number_of_batches_ahead_is_refused() -> None:
    with pytest.raises(UsageError, match="ahead is a whole number from 0 on, found -1"):
        trainer().fit([graph(30, 100)], ahead=-1)
