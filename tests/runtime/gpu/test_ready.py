"""Calls like an earlier one: found by shapes and addresses, and right whatever has happened since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import CallError
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.calling.frames import SizedProgram
from dlc.runtime.gpu.entry import GpuEntryPoint
from dlc.runtime.gpu.fitting import Key
from dlc.runtime.gpu.frame import GpuFrame
from dlc.runtime.gpu.graphs import Graph
from dlc.runtime.gpu.launching import MAX_KEPT, SegmentCache
from dlc.runtime.gpu.ready import Plan
from dlc.runtime.model import Model
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu

Array = NDArray[np.float32]

TEXT = """dlc 1
dim B = 1..64
export fn scaled(x: f32[B, 3], y: f32[B, 3]) -> f32[B, 3] = softmax(x * y + sum(x)) - x
export fn added(inout total: f32[B, 3], x: f32[B, 3]) -> f32[B, 3] {
  set total = total + x
  return total * 2
}
export fn picked(x: f32[B, 3], at: i32[2]) -> f32[2, 3] = x[at]
"""
USUAL = 4
"""The call that is found by shapes and addresses, the first being 1."""


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeGpu]:
    with fake_gpu() as found:
        yield found


@pytest.fixture
def model(fake: FakeGpu) -> Model:
    return dlc.compile(text=TEXT, target="cuda")


def rows(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, 3), np.float32)


def there(values: NDArray[np.generic]) -> Tensor:
    return Tensor(values).to("cuda")


def scaled(x: Array, y: Array) -> Array:
    terms = x * y + x.sum()
    powers = np.exp(terms - terms.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True) - x


def close(found: object, wanted: Array) -> None:
    np.testing.assert_allclose(np.asarray(found), wanted, 1e-4, 1e-5)


@pytest.fixture
def only_found(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes every later call that is not found an error."""

    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("the call was not found")

    return lambda: monkeypatch.setattr(GpuEntryPoint, "_called", refuse)


def ready(call: object, *arguments: object) -> None:
    """Call it until the next call like it is found."""
    for _ in range(USUAL - 1):
        cast(GpuEntryPoint, call)(*arguments)


def test_calls_with_arrays_of_the_same_shapes_and_addresses_are_found(
    model: Model, only_found: Callable[[], None]
) -> None:
    x, y = rows(2), rows(2, 1)
    on_gpu, other = there(x), there(y)
    ready(model.scaled, on_gpu, other)
    ready(model.scaled, on_gpu, y)
    only_found()
    close(model.scaled(on_gpu, other), scaled(x, y))
    on_gpu[...] = rows(2, 2)
    close(model.scaled(on_gpu, other), scaled(rows(2, 2), y))
    close(model.scaled(on_gpu, rows(2, 3)), scaled(rows(2, 2), rows(2, 3)))
    with pytest.raises(AssertionError, match="not found"):
        model.scaled(other, on_gpu)


def test_calls_with_arrays_of_the_host_are_found_by_their_shapes(
    model: Model, only_found: Callable[[], None]
) -> None:
    ready(model.scaled, rows(2), rows(2, 1))
    only_found()
    held = [model.scaled(rows(2, seed), rows(2, seed + 1)) for seed in range(3)]
    for seed, found in enumerate(held):
        assert type(found) is np.ndarray
        close(found, scaled(rows(2, seed), rows(2, seed + 1)))
    x = rows(2, 7)
    close(model.scaled(x, x), scaled(x, x))
    close(model.scaled(y=rows(2, 1), x=x), scaled(x, rows(2, 1)))
    with pytest.raises(AssertionError, match="not found"):
        model.scaled(rows(3), rows(3))


def test_arguments_by_name_are_those_by_position(
    model: Model, only_found: Callable[[], None]
) -> None:
    x, y = rows(2), rows(2, 1)
    on_gpu, other = there(x), there(y)
    ready(model.scaled, on_gpu, other)
    for named in ({"x": on_gpu, "z": other}, {"y": other}, {"x": on_gpu, "y": other, "z": x}):
        with pytest.raises(CallError, match="D0801"):
            cast(GpuEntryPoint, model.scaled)(**named)
    with pytest.raises(CallError, match="D0801"):
        cast(GpuEntryPoint, model.scaled)(on_gpu, other, x=on_gpu)
    only_found()
    close(model.scaled(on_gpu, y=other), scaled(x, y))
    close(model.scaled(y=other, x=on_gpu), scaled(x, y))


def test_a_call_that_is_timed_is_not_taken_for_one_before(model: Model) -> None:
    point, x, y = cast(GpuEntryPoint, model.scaled), rows(5), rows(5, 1)
    ready(point, rows(2), rows(2, 1))
    for _ in range(2):
        point.timed(x, x)  # one array for two inputs, which makes no call ready
    close(point(x, y), scaled(x, y))


def test_results_that_are_held_keep_what_they_are(model: Model) -> None:
    x, held = there(rows(2)), list[tuple[object, Array]]()
    for seed in range(7):
        y = rows(2, seed)
        held.append((model.scaled(x, y), scaled(rows(2), y)))
    for found, wanted in held:
        close(found, wanted)


def test_addresses_that_are_given_in_turns_have_graphs_of_their_own(
    fake: FakeGpu, model: Model
) -> None:
    before = len(fake.graphs)
    x, result, changes = there(rows(2)), None, list[int]()
    for seed in range(12):
        y = rows(2, seed)
        result = model.scaled(x, y)  # into the memory of the result before the last one
        close(result, scaled(rows(2), y))
        changes.append(sum(graph.changes for graph in fake.graphs[before:]))
    assert len(fake.graphs) == before + 2
    assert 0 < changes[-3] == changes[-1]


def test_without_memory_for_another_graph_calls_share_one(
    fake: FakeGpu, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = list[object]()

    def full(graph: Graph, roots: object) -> Graph:
        refused.append(roots)
        raise CallError("the GPU's driver refuses cuGraphInstantiate: as told", code="D0613")

    monkeypatch.setattr(Graph, "copy_at", full)
    before = len(fake.graphs)
    x, result = there(rows(2)), None
    for seed in range(12):
        y = rows(2, seed)
        result = model.scaled(x, y)
        close(result, scaled(rows(2), y))
    assert refused
    assert len(fake.graphs) == before + 1


def test_arrays_that_a_call_updates_are_found_too(
    model: Model, only_found: Callable[[], None]
) -> None:
    total, x = there(np.zeros((2, 3), np.float32)), there(rows(2))
    ready(model.added, total, x)
    with pytest.raises(CallError, match="D0806"):
        model.added(total, total)
    only_found()
    close(model.added(total, x), 2 * (USUAL - 1) * rows(2))
    close(total, USUAL * rows(2))


def test_a_call_that_is_cancelled_before_it_is_launched_ends_so(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = there(rows(2)), there(rows(2, 1))
    ready(model.scaled, x, y)
    plan = GpuFrame.plan

    def cancelling(frame: GpuFrame, key: Key) -> Plan | None:
        model.cancel()
        return plan(frame, key)

    with monkeypatch.context() as patch:
        patch.setattr(GpuFrame, "plan", cancelling)
        with pytest.raises(CallError, match="D0809"):
            model.scaled(x, y)
    close(model.scaled(x, y), scaled(rows(2), rows(2, 1)))


def test_a_closed_model_refuses_calls_that_were_ready(model: Model) -> None:
    x, y = there(rows(2)), there(rows(2, 1))
    ready(model.scaled, x, y)
    model.close()
    with pytest.raises(CallError, match="D0811"):
        model.scaled(x, y)


def test_a_kernel_that_fails_is_told_and_the_next_call_is_right(model: Model) -> None:
    x, at = there(rows(4)), there(np.array([1, 2], np.int32))
    ready(model.picked, x, at)
    at[...] = np.array([1, 9], np.int32)
    with pytest.raises(CallError, match="D0807"):
        model.picked(x, at)
    at[...] = np.array([3, 0], np.int32)
    close(model.picked(x, at), rows(4)[[3, 0]])


def test_calls_are_right_after_memory_has_moved(model: Model) -> None:
    x, y = there(rows(2)), there(rows(2, 1))
    large = rows(64, 2)
    ready(model.scaled, x, y)
    close(model.scaled(there(large), large), scaled(large, large))
    for _ in range(USUAL):
        close(model.scaled(x, y), scaled(rows(2), rows(2, 1)))


def test_threads_share_an_entry_point(model: Model) -> None:
    def calls(seed: int) -> None:
        x, y = rows(2, seed), rows(2, seed + 1)
        arguments = there(x), there(y)
        for _ in range(2 * USUAL):
            close(model.scaled(*arguments), scaled(x, y))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(calls, range(3)))


def test_what_is_known_of_calls_goes_with_the_graphs_of_their_sizes() -> None:
    def sized() -> SizedProgram:
        return SizedProgram(np.zeros(0, np.int64), 0, 0, 0, ())

    cache, first, key = SegmentCache(), sized(), ((2, 3), 1)
    cache.of(first)
    cache.note(key, Plan(first, (), {}))
    for _ in range(MAX_KEPT - 1):
        cache.of(sized())
    assert cache.plan(key) is not None, "its sizes are those that were used last now"
    cache.of(sized())
    assert cache.plan(key) is None, "other sizes had to go"
    cache.note(key, Plan(first, (), {}))
    cache.forget_ready()
    assert cache.plan(key) is None
