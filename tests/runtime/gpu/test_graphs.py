"""What is launched again is launched as a graph, of which each call in flight has its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from threading import Barrier, Thread
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import CallError
from dlc.runtime.abi import Root
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.cuda.driver import Driver, Kernel
from dlc.runtime.gpu.errors import WAIT
from dlc.runtime.gpu.launching import MAX_KEPT, CachedSegment, Launcher
from dlc.runtime.gpu.segments import Launch, Segment
from dlc.runtime.gpu.steps import IMMEDIATE
from dlc.runtime.model import Model
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu

TEXT = """dlc 1
dim B = 1..16
export fn folded(x: f32[B, 3]) -> f32[B] = exp(sum(x, axis=1)) * 2
export fn root(a: f32) -> f32 =
  while abs(x * x - a) > 1e-5 with x = a limit 100 { next x = (x + a / x) / 2 }
export fn picked(x: f32[4], i: i64[B]) -> f32[B] = x[i]
export fn walked(x: f32[4], i: i64[2]) -> f32 =
  while s >= 0 with s = 0.0 limit 5 { next s = s + sum(x[i]) }
export fn sides(x: f32[B, 3, 2]) -> (f32[3, 2], f32[B, 2], f32[B, 3]) =
  (sum(cumsum(x, axis=0), axis=0), sum(cumsum(x, axis=1), axis=1), sum(cumsum(x, axis=2), axis=2))
"""


@pytest.fixture
def fake() -> Iterator[FakeGpu]:
    with fake_gpu() as found:
        yield found


@pytest.fixture
def model(fake: FakeGpu) -> Model:
    return dlc.compile(text=TEXT, target="cuda")


def numbers(rows: int) -> NDArray[np.float32]:
    return np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)


def right(found: object, x: NDArray[np.float32]) -> None:
    values = found.values() if isinstance(found, Tensor) else found
    np.testing.assert_allclose(np.asarray(values, np.float32), np.exp(x.sum(1)) * 2, rtol=1e-5)


def test_the_second_call_makes_a_graph_and_the_third_launches_it(
    fake: FakeGpu, model: Model
) -> None:
    x = numbers(4)
    right(model.folded(x), x)
    assert fake.graphs == []
    right(model.folded(x), x)
    (graph,) = fake.graphs
    x = numbers(4) + 1
    right(model.folded(x), x)
    assert fake.graphs == [graph]
    assert (graph.launches, graph.changes) == (2, 0)


def test_the_graphs_of_the_last_eight_sizes_are_kept(fake: FakeGpu, model: Model) -> None:
    for rows in range(1, MAX_KEPT + 2):
        for _ in range(2):
            right(model.folded(numbers(rows)), numbers(rows))
    gc.collect()
    assert [graph.is_free for graph in fake.graphs] == [True] + [False] * MAX_KEPT
    right(model.folded(numbers(2)), numbers(2))
    assert fake.graphs[1].launches == 2


def test_a_graph_follows_memory_that_has_moved(fake: FakeGpu, model: Model) -> None:
    small, large = numbers(2), numbers(16)
    for _ in range(2):
        right(model.folded(small), small)
    (graph,) = fake.graphs
    for _ in range(2):
        right(model.folded(large), large)  # takes larger blocks than there were
    right(model.folded(small), small)
    right(model.folded(small), small)
    assert graph.launches == 3


def test_only_kernels_that_are_given_what_moved_are_changed(fake: FakeGpu, model: Model) -> None:
    arrays = [numbers(4) + k for k in range(3)]
    tensors = [Tensor(x).to("cuda") for x in arrays]
    result = Tensor(np.zeros(4, np.float32)).to("cuda")
    for x, tensor in zip([*arrays, *arrays[1:]], [*tensors, *tensors[1:]], strict=True):
        model.folded(tensor, out=result)
        right(result, x)
    (graph,) = fake.graphs
    assert graph.launches == 4
    # The one kernel, whenever the array was another than in the call before.
    assert len(graph.nodes) == 1
    assert graph.changes == 3


def test_kernels_of_a_wave_are_launched_side_by_side(fake: FakeGpu, model: Model) -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 2)).astype(np.float32)
    for _ in range(3):
        found = cast("Sequence[object]", model.sides(x))
        for axis, one in enumerate(found):
            wanted = np.cumsum(x, axis).sum(axis)
            np.testing.assert_allclose(np.asarray(one), wanted, rtol=1e-4, atol=1e-4)
    (graph,) = fake.graphs
    assert len({tuple(node.after) for node in graph.nodes}) < len(graph.nodes)


class Edges:
    """Notes behind which nodes each node of a graph stands."""

    def __init__(self) -> None:
        self.after: list[Sequence[object]] = []
        self.joints: list[int] = []

    def create_graph(self) -> str:
        return "graph"

    def add_kernel_node(
        self, graph: str, kernel: Kernel, tiles: int, words: object, after: Sequence[object]
    ) -> int:
        self.after.append(list(after))
        return len(self.after) - 1

    def add_empty_node(self, graph: str, after: Sequence[object]) -> int:
        self.joints.append(len(self.after))
        self.after.append(list(after))
        return self.joints[-1]

    def instantiate(self, graph: str) -> None: ...

    def launch_graph(self, graph: str, stream: int) -> None: ...

    def destroy_graph(self, graph: str) -> None: ...


def edges(*launches: tuple[int, bool]) -> Edges:
    """The graph of kernels of these waves, of which some use scratch."""
    noted = Edges()
    words = {False: ((IMMEDIATE, 7),), True: ((IMMEDIATE, 7), (Root.SCRATCH.value, 0))}
    segment = Segment(
        tuple([Launch(0, 1, words[scratch], 0, wave) for wave, scratch in launches]), 0, (), ()
    )
    launcher = Launcher(cast(Driver, noted), [Kernel("function", 32)], 1)
    launcher.launch(CachedSegment(segment), [0] * len(Root), again=True)
    return noted


def test_what_has_no_barrier_between_stands_side_by_side() -> None:
    assert edges((0, False), (0, False), (1, False)).after == [[], [], [0, 1]]
    assert edges((0, False), (1, False), (1, False)).after == [[], [0], [0]]


def test_many_behind_many_have_a_node_between() -> None:
    noted = edges((0, False), (0, False), (1, False), (1, False))
    assert noted.after == [[], [], [0, 1], [2], [2]]
    assert noted.joints == [2]


def test_what_uses_scratch_stands_one_behind_the_other() -> None:
    """There is one scratch for all kernels of a call."""
    assert edges((0, True), (0, False), (0, True), (0, True)).after == [[], [], [0], [2]]
    assert edges((0, True), (1, True)).after == [[], [0]]


def test_a_graph_whose_change_fails_is_changed_as_a_whole_the_next_time(
    fake: FakeGpu, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = [Tensor(numbers(4) + k).to("cuda") for k in range(2)]
    result = Tensor(np.zeros(4, np.float32)).to("cuda")
    for _ in range(2):
        model.folded(tensors[0], out=result)

    def refused(*_: object) -> None:
        raise CallError("the GPU's driver refuses it: as told", code="D0818")

    with monkeypatch.context() as patch:
        patch.setattr(fake, "set_kernel_arguments", refused)
        with pytest.raises(CallError, match="D0818"):
            model.folded(tensors[1], out=result)
    model.folded(tensors[0], out=result)
    right(result, numbers(4))


def test_a_graph_that_cannot_be_made_is_freed_and_the_kernel_named(
    fake: FakeGpu, model: Model
) -> None:
    model.folded(numbers(4))
    fake.refuses = fake.launched[-1]
    with pytest.raises(CallError, match=r"D0818.*folded"):
        model.folded(numbers(4))
    (graph,) = fake.graphs
    assert graph.is_free
    fake.refuses = None
    right(model.folded(numbers(4)), numbers(4))


def test_a_call_that_fails_leaves_nothing_under_way(fake: FakeGpu, model: Model) -> None:
    """Its memory goes to other calls at once."""
    x = np.ones((2, 3, 2), np.float32)
    for _ in range(2):
        model.sides(x)
    fake.refuses = fake.launched[-1]
    with pytest.raises(CallError, match="D0818"):
        model.sides(x[:1])
    assert not fake.is_busy


def test_what_a_failed_call_noted_is_forgotten(fake: FakeGpu, model: Model) -> None:
    """The loop ends by its limit, after an index that was out of range in its first rounds."""
    far = np.array([3, 9], np.int64)
    with pytest.raises(CallError, match=r"D0807.*index 9 is out of range for an axis of size 4"):
        model.walked(np.ones(4, np.float32), far)
    near = np.array([3, 2], np.int64)
    for _ in range(3):
        with pytest.raises(CallError, match="D0808"):
            model.walked(np.ones(4, np.float32), near)


def test_the_body_of_a_loop_is_a_graph_between_conditions(fake: FakeGpu, model: Model) -> None:
    """Where graphs have no conditions."""
    fake.knows_conditions = False
    for a in (9.0, 2.0, 9.0):
        found = model.root(np.float32(a))
        np.testing.assert_allclose(np.asarray(found), np.sqrt(a), rtol=1e-5)
    assert fake.graphs
    assert max(graph.launches for graph in fake.graphs) > 3
    rounds = len(fake.launched)
    with pytest.raises(CallError, match="limit of 100"):
        model.root(np.float32(1e30))
    assert len(fake.launched) >= rounds + 100


def test_calls_at_once_have_graphs_and_memory_of_their_own(fake: FakeGpu, model: Model) -> None:
    begun, wrong = Barrier(2), list[BaseException]()

    def work(rows: int) -> None:
        begun.wait()
        try:
            for _ in range(4):
                right(model.folded(numbers(rows)), numbers(rows))
        except BaseException as error:  # noqa: BLE001 - the test fails with it below
            wrong.append(error)

    threads = [Thread(target=work, args=(rows,)) for rows in (3, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(not graph.is_free for graph in fake.graphs)


def test_a_model_that_is_gone_leaves_nothing_on_the_device(fake: FakeGpu) -> None:
    before = dict(fake.allocated)
    model = dlc.compile(text=TEXT, target="cuda")
    for _ in range(3):
        right(model.folded(numbers(4)), numbers(4))
    assert len(fake.allocated) > len(before)
    model.close()
    del model
    gc.collect()
    assert fake.allocated == before
    assert fake.pinned == {}
    assert all(graph.is_free for graph in fake.graphs)


def test_a_kernel_that_the_driver_refuses_is_told_by_its_line(fake: FakeGpu, model: Model) -> None:
    model.folded(numbers(4))
    fake.refuses = fake.launched[-1]
    with pytest.raises(CallError) as caught:
        model.folded(numbers(5))
    (said,) = caught.value.diagnostics
    assert said.code == "D0818"
    assert said.message.startswith("folded: ")
    assert said.place is not None
    assert (said.place.file, said.place.line) == ("model.dlm", 3)
    fake.refuses = None
    right(model.folded(numbers(4)), numbers(4))


def test_waiting_for_each_kernel_makes_no_graphs(
    fake: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAIT, "1")
    model = dlc.compile(text=TEXT, target="cuda")
    for _ in range(3):
        right(model.folded(numbers(4)), numbers(4))
    assert fake.graphs == []


PREPARED = """dlc 1
module Net {
  param w: f32[3] = normal(1)
  export fn scaled(x: f32[3]) -> f32[3] = x * exp(w)
}
"""


def test_weights_that_cannot_be_prepared_are_told_of_by_the_driver(fake: FakeGpu) -> None:
    model = dlc.compile(text=PREPARED, target="cuda")
    model.scaled(np.ones(3, np.float32))
    again = Model(model.artifact)
    fake.refuses = fake.launched[0]
    with pytest.raises(CallError, match="D0818"):
        again.scaled(np.ones(3, np.float32))
