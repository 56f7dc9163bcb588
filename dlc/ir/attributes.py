"""Compile-time facts on operations.

An attribute is a plain immutable Python value wherever Python has one: `bool`, `int`, `float`, `str`,
a size, a type, or a tuple of these. The classes here are for what Python lacks. Attributes compare by
value and can be keys of a dict.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlc.ir.dims import Dim, Shape, Size
from dlc.ir.types import BF16, DType, TensorType, Type, VectorType, ViewType

INLINE_BYTES = 1024
"""Constants up to this many bytes stay in the IR; larger ones become weight sources."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A reference to a symbol of the module: `@name`."""

    name: str

    def __str__(self) -> str:
        return f"@{self.name}"


class Dense:
    """The elements of a constant tensor, row-major, never written to. Equal if type and bits are."""

    __slots__ = ("_hash", "data", "type")
    __match_args__ = ("type", "data")

    def __init__(self, type: TensorType, data: bytes) -> None:
        assert type.is_static
        assert len(data) == int(type.size) * type.dtype.bytes, (type, len(data))  # pyright: ignore[reportArgumentType]
        self.type = type
        self.data = data
        self._hash = hash((type, data))

    @classmethod
    def of(cls, array: NDArray[np.generic], dtype: DType) -> Dense:
        """From an array whose NumPy dtype is the one that stands for `dtype`."""
        assert array.dtype == dtype.numpy, (array.dtype, dtype)
        return cls(TensorType(dtype, array.shape), np.ascontiguousarray(array).tobytes())

    @classmethod
    def splat(cls, value: float, type: TensorType) -> Dense:
        """Every element the same; the value is rounded to the element type."""
        element = encode(np.asarray(value, np.float64 if type.dtype.is_float else None), type.dtype)
        return cls(type, element.tobytes() * int(type.size))  # pyright: ignore[reportArgumentType]

    @property
    def array(self) -> NDArray[np.generic]:
        """A read-only view in NumPy's dtype (uint16 bits for bf16)."""
        shape = tuple(int(size) for size in self.type.shape)  # pyright: ignore[reportArgumentType]
        return np.frombuffer(self.data, self.type.dtype.numpy).reshape(shape)

    @property
    def is_splat(self) -> bool:
        step = self.type.dtype.bytes
        return len(self.data) > 0 and self.data == self.data[:step] * (len(self.data) // step)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dense) and (self.type, self.data) == (other.type, other.data)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Dense({self.type}, {self.array.tolist()})"


class DialectAttribute:
    """A fact of a dialect with sizes as parameters, such as `#kernel.packed<16>`.

    What derives from it is a frozen dataclass whose fields are an `int` or a `Size`, and is made known by
    `dialect_attribute`.
    """

    __slots__ = ()
    name: ClassVar[str]

    @property
    def sizes(self) -> Shape:
        """The parameters."""
        return tuple([getattr(self, name) for name, _ in _parameters(type(self))])


A = TypeVar("A", bound=DialectAttribute)

DIALECT_ATTRIBUTES: dict[str, type[DialectAttribute]] = {}
"""Those that are known, by name."""


def dialect_attribute(name: str) -> Callable[[type[A]], type[A]]:
    """Make a class known as the attribute `#name`."""

    def apply(cls: type[A]) -> type[A]:
        assert name not in DIALECT_ATTRIBUTES, f"#{name} is defined twice"
        cls.name = name
        DIALECT_ATTRIBUTES[name] = cls
        return cls

    return apply


def _parameters(cls: type[DialectAttribute]) -> list[tuple[str, str]]:
    """The parameters, each with the name of its type."""
    assert is_dataclass(cls)
    return [(field.name, str(field.type)) for field in fields(cls)]


def make_dialect_attribute(name: str, sizes: Sequence[Size]) -> DialectAttribute:
    """The attribute of a name with these parameters. Raises ValueError for what there is not."""
    cls = DIALECT_ATTRIBUTES.get(name)
    if cls is None:
        raise ValueError(f"there is no attribute #{name}")
    parameters = _parameters(cls)
    if len(sizes) != len(parameters):
        raise ValueError(f"#{name} takes {len(parameters)} parameters and is given {len(sizes)}")
    for (parameter, kind), size in zip(parameters, sizes, strict=True):
        if size < 1 if isinstance(size, int) else kind == "int":
            raise ValueError(f"{parameter} of #{name} is {size}; it is a number of at least 1")
    return cls(*sizes)


Single: TypeAlias = bool | int | float | str | Dim | Type | Symbol | Dense | DialectAttribute
Attribute: TypeAlias = "Single | tuple[Attribute, ...]"


_EXACT = frozenset({int, str, Dim, Symbol, Dense, DType, VectorType, TensorType, ViewType})
"""Types whose values are equal to their like only: most attributes, which are looked at very often."""


def exactly(value: Attribute) -> object:
    """A key that is equal for the same attributes only: not for 1 and True, nor for 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(exactly, value))
    if isinstance(value, float):
        return struct.pack("d", value)
    return (bool, value) if isinstance(value, bool) else value


def exact_items(attributes: Mapping[str, Attribute]) -> tuple[tuple[str, object], ...]:
    """Such a key for all attributes of an operation."""
    if not attributes:
        return ()
    return tuple(
        [
            (name, value if type(value) in _EXACT else exactly(value))
            for name, value in attributes.items()
        ]
    )


def encode(array: NDArray[np.generic], dtype: DType) -> NDArray[np.generic]:
    """Values as NumPy holds them in `dtype`: bf16 rounds to nearest even into uint16 bits.

    A float beyond the range becomes infinite, without a warning.
    """
    with np.errstate(over="ignore"):
        return _to_bfloat(array) if dtype is BF16 else array.astype(dtype.numpy)


def _to_bfloat(array: NDArray[np.generic]) -> NDArray[np.uint16]:
    bits = _to_single(array).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, quiet, rounded).astype(np.uint16)


def _to_single(array: NDArray[np.generic]) -> NDArray[np.float32]:
    """To f32, with f64 rounded to odd where it is inexact: rounding again to bf16 is then as once."""
    single = array.astype(np.float32)
    if array.dtype != np.float64:
        return single
    back = single.astype(np.float64)
    inexact = np.not_equal(back, array) & np.isfinite(back)
    beyond = np.greater(np.abs(back), np.abs(array.astype(np.float64)))
    toward_zero = np.where(beyond, np.nextafter(single, np.float32(0)), single)
    odd = (toward_zero.view(np.uint32) | np.uint32(1)).view(np.float32)
    return np.where(inexact, odd, single)


def decode(array: NDArray[np.generic], dtype: DType) -> NDArray[np.generic]:
    """The values an array of `dtype` stands for: bf16 bits become f32, all else is itself."""
    if dtype is not BF16:
        return array
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
