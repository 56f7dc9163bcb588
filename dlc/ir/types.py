"""Types of IR values. All are interned: equal types are the same object, and `is` compares them.

Tensors are logical and row-major; their sizes may be symbolic. The spelling is MLIR's, so that
`f32[B, 64]` of the model language is `tensor<?x64xf32, #dlc.dims<"B, 64">>` here.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from dlc.ir.dims import Dim, Shape, Size, check_shape, product

Kind = Literal["float", "int", "uint", "bool", "index"]


class Type:
    """The type of a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class DType(Type):
    """An element type, and the type of one scalar. `text` is MLIR's spelling, `name` the language's."""

    __slots__ = ("bits", "kind", "name", "numpy", "text")
    __match_args__ = ("name",)
    named: ClassVar[dict[str, DType]] = {}
    spelled: ClassVar[dict[str, DType]] = {}

    name: str
    text: str
    kind: Kind
    bits: int
    numpy: np.dtype[np.generic]

    def __init__(self, name: str, text: str, kind: Kind, bits: int, numpy: str) -> None:
        self.name, self.text, self.kind, self.bits = name, text, kind, bits
        self.numpy = np.dtype(numpy)
        DType.named[name] = DType.spelled[text] = self

    def __str__(self) -> str:
        return self.text

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory; a bool takes one."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned integer, or an index; not bool."""
        return self.kind in ("int", "uint", "index")


F64 = DType("f64", "f64", "float", 64, "float64")
F32 = DType("f32", "f32", "float", 32, "float32")
F16 = DType("f16", "f16", "float", 16, "float16")
# NumPy has no bf16: its bits travel as uint16, its arithmetic is done in f32.
BF16 = DType("bf16", "bf16", "float", 16, "uint16")
I64 = DType("i64", "i64", "int", 64, "int64")
I32 = DType("i32", "i32", "int", 32, "int32")
I16 = DType("i16", "i16", "int", 16, "int16")
I8 = DType("i8", "i8", "int", 8, "int8")
U64 = DType("u64", "ui64", "uint", 64, "uint64")
U32 = DType("u32", "ui32", "uint", 32, "uint32")
U16 = DType("u16", "ui16", "uint", 16, "uint16")
U8 = DType("u8", "ui8", "uint", 8, "uint8")
BOOL = DType("bool", "i1", "bool", 1, "bool")
INDEX = DType("index", "index", "index", 64, "int64")

LANGUAGE_DTYPES = (F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL)


def wide(dtype: DType) -> DType:
    """The dtype in which what is stored as `dtype` is computed: f32 for f16 and bf16."""
    return F32 if dtype in (F16, BF16) else dtype


class TensorType(Type):
    """An array of known element type and rank; each size a number or a symbolic size."""

    __slots__ = ("_text", "dtype", "shape")
    __match_args__ = ("dtype", "shape")
    _interned: ClassVar[dict[tuple[DType, Shape], TensorType]] = {}

    dtype: DType
    shape: Shape
    _text: str | None

    def __new__(cls, dtype: DType, shape: Shape = ()) -> TensorType:
        key = (dtype, shape)
        type = cls._interned.get(key)
        if type is None:
            check_shape(shape)
            type = object.__new__(cls)
            type.dtype, type.shape, type._text = dtype, shape, None
            type = cls._interned.setdefault(key, type)
        return type

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Size:
        """How many elements it has."""
        return product(self.shape)

    @property
    def is_static(self) -> bool:
        return not any(isinstance(size, Dim) for size in self.shape)

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        if self._text is None:
            sizes = "".join(f"{'?' if isinstance(s, Dim) else s}x" for s in self.shape)
            note = "" if self.is_static else f", {dims_text(self.shape)}"
            self._text = f"tensor<{sizes}{self.dtype}{note}>"
        return self._text

    @property
    def text(self) -> str:
        """As the model language spells it: `f32[B, 64]`."""
        sizes = ", ".join(map(str, self.shape))
        return f"{self.dtype.name}[{sizes}]" if self.shape else self.dtype.name


def dims_text(shape: Shape) -> str:
    """The attribute that carries symbolic sizes: `#dlc.dims<"B, 64">`."""
    return f'#dlc.dims<"{", ".join(map(str, shape))}">'


MAX_LANES = 4096
"""More than any register has."""


class VectorType(Type):
    """A register of `lanes` elements."""

    __slots__ = ("dtype", "lanes")
    __match_args__ = ("dtype", "lanes")
    _interned: ClassVar[dict[tuple[DType, int], VectorType]] = {}

    dtype: DType
    lanes: int

    def __new__(cls, dtype: DType, lanes: int) -> VectorType:
        type = cls._interned.get((dtype, lanes))
        if type is None:
            assert 0 < lanes <= MAX_LANES, lanes
            type = object.__new__(cls)
            type.dtype, type.lanes = dtype, lanes
            type = cls._interned.setdefault((dtype, lanes), type)
        return type

    def __str__(self) -> str:
        return f"vector<{self.lanes}x{self.dtype}>"


class ViewType(Type):
    """A tensor in memory: element type, logical shape and the stride of each axis, in elements."""

    __slots__ = ("dtype", "shape", "strides")
    __match_args__ = ("dtype", "shape", "strides")
    _interned: ClassVar[dict[tuple[DType, Shape, Shape], ViewType]] = {}

    dtype: DType
    shape: Shape
    strides: Shape

    def __new__(cls, dtype: DType, shape: Shape, strides: Shape | None = None) -> ViewType:
        if strides is None:
            strides = row_major_strides(shape)
        key = (dtype, shape, strides)
        type = cls._interned.get(key)
        if type is None:
            assert len(shape) == len(strides), key
            check_shape(shape)
            type = object.__new__(cls)
            type.dtype, type.shape, type.strides = key
            type = cls._interned.setdefault(key, type)
        return type

    @property
    def tensor(self) -> TensorType:
        """The type of the array that it holds."""
        return TensorType(self.dtype, self.shape)

    @property
    def is_contiguous(self) -> bool:
        return self.strides == row_major_strides(self.shape)

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        if self.is_contiguous:
            return f'!mem.view<{self.dtype}, "{shape}">'
        return f'!mem.view<{self.dtype}, "{shape}", "{", ".join(map(str, self.strides))}">'


def row_major_strides(shape: Shape) -> Shape:
    """Strides in elements of a dense row-major tensor."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


class SimpleType(Type):
    """A type without parameters, known by its spelling."""

    __slots__ = ("text",)
    __match_args__ = ("text",)
    known: ClassVar[dict[str, SimpleType]] = {}

    text: str

    def __new__(cls, text: str) -> SimpleType:
        type = cls.known.get(text)
        if type is None:
            type = object.__new__(cls)
            type.text = text
            type = cls.known.setdefault(text, type)
        return type

    def __str__(self) -> str:
        return self.text


ROOT = SimpleType("!mem.root")
"""A block of memory: an input, an output, weights, or a place in the arena."""
POINTER = SimpleType("!loop.pointer")
"""An address in the loop dialects."""


class FunctionType(Type):
    """What a function takes and gives."""

    __slots__ = ("inputs", "results")
    __match_args__ = ("inputs", "results")
    _interned: ClassVar[dict[tuple[tuple[Type, ...], tuple[Type, ...]], FunctionType]] = {}

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __new__(cls, inputs: tuple[Type, ...], results: tuple[Type, ...]) -> FunctionType:
        type = cls._interned.get((inputs, results))
        if type is None:
            type = object.__new__(cls)
            type.inputs, type.results = inputs, results
            type = cls._interned.setdefault((inputs, results), type)
        return type

    def __str__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        if len(self.results) == 1 and not isinstance(self.results[0], FunctionType):
            return f"({inputs}) -> {self.results[0]}"
        return f"({inputs}) -> ({', '.join(map(str, self.results))})"
