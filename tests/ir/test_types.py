"""Types, constants and locations."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from dlc.errors import ModelError
from dlc.ir.attributes import Dense, decode, encode
from dlc.ir.dims import symbol
from dlc.ir.location import (
    MAX_FUSED,
    FileLocation,
    FusedLocation,
    Location,
    UnknownLocation,
    fuse,
)
from dlc.ir.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I32,
    INDEX,
    LANGUAGE_DTYPES,
    MAX_LANES,
    ROOT,
    U8,
    DType,
    FunctionType,
    SimpleType,
    TensorType,
    VectorType,
    ViewType,
    row_major_strides,
)

B = symbol("B")


# Types.


def test_equal_types_are_the_same_object() -> None:
    assert TensorType(F32, (B + 1, 2)) is TensorType(F32, (1 + B, 2))
    assert VectorType(F32, 8) is VectorType(F32, 8)
    assert ViewType(F32, (2, 3)) is ViewType(F32, (2, 3), (3, 1))
    assert FunctionType((F32,), ()) is FunctionType((F32,), ())
    assert SimpleType("!mem.root") is ROOT
    assert TensorType(F32, ()) is not TensorType(F64, ())


def test_a_type_is_known_by_its_name_and_by_its_spelling() -> None:
    for dtype in LANGUAGE_DTYPES:
        assert DType.named[dtype.name] is dtype
        assert DType.spelled[str(dtype)] is dtype
    assert str(U8) == "ui8"
    assert str(BOOL) == "i1"


def test_a_dtype_says_what_numbers_it_holds() -> None:
    assert [d.name for d in LANGUAGE_DTYPES if d.is_float] == ["f64", "f32", "f16", "bf16"]
    assert not BOOL.is_integer
    assert INDEX.is_integer
    assert [d.bytes for d in (F64, I32, BF16, BOOL)] == [8, 4, 2, 1]
    for dtype in LANGUAGE_DTYPES:
        assert dtype.numpy.itemsize == dtype.bytes


def test_a_tensor_type_is_spelled_for_mlir_and_for_users() -> None:
    type = TensorType(F32, (B, 64))
    assert str(type) == 'tensor<?x64xf32, #dlc.dims<"B, 64">>'
    assert type.text == "f32[B, 64]"
    assert TensorType(BOOL, ()).text == "bool"
    assert repr(type) == str(type)


def test_a_tensor_type_knows_its_rank_and_size() -> None:
    type = TensorType(F32, (B, 64))
    assert (type.rank, type.size, type.is_static) == (2, 64 * B, False)
    assert (TensorType(F32, ()).size, TensorType(F32, ()).is_static) == (1, True)
    assert type.with_shape((3,)) is TensorType(F32, (3,))
    assert type.with_dtype(F64) is TensorType(F64, (B, 64))


@pytest.mark.parametrize("shape", [(-1,), (2, -3)])
def test_no_size_is_negative(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="a size cannot be -"):
        TensorType(F32, shape)
    with pytest.raises(ModelError, match="a size cannot be -"):
        ViewType(F32, shape)


@pytest.mark.parametrize("lanes", [0, -1, MAX_LANES + 1])
def test_a_vector_has_a_sensible_number_of_lanes(lanes: int) -> None:
    with pytest.raises(AssertionError):
        VectorType(F32, lanes)


def test_strides_count_elements() -> None:
    assert row_major_strides((2, 3, 4)) == (12, 4, 1)
    assert row_major_strides((B, 3 * B)) == (3 * B, 1)
    assert row_major_strides(()) == ()


def test_a_view_is_contiguous_where_its_strides_are_row_major() -> None:
    assert ViewType(F32, (B, 3)).is_contiguous
    assert not ViewType(F32, (B, 3), (1, B)).is_contiguous
    assert ViewType(F32, (B, 3), (1, B)).tensor is TensorType(F32, (B, 3))


# Constants.


def test_constants_are_equal_where_their_types_and_bits_are() -> None:
    zero, other = (Dense(TensorType(F32, ()), struct.pack("f", v)) for v in (0.0, -0.0))
    nan = Dense(TensorType(F32, ()), struct.pack("f", math.nan))
    assert zero != other
    assert nan == Dense(TensorType(F32, ()), nan.data)
    assert len({zero, other, nan, Dense(TensorType(I32, ()), bytes(4))}) == 4


def test_a_constant_is_an_array_that_is_not_written_to() -> None:
    constant = Dense.of(np.arange(6, dtype=np.float32).reshape(2, 3).T, F32)
    assert constant.type is TensorType(F32, (3, 2))
    assert constant.array.tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(ValueError, match="read-only"):
        constant.array[0, 0] = 1


def test_a_splat_has_equal_elements_rounded_to_the_type() -> None:
    constant = Dense.splat(0.1, TensorType(F16, (2, 2)))
    assert constant.is_splat
    assert constant.array.tolist() == [[np.float16(0.1)] * 2] * 2
    assert Dense.splat(300, TensorType(I32, (2,))).array.tolist() == [300, 300]
    assert not Dense.of(np.array([1, 2], np.int32), I32).is_splat
    assert not Dense(TensorType(F32, (0,)), b"").is_splat


def test_a_constant_fills_its_type() -> None:
    with pytest.raises(AssertionError):
        Dense(TensorType(F32, (2,)), bytes(4))
    with pytest.raises(AssertionError):
        Dense(TensorType(F32, (B,)), bytes(4))
    with pytest.raises(AssertionError):
        Dense.of(np.zeros(2, np.float64), F32)


def nearest_bf16(value: float) -> int:
    """The bits of the nearest bf16 number, found by comparing the two around the value."""
    [bits] = struct.unpack("I", struct.pack("f", value))
    low = bits >> 16
    below, above = (
        math.ldexp(1.0, 128) if (b & 0x7FFF) == 0x7F80 else abs(decoded(b)) for b in (low, low + 1)
    )
    down, up = abs(value) - below, above - abs(value)
    return low + (up < down or (up == down and low % 2 == 1))


def decoded(bits: int) -> float:
    [value] = struct.unpack("f", struct.pack("I", bits << 16))
    return float(value)


def test_bf16_is_rounded_to_the_nearest_and_to_even_between_two() -> None:
    random = np.random.default_rng(2)
    bits = random.integers(0, 1 << 32, 20_000, np.uint32)
    edges = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F7F7FFF, 0x8000, 1, 0], np.uint32)
    values = np.concatenate([bits, edges, edges | np.uint32(0x80000000)]).view(np.float32)
    values = values[np.isfinite(values)]
    expected = [nearest_bf16(value) for value in values.tolist()]
    assert encode(values, BF16).tolist() == expected


def test_bf16_of_f64_is_rounded_once() -> None:
    # Above the middle between two bf16 numbers by less than f32 can tell.
    value = np.array([1 + 2.0**-8 + 2.0**-40])
    assert decode(encode(value, BF16), BF16).tolist() == [1 + 2.0**-7]


def test_bf16_keeps_infinities_and_nans() -> None:
    values = np.array([math.inf, -math.inf, math.nan], np.float32)
    back = decode(encode(values, BF16), BF16)
    assert back[:2].tolist() == [math.inf, -math.inf]
    assert np.isnan(back[2])


def test_every_bf16_number_is_itself() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = decode(bits, BF16)
    finite = ~np.isnan(values)
    assert np.array_equal(encode(values[finite], BF16), bits[finite])


# Locations.

ONE = FileLocation("a.dlm", 3, 4, 9)
OTHER = FileLocation("a.dlm", 5, 1)


@pytest.mark.parametrize(
    ("locations", "expected"),
    [
        ([ONE], ONE),
        ([ONE, ONE], ONE),
        ([ONE, OTHER, ONE], FusedLocation((ONE, OTHER))),
        ([FusedLocation((OTHER, ONE)), ONE], FusedLocation((OTHER, ONE))),
        ([UnknownLocation("a test"), ONE], ONE),
        ([UnknownLocation("a test")], UnknownLocation("a test")),
        ([], UnknownLocation()),
    ],
)
def test_locations_are_fused_without_repeats(locations: list[Location], expected: Location) -> None:
    assert fuse(locations) == expected


def test_a_fused_location_names_so_many_places_and_no_more() -> None:
    fused = fuse([FileLocation("a.dlm", line, 1) for line in range(100)])
    assert isinstance(fused, FusedLocation)
    assert len(fused.parts) == MAX_FUSED


def test_the_place_of_a_location_is_the_first_it_names() -> None:
    assert str(ONE.place) == "a.dlm:3:4"
    assert ONE.place.width == 5
    assert FusedLocation((OTHER, ONE)).place == OTHER.place
    assert UnknownLocation().place is None


@pytest.mark.parametrize("kind", [TensorType, ViewType])
def test_a_size_is_at_most_two_to_the_62(kind: type[TensorType | ViewType]) -> None:
    assert kind(F32, (2**62,)).shape == (2**62,)
    with pytest.raises(ModelError, match=rf"the size {2**62 + 1} is beyond 2\*\*62"):
        kind(F32, (2**62 + 1,))
