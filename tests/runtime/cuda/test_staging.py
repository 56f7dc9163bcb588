"""Transfers by pinned memory: chunks for usual memory, blocks that are kept, results, arguments.

The GPU is the evaluator, which reads and writes memory of the host as late as it may, and only pinned one.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model, open_training
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.cuda import pinned, pinned_pool, staging
from dlc.runtime.cuda.pinned import new_result
from dlc.runtime.cuda.pinned_pool import PinnedPool
from dlc.runtime.cuda.staging import Staging
from dlc.runtime.gpu import frame, machine
from dlc.runtime.hetero import staging_slots
from dlc.runtime.system.buffers import address
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu, fake_gpus, no_gpu
from tests.runtime.hetero.test_entry import EXAMPLES, some
from tests.suites import every

CHUNK = 512
LARGE = 256
TEXT = """dlc 1
dim N = 1..4096
export fn f(x: f32[N], y: f32[N]) -> (f32[N], f32) = (x * 2 + y, sum(x))
export fn check(x: f32[N], i: i32[N]) -> f32[N] = x[i]
"""
BOTH = """dlc 1
dim N = 1..4096
export fn f(x: f32[N], y: f32[N]) -> (f32[N], f32[N]) {
  let a = on cuda:0 { x * 2 + y }
  return (a, on cuda:0 { sin(x) } * y)
}
"""
Array = NDArray[np.generic]
Floats = NDArray[np.float32]


def made(target: str, text: str = TEXT) -> Artifact:
    return compile_model(open_model("m.dlm", text=text), Settings(target=target))


def numbers(*shape: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    """A GPU for which few bytes are many."""
    monkeypatch.setattr(staging, "CHUNK", CHUNK)
    for module in (frame, machine, pinned, staging_slots):
        monkeypatch.setattr(module, "LARGE", LARGE)
    with fake_gpu() as found:
        yield found


# Chunks ------------------------------------------------------------------------------------------------


def there(gpu: FakeGpu, place: int, like: Floats) -> Floats:
    """What lies on the device."""
    found = np.empty_like(like)
    staging.download(gpu, address(found), place, found.nbytes)
    return found


@pytest.mark.parametrize("count", [0, 1, 100, 128, 129, 1000])
def test_usual_memory_travels_in_chunks(gpu: FakeGpu, count: int) -> None:
    values = numbers(count)
    place = gpu.allocate(values.nbytes)
    staging.upload(gpu, place, address(values), values.nbytes)
    pieces = [size for _, size in gpu.transfers]
    assert sum(pieces) == values.nbytes
    assert max(pieces, default=0) <= CHUNK
    np.testing.assert_array_equal(there(gpu, place, values), values)
    assert sum(size for _, size in gpu.transfers) == 2 * values.nbytes
    assert len(gpu.pinned) <= staging.CHUNKS


def test_what_was_given_may_be_changed_before_it_has_travelled(gpu: FakeGpu) -> None:
    values = numbers(1000)
    place = gpu.allocate(values.nbytes)
    with gpu:
        carrier = Staging(gpu, gpu.shared_stream)
        carrier.upload(place, address(values), values.nbytes)
        wanted, values[:] = values.copy(), 0
        assert gpu.is_busy, "while the last chunks travel the processor goes on"
        gpu.synchronize(gpu.shared_stream)
    np.testing.assert_array_equal(there(gpu, place, values), wanted)


def test_small_pieces_share_a_chunk(gpu: FakeGpu) -> None:
    values = numbers(2, 40)
    place = gpu.allocate(values.nbytes)
    with gpu:
        carrier = Staging(gpu, gpu.shared_stream)
        for number, row in enumerate(values):
            carrier.upload(place + number * row.nbytes, address(row), row.nbytes)
        assert "wait" not in gpu.done
        assert len(gpu.pinned) == 1
        gpu.synchronize(gpu.shared_stream)
    np.testing.assert_array_equal(there(gpu, place, values), values)


def test_a_chunk_that_is_filled_too_early_would_be_found(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = numbers(1000)
    place = gpu.allocate(values.nbytes)
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "synchronize_event", _not_at_all)
        staging.upload(gpu, place, address(values), values.nbytes)
    assert (there(gpu, place, values) != values).any()
    staging.upload(gpu, place, address(values), values.nbytes)
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "synchronize_event", _not_at_all)
        assert (there(gpu, place, values) != values).any()


def _not_at_all(event: object) -> None:
    """In place of a function that waits."""


def test_two_at_once_have_chunks_of_their_own(gpu: FakeGpu) -> None:
    arrays = [numbers(700, seed=seed) for seed in (1, 2)]
    places = [gpu.allocate(array.nbytes) for array in arrays]
    streams = [gpu.create_stream() for _ in arrays]
    with gpu:
        carriers = [Staging(gpu, stream) for stream in streams]
        for carrier, place, array in zip(carriers, places, arrays, strict=True):
            carrier.upload(place, address(array), array.nbytes)
        for stream in reversed(streams):
            gpu.synchronize(stream)
    for place, array in zip(places, arrays, strict=True):
        np.testing.assert_array_equal(there(gpu, place, array), array)


def test_threads_bring_and_fetch_at_once(gpu: FakeGpu) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        for _ in range(20):
            values = numbers(600, seed=seed)
            if (dlc.Tensor(values).to("cuda").numpy() != values).any():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_memory_that_another_library_pinned_travels_as_it_is(gpu: FakeGpu) -> None:
    values = numbers(1000)
    gpu.pinned[address(values)] = values.nbytes, values
    place = gpu.allocate(values.nbytes)
    staging.upload(gpu, place, address(values), values.nbytes)
    assert gpu.transfers == [("up", values.nbytes)]
    wanted, values[:] = values.copy(), 0
    staging.download(gpu, address(values), place, values.nbytes)
    np.testing.assert_array_equal(values, wanted)
    assert gpu.transfers[1:] == [("down", values.nbytes)]


def test_events_are_given_back(gpu: FakeGpu) -> None:
    values = numbers(1000)
    dlc.Tensor(values).to("cuda").numpy()
    gc.collect()
    assert gpu.events == 0


# Blocks ------------------------------------------------------------------------------------------------


class Pages:
    """Stands for the driver: addresses count on."""

    def __init__(self) -> None:
        self.pool = PinnedPool(self.pin, self.ended)
        self.made: list[int] = []
        self.gone: list[int] = []

    def pin(self, size: int) -> int:
        self.made.append(size)
        return len(self.made)

    def ended(self, address: int) -> None:
        self.gone.append(address)


def test_a_block_that_nobody_has_is_the_next_of_its_size() -> None:
    pages = Pages()
    first = pages.pool.take(100)
    pages.pool.give_back(100, first)
    assert pages.pool.take(200) != first
    assert pages.pool.take(100) == first
    assert pages.pool.take(100) != first
    assert (pages.made, pages.gone, pages.pool.bytes) == ([100, 200, 100], [], 400)


def test_few_blocks_of_a_size_are_kept() -> None:
    pages = Pages()
    held = [pages.pool.take(100) for _ in range(pinned_pool.MOST_KEPT + 2)]
    for each in held:
        pages.pool.give_back(100, each)
    assert pages.gone == held[-2:]
    assert pages.pool.bytes == 100 * pinned_pool.MOST_KEPT


def test_what_is_kept_makes_room_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_pool, "MOST", 1000)
    pages = Pages()
    held = {size: pages.pool.take(size) for size in (300, 200, 400)}
    for size in (300, 200):
        pages.pool.give_back(size, held[size])
    assert pages.pool.has_room(600)
    assert not pages.pool.has_room(601)
    pages.pool.take(350)
    assert pages.gone == [held[300]]
    assert pages.pool.has_room(200), "one is kept"
    assert pages.pool.bytes == 200 + 400 + 350
    pages.pool.take(900)  # it is not refused, only advised against
    assert pages.pool.bytes == 400 + 350 + 900


def test_the_collector_may_give_a_block_back_while_another_is_made() -> None:
    pool: PinnedPool

    def pin(size: int) -> int:
        if size == 100:
            pool.give_back(300, 7)
        return size

    pool = PinnedPool(pin, lambda address: None)
    assert pool.take(100) == 100
    assert pool.take(300) == 7


# Results -----------------------------------------------------------------------------------------------


def is_pinned(gpu: FakeGpu, array: object) -> bool:
    found = cast(Floats, array)
    return gpu.is_pinned(address(found), found.nbytes)


def test_large_results_are_pinned_and_their_memory_is_used_again(gpu: FakeGpu) -> None:
    model = dlc.Model(made("cuda:sm_80"))
    x, y = numbers(500), numbers(500, seed=2)
    f = model["f"]
    large, small = cast("tuple[Floats, Floats]", f(x, y))
    np.testing.assert_allclose(large, x * 2 + y, rtol=1e-6)
    np.testing.assert_allclose(small, x.sum(), rtol=1e-5)
    assert is_pinned(gpu, large)
    assert not is_pinned(gpu, small)
    assert large.flags.writeable
    place, part = address(large), large[10:]
    wanted = part.copy()
    del large, small
    again = cast("tuple[Floats, Floats]", f(x, y))[0]
    assert address(again) != place, "a part of it is somebody's"
    np.testing.assert_array_equal(part, wanted)
    del part
    gc.collect()
    assert address(cast("tuple[Floats, Floats]", f(x, y))[0]) == place
    ways = [way for way, size in gpu.transfers if size == x.nbytes]
    assert ways == ["down"] * 3, "results come as one piece, arguments in chunks"


def test_where_nothing_can_be_pinned_results_are_usual_arrays(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, kind = (500,), np.dtype(np.float32)
    assert is_pinned(gpu, new_result(gpu, shape, kind, 2000))
    assert not is_pinned(gpu, new_result(gpu, (4,), kind, 16))
    with monkeypatch.context() as patch:
        patch.setattr(pinned_pool, "MOST", 3000)
        held = [new_result(gpu, shape, kind, 2000) for _ in range(2)]
        assert [is_pinned(gpu, each) for each in held] == [True, False]
    monkeypatch.setattr(gpu, "pins", False)
    found = new_result(gpu, (600,), kind, 2400)
    assert not is_pinned(gpu, found)
    assert (found.shape, found.dtype, address(found) % 64) == ((600,), kind, 0)


def test_results_go_to_arrays_of_usual_memory(gpu: FakeGpu) -> None:
    model = dlc.Model(made("cuda:sm_80"))
    x, y = numbers(700), numbers(700, seed=2)
    large, small = np.zeros(700, np.float32), np.zeros((), np.float32)
    for _ in range(3):
        large[:] = 0
        model["f"](x, y, out=[large, small])
        np.testing.assert_allclose(large, x * 2 + y, rtol=1e-6)
        np.testing.assert_allclose(small, x.sum(), rtol=1e-5)
    assert not gpu.is_busy


def test_calls_at_once_with_large_arrays_do_not_meet(gpu: FakeGpu) -> None:
    model = dlc.Model(made("cuda:sm_80"))
    wrong: list[int] = []

    def work(seed: int) -> None:
        x, y = numbers(600, seed=seed), numbers(600, seed=seed + 10)
        for _ in range(3):
            found = cast("tuple[Floats, Floats]", model["f"](x, y))[0]
            if not np.allclose(found, x * 2 + y):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_call_that_fails_leaves_no_chunk_under_way(gpu: FakeGpu) -> None:
    model = dlc.Model(made("cuda:sm_80"))
    x, i = numbers(700), np.arange(700, dtype=np.int32)
    i[650] = 1000
    with pytest.raises(dlc.CallError, match="D0807"):
        model["check"](x, i)
    assert not gpu.is_busy
    i[650] = 3
    found = np.empty_like(x)
    np.testing.assert_array_equal(model["check"](x, i, out=found), x[i])


NOWHERE: dict[str, str] = {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "places"), every(2, [("cpu", {"net": "cuda:0"}), ("cuda:sm_80", NOWHERE)])
)
def test_a_step_of_training_changes_large_weights_where_they_are(
    gpu: FakeGpu, target: str, places: dict[str, str]
) -> None:
    found, wanted = _step(target, places), _step("cpu", {})
    assert len(found) > 10
    assert any(array.nbytes > CHUNK for array in found)
    for one, other in zip(found, wanted, strict=True):
        close = [np.asarray(array, np.float64) for array in (one, other)]
        np.testing.assert_allclose(*close, rtol=1e-4, atol=1e-4)


def _step(target: str, places: dict[str, str]) -> Sequence[Array]:
    """The arrays that a step of training was given, which it changes."""
    opened = open_training(EXAMPLES / "digits_mlp.dlm", settings={"hidden": 8}, places=places)
    model = dlc.Model(compile_model(opened, Settings(target=target), "init:0"))
    point = model["train_step"]
    given = [some(item) for item in point.inputs]
    point(*given)
    return given


# Arguments ---------------------------------------------------------------------------------------------


def test_a_pinned_argument_travels_as_it_is(gpu: FakeGpu) -> None:
    model = dlc.Model(made("cuda:sm_80"))
    x, y = numbers(700), numbers(700, seed=2)
    held = dlc.pinned(x)
    np.testing.assert_array_equal(held, x)
    assert (held.dtype, held.shape, held.flags.writeable) == (x.dtype, x.shape, True)
    gpu.transfers.clear()
    found = cast("tuple[Floats, Floats]", model["f"](held, dlc.pinned(y)))[0]
    np.testing.assert_allclose(found, x * 2 + y, rtol=1e-6)
    ups = [size for way, size in gpu.transfers if way == "up" and size]
    assert ups == [x.nbytes, y.nbytes]


@pytest.mark.parametrize("values", [3, [[1, 2], [3, 4]], np.zeros((0, 3)), np.array([True, False])])
def test_any_array_of_numbers_can_be_pinned(gpu: FakeGpu, values: object) -> None:
    found = dlc.pinned(cast(Floats, values))
    np.testing.assert_array_equal(found, np.asarray(values))
    assert found.dtype == np.asarray(values).dtype


def test_what_cannot_be_pinned_is_said(gpu: FakeGpu) -> None:
    for values, dtype in ((np.array([object()]), "object"), ("abc", "<U3")):
        with pytest.raises(dlc.UsageError, match=f"an array of {dtype} cannot be pinned"):
            dlc.pinned(values)
    with pytest.raises(dlc.Unsupported, match="cuda:1 needs GPU number 1"):
        dlc.pinned(numbers(3), device="cuda:1")
    with pytest.raises(dlc.Unsupported, match="cpu needs a GPU, and cpu is none"):
        dlc.pinned(numbers(3), device="cpu")
    gpu.pins = False
    with pytest.raises(dlc.CallError, match="D0613"):
        dlc.pinned(numbers(3))
    with no_gpu(), pytest.raises(dlc.Unsupported, match=r"D0702.*there is none here"):
        dlc.pinned(numbers(3))


def test_memory_is_pinned_by_the_gpu_that_is_named() -> None:
    with fake_gpus((8, 0), (8, 0)) as gpus:
        held = dlc.pinned(numbers(3), device="cuda:1")
        assert [gpu.is_pinned(address(held), held.nbytes) for gpu in gpus] == [False, True]


# A processor and a GPU ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 40, 700])
def test_both_devices_share_arrays_of_any_size(gpu: FakeGpu, size: int) -> None:
    model = dlc.Model(made("cpu", BOTH))
    x, y = numbers(size), numbers(size, seed=2)
    for _ in range(2):
        one, other = cast("tuple[Floats, Floats]", model["f"](x, y))
        np.testing.assert_allclose(one, x * 2 + y, rtol=1e-6)
        np.testing.assert_allclose(other, np.sin(x) * y, rtol=1e-5)
        assert is_pinned(gpu, one) is (one.nbytes >= LARGE)
    given = [np.zeros(size, np.float32) for _ in range(2)]
    model["f"](x, dlc.pinned(y), out=given)
    np.testing.assert_allclose(given[0], x * 2 + y, rtol=1e-6)
    np.testing.assert_allclose(given[1], np.sin(x) * y, rtol=1e-5)
    arena = model["f"].new_arena(N=size)  # lent by the caller, in usual memory
    one, other = cast("tuple[Floats, Floats]", model["f"](x, y, arena=arena))
    np.testing.assert_allclose(other, np.sin(x) * y, rtol=1e-5)
    assert not gpu.is_busy


def test_one_array_may_be_several_arguments_of_both(gpu: FakeGpu) -> None:
    model = dlc.Model(made("cpu", BOTH))
    x = numbers(40)
    one, other = cast("tuple[Floats, Floats]", model["f"](x, x))
    np.testing.assert_allclose(one, x * 3, rtol=1e-6)
    np.testing.assert_allclose(other, np.sin(x) * x, rtol=1e-5)


def test_a_failed_call_of_both_leaves_results_alone(gpu: FakeGpu) -> None:
    text = """dlc 1
export fn f(x: f32[8], i: i32[8]) -> (f32[8], f32[8]) = (on cuda:0 { exp(x) }, x[i])
"""
    model = dlc.Model(made("cpu", text))
    x, i = numbers(8), np.full(8, 100, np.int32)
    given = [np.zeros(8, np.float32) for _ in range(2)]
    with pytest.raises(dlc.CallError, match="D0807"):
        model["f"](x, i, out=given)
    np.testing.assert_array_equal(given[0], 0)
