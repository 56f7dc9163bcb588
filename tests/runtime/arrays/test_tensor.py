"""`dlc.Tensor`: bf16 arithmetic, NumPy and DLPack in both directions."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.errors import Unsupported, UsageError
from dlc.runtime.arrays import dtypes
from dlc.runtime.arrays.dtypes import DTYPES, bf16_bits, bf16_values, numpy_bfloat16
from dlc.runtime.arrays.tensor import Tensor

Bits = NDArray[np.uint16]


@pytest.fixture
def without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine where that package is not installed."""
    real = importlib.import_module

    def refusing(name: str, package: str | None = None) -> object:
        if name == "ml_dtypes":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(dtypes.importlib, "import_module", refusing)
    numpy_bfloat16.cache_clear()
    yield
    numpy_bfloat16.cache_clear()


ALL_BITS: Bits = np.arange(1 << 16, dtype=np.uint16)


def test_every_bf16_number_survives_the_way_through_f32() -> None:
    values = bf16_values(ALL_BITS)
    back = bf16_bits(values)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(back[numbers], ALL_BITS[numbers])
    assert np.isnan(bf16_values(back[~numbers])).all()


def test_rounding_to_bf16_is_to_nearest_with_ties_to_even() -> None:
    finite = np.sort(bf16_values(ALL_BITS)[np.isfinite(bf16_values(ALL_BITS))]).astype(np.float64)
    below, above = finite[:-1], finite[1:]
    middle = (below + above) / 2
    even_is_below = bf16_bits(below) % 2 == 0
    distinct = below != above
    for exact, expected in (
        (middle, np.where(even_is_below, below, above)),
        (np.nextafter(middle, -np.inf), below),
        (np.nextafter(middle, np.inf), above),
    ):
        rounded = bf16_values(bf16_bits(exact))
        np.testing.assert_array_equal(rounded[distinct], expected[distinct].astype(np.float32))


def test_too_large_becomes_infinity_and_nan_stays_nan() -> None:
    values = np.array([3.4e38, -3.4e38, 1e300, np.inf, -np.inf, np.nan])
    expected = [np.inf, -np.inf, np.inf, np.inf, -np.inf, np.nan]
    np.testing.assert_array_equal(bf16_values(bf16_bits(values)), np.array(expected, np.float32))
    quiet = np.array([0x7F800001], np.uint32).view(np.float32)
    assert np.isnan(bf16_values(bf16_bits(quiet))).all()


def test_bf16_agrees_with_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="the independent bf16 is not installed")
    values = np.random.default_rng(0).standard_normal(10_000).astype(np.float32) * 1e3
    theirs = values.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(bf16_bits(values), theirs.view(np.uint16))
    tensor = Tensor(theirs)
    assert tensor.dtype == "bf16"
    assert tensor.numpy().dtype == ml_dtypes.bfloat16
    assert np.shares_memory(tensor.numpy(), theirs)
    np.testing.assert_array_equal(np.asarray(tensor), theirs)
    both = (theirs.astype(np.float32) * theirs.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal((tensor * tensor).bits, both.view(np.uint16))


def test_a_scalar_of_numpy_becomes_an_array_with_memory_of_its_own() -> None:
    bits = np.array([7], np.int32)[0]
    tensor = Tensor.from_bits(bits, "i32")
    assert type(tensor.bits) is np.ndarray
    assert (tensor.bits.shape, tensor.tolist()) == ((), 7)


@pytest.mark.usefixtures("without_ml_dtypes")
def test_without_ml_dtypes_bf16_is_its_bits_or_its_values() -> None:
    tensor = Tensor([1.0, 2.5], "bf16")
    assert tensor.numpy().dtype == np.uint16
    assert np.shares_memory(tensor.numpy(), tensor.bits)
    array = np.asarray(tensor)
    assert (array.dtype, array.tolist()) == (np.dtype(np.float32), [1.0, 2.5])


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bf16"])
def test_every_other_dtype_is_numpys_own(name: str) -> None:
    array = np.ones((2, 3), DTYPES[name].numpy)
    tensor = Tensor(array)
    assert (tensor.dtype, tensor.shape, tensor.ndim, tensor.size) == (name, (2, 3), 2, 6)
    assert tensor.numpy() is array
    assert np.asarray(tensor).dtype == array.dtype


def test_arithmetic_stays_in_the_dtype_and_numbers_adapt() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], "bf16")
    for result, expected in (
        (x + 1, [[2, 3], [4, 5]]),
        (1 - x, [[0, -1], [-2, -3]]),
        (x * x, [[1, 4], [9, 16]]),
        (x / 3, [[0.333984375, 0.66796875], [1, 1.3359375]]),
        (x // 2, [[0, 1], [1, 2]]),
        (x % 2, [[1, 0], [1, 0]]),
        (2**x, [[2, 4], [8, 16]]),
        (-x, [[-1, -2], [-3, -4]]),
        (abs(-x), [[1, 2], [3, 4]]),
        (x @ x, [[7, 10], [15, 22]]),
        (np.maximum(x, 2.5), [[2.5, 2.5], [3, 4]]),
        (x.T, [[1, 3], [2, 4]]),
        (x.reshape(4), [1, 2, 3, 4]),
        (np.divmod(x, 2)[1], [[1, 0], [1, 0]]),
    ):
        tensor = cast(Tensor, result)
        assert tensor.dtype == "bf16"
        assert tensor.tolist() == expected
    comparison = cast(Tensor, x > 2)
    assert (comparison.dtype, comparison.tolist()) == ("bool", [[False, False], [True, True]])
    assert cast(Tensor, Tensor([1, 2], "i32") + 1).dtype == "i32"


def test_nothing_is_promoted() -> None:
    x = Tensor([1.0], "bf16")
    for other in (np.ones(1, np.float32), Tensor([1.0], "f16"), np.float32(1)):
        with pytest.raises(UsageError, match="nothing is promoted"):
            _ = x + other
        with pytest.raises(UsageError, match="nothing is promoted"):
            _ = other * x
    with pytest.raises(UsageError, match="of a tensor and str"):
        _ = x + "1"
    with pytest.raises(UsageError, match="cannot write into a tensor"):
        np.add(x, x, out=x)  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_tensor_is_indexed_and_assigned_like_an_array() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], "bf16")
    assert x[0].tolist() == [1.0, 2.0]
    assert x[:, -1].tolist() == [2.0, 4.0]
    assert (x[1, 1].item(), float(x[1, 1]), int(x[1, 1]), bool(x[1, 1])) == (4.0, 4.0, 4, True)
    x[0] = 7.0
    x[1, :] = Tensor([0.5, 1 / 3], "f32")
    assert x.tolist() == [[7.0, 7.0], [0.5, 0.333984375]]
    assert len(x) == 2
    with pytest.raises(IndexError):
        _ = x[5]
    with pytest.raises(ValueError, match=r"one element|size 1|scalar"):
        bool(x)


def test_conversion_is_written_out() -> None:
    x = Tensor([1.25, -2.75], "f32")
    assert x.astype("i8").tolist() == [1, -2]
    assert x.astype("bf16").astype("f64").dtype == "f64"
    assert x.astype("f32") is not x and x.astype("f32").tolist() == x.tolist()
    for bad in ("f8", "float32"):
        with pytest.raises(UsageError, match="there is no dtype"):
            x.astype(bad)
    for values in (np.array(["a"]), np.array([1j]), np.array([None])):
        with pytest.raises(UsageError, match="NumPy's dtype"):
            Tensor(values)
        with pytest.raises(UsageError, match="NumPy's dtype"):
            Tensor(values, "f32")
    with pytest.raises(UsageError, match="stored as uint16"):
        Tensor.from_bits(np.ones(2, np.float32), "bf16")


def test_a_tensor_stays_on_the_cpu() -> None:
    x = Tensor([1.0], "f32")
    assert x.to("cpu") is x and x.device == "cpu"
    with pytest.raises(Unsupported, match="there is no device 'tpu'"):
        x.to("tpu")


def test_the_text_of_a_tensor_has_its_values_dtype_and_shape() -> None:
    assert repr(Tensor([1.5, 2], "bf16")) == "dlc.Tensor([1.5, 2.0], bf16[2])"
    assert repr(Tensor(3, "i32")) == "dlc.Tensor(3, i32)"
    assert repr(Tensor(np.zeros((100, 100), np.float32))).endswith("0.]], f32[100, 100])")


# ---------------------------------------------------------------------------------------- DLPack


def test_numpy_reads_a_tensor_through_dlpack_without_a_copy() -> None:
    block = np.zeros(80, np.float32)
    start = (-block.ctypes.data % 64) // 4
    array = block[start : start + 12].reshape(3, 4)
    view = np.from_dlpack(Tensor(array))
    assert np.shares_memory(view, array)
    assert view.shape == (3, 4)


def test_what_is_exported_is_aligned_to_64_bytes() -> None:
    block = np.arange(64, dtype=np.float32)
    for start in range(17):
        view = np.from_dlpack(Tensor(block[start : start + 8]))
        assert view.ctypes.data % 64 == 0
        np.testing.assert_array_equal(view, block[start : start + 8])


def test_an_exporter_that_must_not_copy_does_not() -> None:
    block = np.arange(64, dtype=np.float32)
    for start in (1, 2, 3):
        capsule = Tensor(block[start:]).__dlpack__(copy=False)
        assert "dltensor" in repr(capsule)


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bool"])
def test_every_dtype_survives_dlpack(name: str) -> None:
    tensor = Tensor(np.arange(24).reshape(2, 3, 4), name)
    back = Tensor.from_dlpack(tensor)
    assert (back.dtype, back.tolist()) == (name, tensor.tolist())


def test_bf16_is_labelled_as_such_in_the_capsule() -> None:
    class Versioned:
        """A consumer's view: asks for the newest form, as torch and jax do."""

        def __init__(self, tensor: Tensor) -> None:
            self.tensor = tensor

        def __dlpack__(self) -> object:
            return self.tensor.__dlpack__(max_version=(1, 0))

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.tensor.__dlpack_device__()

    tensor = Tensor([1.0, -2.5], "bf16")
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(tensor)  # NumPy has no such type: it must not take the bits for numbers
    assert Tensor.from_dlpack(Versioned(tensor)).tolist() == [1.0, -2.5]


def test_strided_and_read_only_arrays_cross() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)[::2, ::3]
    assert Tensor.from_dlpack(Tensor(array)).tolist() == array.tolist()
    frozen = np.arange(4, dtype=np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        Tensor.from_dlpack(frozen).numpy()[0] = 1


def test_memory_outlives_the_array_it_came_from() -> None:
    tensor = Tensor.from_dlpack(Tensor(np.arange(1000, dtype=np.float64)))
    junk = [np.full(1000, 7.0) for _ in range(100)]
    assert tensor.tolist() == list(range(1000))
    assert len(junk) == 100


def test_an_element_type_that_dlc_lacks_is_refused() -> None:
    with pytest.raises(Unsupported, match="complex64"):
        Tensor.from_dlpack(np.ones(2, np.complex64))
