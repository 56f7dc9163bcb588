"""Arrays on a GPU go into calls and come out of them as they are, also those of other libraries."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import CallError, Unsupported
from dlc.runtime.arrays.dlpack import tensor_in
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.cuda.array import DeviceArray
from dlc.runtime.gpu.entry import GpuEntryPoint
from dlc.runtime.model import Model
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu

Array = NDArray[np.generic]

TEXT = """dlc 1
dim B = 1..8
export fn both(x: f32[B, 3], y: f32[B, 3]) -> (sum: f32[B, 3], product: f32[B, 3]) = (x + y, x * y)
export fn wide(x: bf16[B, 3]) -> bf16[B, 3] = x + x
export fn places(x: bool[B]) -> (places: i64[_, 1], count: i64) {
  let (places, count) = nonzero(x)
  return (places = places, count = count)
}
"""


class Foreign:
    """An array of another library on the device, which notes the stream that it is asked for."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.streams: list[object] = []

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None
    ) -> object:
        self.streams.append(stream)
        return self.tensor.__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeGpu]:
    with fake_gpu() as found:
        yield found


@pytest.fixture(scope="module")
def model(fake: FakeGpu) -> Model:
    return dlc.compile(text=TEXT, target="cuda")


def numbers(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def same(found: object, wanted: Array) -> None:
    values = found.values() if isinstance(found, Tensor) else cast(Array, found)
    np.testing.assert_allclose(np.asarray(values, np.float64), np.asarray(wanted, np.float64))


def there(values: Array, dtype: str | None = None) -> Tensor:
    return Tensor(values, dtype).to("cuda")


def test_a_tensor_goes_to_the_device_and_back(fake: FakeGpu) -> None:
    x = numbers(2, 3)
    tensor = there(x)
    assert (tensor.device, tensor.shape, tensor.dtype, len(tensor)) == ("cuda:0", (2, 3), "f32", 2)
    assert tensor.to("cuda:0") is tensor
    back = tensor.to("cpu")
    assert back.device == "cpu"
    np.testing.assert_array_equal(back.numpy(), x)
    np.testing.assert_array_equal((tensor * 2.0).numpy(), x * 2)
    np.testing.assert_array_equal(tensor.reshape(3, 2).numpy(), x.reshape(3, 2))
    tensor[0] = 5.0
    assert tensor[0].tolist() == [5.0, 5.0, 5.0]
    assert tensor[1].tolist() == x[1].tolist()


def test_memory_on_the_device_goes_back_with_its_tensor(fake: FakeGpu) -> None:
    gc.collect()
    before = len(fake.allocated)
    tensor = there(numbers(2, 3))
    view = tensor.reshape(-1)
    del tensor
    assert len(fake.allocated) == before + 1
    del view
    assert len(fake.allocated) == before


def test_what_lies_on_the_device_gives_what_lies_there(fake: FakeGpu, model: Model) -> None:
    x, y = numbers(2, 3), numbers(2, 3) + 1
    arguments = there(x), there(y)
    model.both(*arguments)
    fake.transfers.clear()
    found = model.both(*arguments)
    # What failing kernels have noted is all that comes back.
    assert sum(count for way, count in fake.transfers if way == "up") == 0
    assert sum(count for _, count in fake.transfers) <= 64
    assert isinstance(found, tuple)
    results = cast("tuple[Tensor, ...]", found)
    assert [result.device for result in results] == ["cuda:0", "cuda:0"]
    same(results[0], x + y)
    same(results[1], x * y)


def test_one_array_there_is_enough(model: Model) -> None:
    x, y = numbers(2, 3), numbers(2, 3) + 1
    results = cast("tuple[Tensor, ...]", model.both(x, y=there(y)))
    assert results[0].device == "cuda:0"
    same(results[0], x + y)


def test_arrays_of_the_host_give_arrays_of_the_host(model: Model) -> None:
    x = numbers(2, 3)
    for result in cast("tuple[object, ...]", model.both(x, x)):
        assert isinstance(result, np.ndarray)


def test_an_array_of_another_library_is_used_where_it_is(fake: FakeGpu, model: Model) -> None:
    x, y = numbers(2, 3), numbers(2, 3) + 1
    first, second = Foreign(there(x)), Foreign(there(y))
    results = cast("tuple[Tensor, ...]", model.both(first, second))
    same(results[0], x + y)
    # Each library has its own work done for the stream that the call is in.
    assert first.streams == second.streams
    assert isinstance(first.streams[0], int)
    assert first.streams[0] != fake.shared_stream


def test_another_library_takes_a_result_where_it_is(fake: FakeGpu) -> None:
    x = numbers(2, 3)
    tensor = there(x)
    again = Tensor.from_dlpack(Foreign(tensor))
    assert isinstance(tensor.memory, DeviceArray)
    assert isinstance(again.memory, DeviceArray)
    assert again.memory.address == tensor.memory.address
    del tensor  # what was exported lives as long as anybody has it
    np.testing.assert_array_equal(again.numpy(), x)
    gc.collect()
    before = len(fake.allocated)
    del again
    gc.collect()
    assert len(fake.allocated) == before  # work of the other library may still use it
    held = there(x)
    assert len(fake.allocated) == before  # until the device is idle, which an allocation waits for
    del held


def test_a_copy_for_another_library_is_made_where_it_is_wanted() -> None:
    x = numbers(2, 3)
    tensor = there(x)
    memory = cast(DeviceArray, tensor.memory)
    for device in (None, (2, 0)):
        capsule = tensor.__dlpack__(dl_device=device, copy=True)
        given = tensor_in(capsule)
        assert (given.device_kind, given.device_number) == (2, 0)
        assert given.data != memory.address
    np.testing.assert_array_equal(np.from_dlpack(tensor, device="cpu"), x)
    np.testing.assert_array_equal(np.from_dlpack(tensor, device="cpu", copy=True), x)


@pytest.mark.parametrize(("device", "copy"), [((1, 0), False), ((2, 1), None), ((4, 0), True)])
def test_a_device_that_cannot_share_its_memory_is_refused(
    device: tuple[int, int], copy: bool | None
) -> None:
    with pytest.raises(BufferError, match="cuda:0 cannot be shared with device"):
        there(numbers(2, 3)).__dlpack__(dl_device=device, copy=copy)


def test_numpy_is_told_that_it_gets_a_copy() -> None:
    with pytest.raises(ValueError, match="cuda:0 becomes an array of NumPy by a copy only"):
        np.array(there(numbers(2, 3)), copy=False)


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64", "i8", "i64", "u8", "bool"])
def test_every_dtype_crosses(fake: FakeGpu, dtype: str, version: tuple[int, int] | None) -> None:
    tensor = there(np.array([0.0, 1.0]), dtype)

    class Versioned(Foreign):
        def __dlpack__(
            self, *, stream: int | None = None, max_version: tuple[int, int] | None = None
        ) -> object:
            return self.tensor.__dlpack__(max_version=version)

    again = Tensor.from_dlpack(Versioned(tensor))
    assert (again.dtype, again.tolist()) == (dtype, tensor.tolist())


def test_bf16_is_calculated_there(model: Model) -> None:
    x = there(numbers(2, 3), "bf16")
    result = model.wide(x)
    assert isinstance(result, Tensor)
    assert (result.dtype, result.device) == ("bf16", "cuda:0")
    same(result, np.asarray(x.values(), np.float32) * 2)


def test_results_with_a_measured_length_are_cut_there(model: Model) -> None:
    found = model.places(there(np.array([True, False, True])))
    places, count = cast("tuple[Tensor, Tensor]", found)
    assert (places.device, places.tolist(), count.item()) == ("cuda:0", [[0], [2]], 2)


def test_results_go_where_out_says(model: Model) -> None:
    x, y = numbers(2, 3), numbers(2, 3) + 1
    total, product = there(np.zeros((2, 3), np.float32)), np.zeros((2, 3), np.float32)
    found = cast("tuple[object, ...]", model.both(x, there(y), out=(total, product)))
    assert found[0] is total
    assert found[1] is product
    same(total, x + y)
    same(product, x * y)


def test_arrays_of_the_host_may_give_one_on_the_device(model: Model) -> None:
    x = numbers(2, 3)
    total, product = there(np.zeros((2, 3), np.float32)), np.zeros((2, 3), np.float32)
    model.both(x, x, out={"sum": total, "product": product})
    same(total, x + x)


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        ((3, 3), "f32", r"out= for sum is f32\[3, 3\], not f32\[2, 3\]"),
        ((2, 3), "f16", r"out= for sum is f16\[2, 3\], not f32\[2, 3\]"),
    ],
)
def test_out_that_does_not_fit_is_refused(
    model: Model, shape: tuple[int, ...], dtype: str, words: str
) -> None:
    x = there(numbers(2, 3))
    total = there(np.zeros(shape), dtype)
    with pytest.raises(CallError, match=words):
        model.both(x, x, out=(total, there(numbers(2, 3))))


def test_out_that_is_an_argument_is_refused(model: Model) -> None:
    x = there(numbers(2, 3))
    with pytest.raises(CallError, match="out= for sum shares memory"):
        model.both(x, x, out=(x, there(numbers(2, 3))))


def test_memory_that_longer_arrays_share_is_refused_also_at_the_addresses_of_an_earlier_call(
    fake: FakeGpu,
) -> None:
    text = """dlc 1
dim B = 1..8
export fn f(inout h: f32[B, 3], x: f32[B, 3], c: f32[3]) -> f32[B, 3] {
  set h = h + c
  return x
}
"""
    model, c = dlc.compile(text=text, target="cuda"), there(numbers(3))
    block = np.zeros((3, 3), np.float32)
    model.f(block[:1], block[1:2], c)
    with pytest.raises(CallError, match=r"D0806.*h and x share memory, and one is changed"):
        model.f(block[:2], block[1:], c)


def test_another_dtype_is_refused_by_name(model: Model) -> None:
    with pytest.raises(CallError, match=r"D0802.*x is f64\[2, 3\], where f32"):
        model.both(there(np.zeros((2, 3))), numbers(2, 3))


def test_lent_memory_is_refused(model: Model) -> None:
    x = there(numbers(2, 3))
    with pytest.raises(CallError, match="D0817"):
        model.both(x, x, arena=np.zeros(64, np.uint8))


def test_an_array_that_is_not_dense_is_refused(model: Model) -> None:
    class Transposed(Foreign):
        def __dlpack__(
            self, *, stream: int | None = None, max_version: tuple[int, int] | None = None
        ) -> object:
            return np.zeros((3, 2), np.float32).T.__dlpack__()

    with pytest.raises(Unsupported, match="row-major order"):
        model.both(Transposed(there(numbers(2, 3))), numbers(2, 3))


def test_an_array_that_begins_anywhere_is_copied(model: Model) -> None:
    x = numbers(9)
    whole = there(x)
    assert isinstance(whole.memory, DeviceArray)
    inside = whole.memory.part(4, (2, 3), np.dtype(np.float32))
    results = cast(
        "tuple[Tensor, ...]", model.both(Tensor.on_device(inside, "f32"), x[:6].reshape(2, 3))
    )
    same(results[0], x[1:7].reshape(2, 3) + x[:6].reshape(2, 3))


def test_the_parts_of_a_call_are_timed(model: Model) -> None:
    point = model["both"]
    assert isinstance(point, GpuEntryPoint)
    times = point.timed(numbers(2, 3), numbers(2, 3))
    # The evaluator's clock counts pieces of work: two arrays go there as one block, and results too.
    assert times.upload_ms >= 1
    assert times.compute_ms >= 1
    assert times.download_ms >= 1


def test_without_a_gpu_a_tensor_stays_here() -> None:
    with pytest.raises(Unsupported, match="cuda:7 needs"):
        Tensor(np.zeros(2)).to("cuda:7")
    with pytest.raises(Unsupported, match="no device 'tpu'"):
        Tensor(np.zeros(2)).to("tpu")
