"""Examples of element-wise operations: each value is compared with Python's own numbers."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.dialects import array
from dlc.ir.attributes import Dense
from dlc.ir.core import OPS, Op, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    LANGUAGE_DTYPES,
    U8,
    U16,
    U32,
    U64,
    DType,
    TensorType,
)
from tests.op_examples.example import Build, Example, Input, Numbers, drawn, examples, given, wrap

FLOATS = (F64, F32, F16, BF16)
SIGNED = (I64, I32, I16, I8)
INTEGERS = (*SIGNED, U64, U32, U16, U8)
NUMBERS = (*FLOATS, *INTEGERS)
BITS = (*INTEGERS, BOOL)

Pair: TypeAlias = Callable[[Any, Any], Any]
Scalar: TypeAlias = Callable[[Any], Any] | Pair | Callable[[Any, Any, Any], Any]


def each(function: Scalar) -> Callable[..., Numbers]:
    """Apply a function of Python numbers to all elements."""

    def apply(*arrays: Numbers) -> Numbers:
        rows = zip(*[array.ravel().tolist() for array in arrays], strict=True)
        results = [function(*row) for row in rows]
        return np.array(results, object).reshape(arrays[0].shape)

    return apply


def corners(dtype: DType) -> list[int]:
    """Integers at the ends of a dtype and about 0."""
    if dtype is BOOL:
        return [False, True]
    top = (1 << dtype.bits - (dtype.kind == "int")) - 1
    if dtype.kind == "uint":
        return [0, 1, 2, 7, top - 1, top]
    return [-top - 1, -top, -7, -2, -1, 0, 1, 2, 7, top]


def inputs_for(dtype: DType, count: int, low: float, high: float) -> list[Input]:
    """Operands: random floats from a range, or every combination of the integers' corners."""
    if dtype.is_float:
        return [drawn(dtype, (3, 4), low, high, seed=number) for number in range(count)]
    columns = zip(*itertools.product(corners(dtype), repeat=count), strict=True)
    return [given(dtype, column) for column in columns]


def table(
    name: str,
    function: Scalar,
    dtypes: Sequence[DType],
    low: float = -2,
    high: float = 2,
    *,
    exact: bool = False,
    orders: int = 2,
) -> None:
    """Examples of a function in each dtype; integers wrap."""
    cls = OPS[f"array.{name}"]
    assert issubclass(cls, array.Unary | array.Binary)
    count = 2 if issubclass(cls, array.Binary) else 1
    for dtype in dtypes:
        examples(
            cls.name,
            Example(
                cast("Build", cls),
                inputs_for(dtype, count, low, high),
                each(function if dtype.is_float or dtype is BOOL else wrapped(function, dtype)),
                exact=exact or not dtype.is_float,
                orders=orders,
            ),
        )


def wrapped(function: Scalar, dtype: DType) -> Scalar:
    """The function on integers, its result modulo two to the width."""

    def apply(*numbers: int) -> int:
        return wrap(function(*numbers), dtype)

    return apply


def toward_zero(x: int, y: int) -> int:
    return 0 if y == 0 else math.trunc(Fraction(x, y))


def integer_power(x: int, y: int) -> int:
    if y >= 0:
        # Enough for any width, without numbers of a million digits.
        return pow(x, y, 1 << 64)
    return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)


def shift_right(width: int) -> Pair:
    return lambda x, y: x >> y if 0 <= y < width else -1 if x < 0 else 0


def shift_left(width: int) -> Pair:
    return lambda x, y: x << y if 0 <= y < width else 0


def sign(x: float) -> float:
    return (x > 0) - (x < 0)


table("negate", lambda x: -x, NUMBERS, exact=True)
table("abs", abs, NUMBERS, exact=True)
table("sign", sign, NUMBERS, exact=True)
table("floor", math.floor, FLOATS, -3, 3, exact=True)
table("ceil", math.ceil, FLOATS, -3, 3, exact=True)
table("round", round, FLOATS, -3, 3, exact=True)
table("trunc", math.trunc, FLOATS, -3, 3, exact=True)
table("not", lambda x: ~x, INTEGERS)
table("not", lambda x: not x, (BOOL,))
table("sqrt", math.sqrt, FLOATS, 0.1, 4)
table("rsqrt", lambda x: 1 / math.sqrt(x), FLOATS, 0.1, 4)
table("exp", math.exp, FLOATS)
table("expm1", math.expm1, FLOATS)
table("log", math.log, FLOATS, 0.1, 4)
table("log1p", math.log1p, FLOATS, -0.9, 4)
table("sin", lambda x: cmath.exp(1j * x).imag, FLOATS, -4, 4)
table("cos", lambda x: cmath.exp(1j * x).real, FLOATS, -4, 4)
table("tan", math.tan, FLOATS, -1, 1)
table("asin", math.asin, FLOATS, -0.9, 0.9)
table("acos", math.acos, FLOATS, -0.9, 0.9)
table("atan", math.atan, FLOATS)
table("sinh", lambda x: (math.exp(x) - math.exp(-x)) / 2, FLOATS)
table("cosh", lambda x: (math.exp(x) + math.exp(-x)) / 2, FLOATS)
table("tanh", math.tanh, FLOATS)
table("asinh", math.asinh, FLOATS)
table("acosh", math.acosh, FLOATS, 1.2, 4)
table("atanh", math.atanh, FLOATS, -0.9, 0.9)
table("erf", lambda x: 1 - math.erfc(x), FLOATS)
table("sigmoid", lambda x: 1 / (1 + math.exp(-x)), FLOATS, -5, 5)

table("add", lambda x, y: x + y, NUMBERS)
table("subtract", lambda x, y: x - y, NUMBERS)
table("multiply", lambda x, y: x * y, NUMBERS)
table("divide", lambda x, y: x / y, FLOATS, 0.5, 4)
table("divide", toward_zero, INTEGERS)
table("floor_divide", lambda x, y: math.floor(x / y), FLOATS, 0.5, 4, exact=True)
table("floor_divide", lambda x, y: x // y if y else 0, INTEGERS)
table("remainder", lambda x, y: x % y, FLOATS, 0.5, 4)
table("remainder", lambda x, y: x % y if y else x, INTEGERS)
table("truncated_remainder", math.fmod, FLOATS, 0.5, 4)
table("truncated_remainder", lambda x, y: x - toward_zero(x, y) * y, INTEGERS)
table("power", lambda x, y: math.exp(y * math.log(x)), FLOATS, 0.2, 3)
table("power", integer_power, INTEGERS)
table("atan2", math.atan2, FLOATS)
table("maximum", lambda x, y: x if x >= y else y, NUMBERS, exact=True)
table("minimum", lambda x, y: x if x <= y else y, NUMBERS, exact=True)
table("maximum", lambda x, y: x or y, (BOOL,))
table("minimum", lambda x, y: x and y, (BOOL,))
table("and", lambda x, y: x & y, BITS)
table("or", lambda x, y: x | y, BITS)
table("xor", lambda x, y: x ^ y, BITS)
for dtype in INTEGERS:
    table("shift_left", shift_left(dtype.bits), (dtype,))
    table("shift_right", shift_right(dtype.bits), (dtype,))

for dtype in FLOATS:
    # Halves become the even neighbour.
    halves = given(dtype, [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    examples("array.round", Example(array.Round, [halves], each(round), exact=True, orders=0))

COMPARISONS: dict[str, Pair] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}
SPECIAL = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan]


def compare(predicate: str) -> Callable[[Value, Value], Op]:
    return lambda x, y: array.Compare(x, y, predicate)


for predicate, function in COMPARISONS.items():
    for dtype in (*FLOATS, I32, U8, BOOL):
        numbers = SPECIAL if dtype.is_float else corners(dtype)
        lhs, rhs = zip(*itertools.product(numbers, repeat=2), strict=True)
        examples(
            "array.compare",
            Example(
                compare(predicate),
                [given(dtype, lhs), given(dtype, rhs)],
                each(function),
                exact=True,
            ),
        )

for dtype in (F64, BF16, I8, BOOL):
    examples(
        "array.select",
        Example(
            array.Select,
            [
                given(BOOL, [True, False, True]),
                given(dtype, [1, 0, 1]),
                given(dtype, [0, 1, 1]),
            ],
            each(lambda condition, yes, no: yes if condition else no),
            exact=True,
        ),
    )


def cast_to(target: DType) -> Callable[[Value], Op]:
    return lambda x: array.Cast(x, target)


def converted(source: DType, target: DType) -> Scalar:
    """The conversion of one number, in Python."""

    def convert(x: float) -> float | bool:
        if target is BOOL:
            return x != 0
        if target.is_float:
            return math.copysign(math.inf, x) if target is F16 and abs(x) >= 65520 else x
        if not source.is_float:
            return wrap(int(x), target)
        low, high = min(corners(target)), max(corners(target))
        return 0 if math.isnan(x) else low if x <= low else high if x >= high else math.trunc(x)

    return convert


for source, target in itertools.product(LANGUAGE_DTYPES, repeat=2):
    numbers = [*SPECIAL, 2.75, -2.75, 300.0] if source.is_float else corners(source)
    exact = not (target.is_float and source.bits > 8)
    examples(
        "array.cast",
        Example(
            cast_to(target),
            [given(source, numbers)],
            each(converted(source, target)),
            exact=exact,
            orders=0,
        ),
    )
examples("array.cast", Example(cast_to(F64), [drawn(F64, (3,))], lambda x: x, exact=True))


def bitcast(target: DType) -> Callable[[Value], Op]:
    return lambda x: array.Bitcast(x, target)


examples(
    "array.bitcast",
    Example(
        bitcast(U32),
        [given(F32, [1.0, -2.0, 0.0])],
        lambda x: np.array([0x3F800000, 0xC0000000, 0], object),
        exact=True,
    ),
    Example(
        bitcast(BF16),
        [given(U16, [0x3F80, 0xC000])],
        lambda x: np.array([1.0, -2.0]),
        exact=True,
    ),
)


def extent(size: Size) -> Callable[[], Op]:
    return lambda: array.Extent(size)


def constant(*numbers: float) -> Callable[[], Op]:
    value = Dense.of(np.array(numbers, np.float32), F32)
    return lambda: array.Constant(value)


examples(
    "array.constant",
    Example(constant(1.5, -0.0), [], lambda: np.array([1.5, 0.0]), exact=True),
)


examples(
    "array.extent",
    Example(extent(2 * symbol("B") - 1), [], lambda: np.array(5), exact=True, dims={"B": 3}),
    Example(extent(7), [], lambda: np.array(7), exact=True),
)


def filled(number: float, type: TensorType) -> Callable[[], Op]:
    return lambda: array.Fill(number, type)


B = symbol("B")
examples(
    "array.fill",
    Example(filled(2.5, TensorType(F32, (2, 3))), [], lambda: np.full((2, 3), 2.5), exact=True),
    Example(filled(-1, TensorType(I8, ())), [], lambda: np.array(-1), exact=True),
    Example(
        filled(1.0, TensorType(BF16, (B, 2 * B))),
        [],
        lambda: np.ones((3, 6)),
        exact=True,
        dims={"B": 3},
    ),
)
