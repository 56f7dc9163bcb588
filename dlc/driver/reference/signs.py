"""The pages of operators, dtypes and names of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dlc.driver.reference.derivatives import derivative_of
from dlc.driver.reference.page import Page
from dlc.frontend.builtins.registry import CONSTANTS
from dlc.ir.core import OPS
from dlc.ir.types import LANGUAGE_DTYPES, DType

ALIASES: Final = {
    "matmul": "@",
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "power": "**",
    "pow": "**",
    "floor_divide": "//",
    "remainder": "%",
    "mod": "%",
    "pipe": "|>",
    "!=": "==",
    "<": "==",
    "<=": "==",
    ">": "==",
    ">=": "==",
}
"""Operators that share a page, and what other libraries call them."""


def pages() -> Iterator[Page]:
    """The pages of operators, dtypes and constants."""
    for name, form, summary, example, gives, operation in _OPERATORS:
        yield Page(
            name,
            "language: operators",
            form,
            summary,
            example=example,
            gives=gives,
            operations=(operation,) if operation else (),
            derivative=derivative_of(OPS[operation]) if operation else "that of what it is made of",
        )
    yield from map(_dtype_page, LANGUAGE_DTYPES)
    for name, (meaning, example, gives) in _CONSTANTS.items():
        yield Page(
            name,
            "language: constants",
            name,
            meaning,
            example=example,
            gives=gives,
            derivative="none: it is a constant",
        )


def _dtype_page(dtype: DType) -> Page:
    return Page(
        dtype.name,
        "language: dtypes",
        f"{dtype.name}   {dtype.name}[B, 64]   {dtype.name}(x)",
        _KINDS[dtype.kind].format(bits=dtype.bits) + _REMARKS.get(dtype.name, "."),
        "Alone it is the type of a scalar, with sizes that of a tensor. As a function it converts: floats "
        "become integers by cutting off, too large ones the largest, and NaN becomes 0.",
        example=f"{dtype.name}([0, 1])",
        gives=f"{_CONVERTED[dtype.kind]}: {dtype.name}[2]",
        operations=("array.cast",),
        derivative="that of the conversion: what arrives is converted back"
        if dtype.is_float
        else "none: only floats have derivatives",
    )


_KINDS: Final = {
    "float": "Floating-point numbers of {bits} bits",
    "int": "Whole numbers of {bits} bits with a sign",
    "uint": "Whole numbers of {bits} bits without a sign",
    "bool": "True or false; in arithmetic it must be converted first",
}
_REMARKS: Final = {
    "bf16": " with the exponent of f32; sums of them accumulate in f32.",
    "f16": " (IEEE 754); sums of them accumulate in f32.",
}
_CONVERTED: Final = {
    "float": "[0.0, 1.0]",
    "int": "[0, 1]",
    "uint": "[0, 1]",
    "bool": "[false, true]",
}

_BROADCAST: Final = "missing axes and those of size 1 are broadcast"

_OPERATORS: Final = (
    (
        "@",
        "a @ b",
        "The matrix product over the last two axes; the inner sizes must agree, leading axes are "
        "broadcast: `f32[.., m, k] @ f32[.., k, n]` is `f32[.., m, n]`, and a vector is a row or a column.",
        "[[1.0, 2.0], [3.0, 4.0]] @ [[1.0], [1.0]]",
        "[[3.0], [7.0]]: f32[2, 1]",
        "array.matmul",
    ),
    (
        "+",
        "a + b",
        f"The sum of each two elements; {_BROADCAST}.",
        "[1, 2] + 10",
        "[11, 12]: i32[2]",
        "array.add",
    ),
    (
        "-",
        "a - b   -a",
        f"The difference of each two elements; {_BROADCAST}.",
        "[1, 2] - 10",
        "[-9, -8]: i32[2]",
        "array.subtract",
    ),
    (
        "*",
        "a * b   n * Block(width)",
        f"The product of each two elements; {_BROADCAST}. A number "
        "and a module make a stack of that many.",
        "[1, 2] * 10",
        "[10, 20]: i32[2]",
        "array.multiply",
    ),
    (
        "/",
        "a / b",
        f"The true quotient of each two elements, of floats; {_BROADCAST}.",
        "[1.0, 2.0] / 4",
        "[0.25, 0.5]: f32[2]",
        "array.divide",
    ),
    (
        "//",
        "a // b",
        "The quotient rounded down, so that `a == a // b * b + a % b`.",
        "[7, -7] // 2",
        "[3, -4]: i32[2]",
        "array.floor_divide",
    ),
    (
        "%",
        "a % b",
        "What the quotient rounded down leaves; it has the sign of b.",
        "[7, -7] % 2",
        "[1, 1]: i32[2]",
        "array.remainder",
    ),
    (
        "**",
        "a ** b",
        "The power; from the right, and tighter than a sign: `-x ** 2` is `-(x ** 2)`.",
        "[2.0, 3.0] ** [3.0, 2.0]",
        "[8.0, 9.0]: f32[2]",
        "array.power",
    ),
    (
        "==",
        "a == b   a != b   a < b   a <= b   a > b   a >= b",
        "Whether it holds for each two elements; comparisons do not chain.",
        "[1, 2] == 2",
        "[false, true]: bool[2]",
        "array.compare",
    ),
    (
        "|>",
        "x |> f   x |> f(a)",
        "Pipes a value to a function: `x |> f(a)` is `f(x, a)`.",
        "[1.0, 3.0] |> sum",
        "4.0: f32",
        "",
    ),
    (
        "[]",
        "x[0]   x[1:3]   x[::2]   x[.., new]   table[ids]",
        "Indices, slices with a step, new axes, "
        "and a gather with a tensor of integers. An index out of range is an error, never clamped.",
        "[[1, 2], [3, 4]][:, -1]",
        "[2, 4]: i32[2]",
        "",
    ),
)

_CONSTANTS: Final = {
    "inf": ("Infinity; `-inf` is the other one.", "[inf, 1.0] > 2", "[true, false]: bool[2]"),
    "nan": (
        "Not a number (NaN): it differs from everything, itself included.",
        "is_nan([nan])",
        "[true]: bool[1]",
    ),
    "pi": ("Half of the circumference of the unit circle.", "[pi] / 2", "[1.5707964]: f32[1]"),
    "none": (
        "Of a parameter: nothing is given.",
        "clip([-1.0, 2.0], 0, none)",
        "[0.0, 2.0]: f32[2]",
    ),
}

assert _CONSTANTS.keys() == CONSTANTS.keys()
