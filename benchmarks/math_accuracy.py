"""How far the compiled functions are from the exact results, in units in the last place (ULP).

    python -m benchmarks.math_accuracy [--all] [NAME]...

prints the rows of the table in `docs/math.md`. With `--all`, f32 functions of one number are run on all
2**32 of them, which takes minutes for each. Results of f32 are compared with those of f64 functions, and
results of f64 with those of the C library's long double, which is 2048 times as fine on x86-64.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from benchmarks.scalar_functions import Compiled, expanded
from dlc.dialects import scalar
from dlc.ir.core import Op
from dlc.ir.types import F32, F64, DType

# NumPy's stubs have no dtype for "f32 or f64, as it was given".
Floats: TypeAlias = NDArray[Any]
Reference: TypeAlias = Callable[..., Floats]

LANES = {F32: 8, F64: 4}
CHUNK = 1 << 16  # what stays in the cache
EXPONENT_BITS = np.uint64(0x7FF0_0000_0000_0000)
SQRT_PI = np.sqrt(np.longdouble("3.14159265358979323846264338327950288"))


@dataclass(frozen=True, slots=True)
class Function:
    """An operation and what it should give, for arrays of f64 or long double."""

    op: type[Op]
    reference: Reference
    inputs: int = 1

    @property
    def name(self) -> str:
        return self.op.name.removeprefix("scalar.")

    def compiled(self, dtype: DType) -> Compiled:
        return Compiled(expanded(self.op), [dtype] * self.inputs, LANES[dtype])


@dataclass(frozen=True, slots=True)
class Worst:
    """The largest error met, and for which operands."""

    ulps: float
    operands: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.ulps:.3f} | {', '.join(map(repr, self.operands))}"


def erf(x: Floats) -> Floats:
    """The error function, by `2 / sqrt(pi) * exp(-x * x) * (x + 2/3 * x**3 + 4/15 * x**5 + ...)`."""
    if x.dtype == np.float64:
        return special.erf(x)
    size = np.minimum(np.abs(x), 7)
    term = total = size
    for n in range(1, 250):
        term = term * (2 * size * size / (2 * n + 1))
        total = total + term
    return np.copysign(2 / SQRT_PI * np.exp(-size * size) * total, x)


def sigmoid(x: Floats) -> Floats:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def rsqrt(x: Floats) -> Floats:
    return 1 / np.sqrt(x)


FUNCTIONS = {
    function.name: function
    for function in (
        Function(scalar.Exp, np.exp),
        Function(scalar.Expm1, np.expm1),
        Function(scalar.Log, np.log),
        Function(scalar.Log1p, np.log1p),
        Function(scalar.Sigmoid, sigmoid),
        Function(scalar.Tanh, np.tanh),
        Function(scalar.Erf, erf),
        Function(scalar.Rsqrt, rsqrt),
        Function(scalar.Sin, np.sin),
        Function(scalar.Cos, np.cos),
        Function(scalar.Tan, np.tan),
        Function(scalar.Asin, np.arcsin),
        Function(scalar.Acos, np.arccos),
        Function(scalar.Atan, np.arctan),
        Function(scalar.Sinh, np.sinh),
        Function(scalar.Cosh, np.cosh),
        Function(scalar.Asinh, np.arcsinh),
        Function(scalar.Acosh, np.arccosh),
        Function(scalar.Atanh, np.arctanh),
        Function(scalar.Power, np.power, 2),
        Function(scalar.Atan2, np.arctan2, 2),
        Function(scalar.Remainder, np.remainder, 2),
        Function(scalar.TruncatedRemainder, np.fmod, 2),
    )
}


def ulps(got: Floats, want: Floats) -> NDArray[np.float64]:
    """The errors in units in the last place of the exact results; infinite where a result is wrong.

    NaN must be NaN, an infinity itself, a zero must have its sign; a result may overflow only where
    the exact one rounds to infinity.
    """
    digits, least, most = (24, -125, 128) if got.dtype == np.float32 else (53, -1021, 1024)
    one = want.dtype.type(1)
    with np.errstate(all="ignore"):
        unit = np.maximum(_power_of_two(want) * 2.0 ** (1 - digits), np.ldexp(one, least - digits))
        errors = (np.abs(got.astype(want.dtype) - want) / unit).astype(np.float64)
        overflow = np.ldexp(one, most) - np.ldexp(one, most - digits - 1)
        special = np.flatnonzero(~np.isfinite(errors) | (want == 0))
        right = _right(got[special], want[special], overflow)
    errors[special] = np.where(right, 0, np.inf)
    return errors


def _power_of_two(x: Floats) -> Floats:
    """The largest power of two that is not above |x|, where x is a normal number."""
    if x.dtype == np.float64:
        return (x.view(np.uint64) & EXPONENT_BITS).view(np.float64)
    return np.ldexp(x.dtype.type(1), np.frexp(x)[1] - 1)


def _right(got: Floats, want: Floats, overflow: Floats) -> NDArray[np.bool_]:
    """Whether results are those that are wanted, some of either being zero, infinite or NaN."""
    same_sign = np.signbit(got) == np.signbit(want)
    same = (got == want) & same_sign
    overflown = np.isinf(got) & same_sign & (np.abs(want) >= overflow)
    return same | overflown | (np.isnan(got) & np.isnan(want))


def worst(function: Function, samples: Iterator[tuple[Floats, ...]]) -> Worst:
    """The largest error on samples, arrays of f32 or f64 for each operand."""
    found = Worst(-1.0, ())
    code: dict[np.dtype[np.generic], Compiled] = {}
    for operands in samples:
        kind = operands[0].dtype
        if kind not in code:
            code[kind] = function.compiled(F32 if kind == np.float32 else F64)
        finer = np.float64 if kind == np.float32 else np.longdouble
        got = code[kind](*operands)
        with np.errstate(all="ignore"):
            want = function.reference(*[operand.astype(finer) for operand in operands])
        errors = ulps(got.astype(kind), want)
        place = int(errors.argmax())
        if errors[place] > found.ulps:
            found = Worst(float(errors[place]), tuple(float(x[place]) for x in operands))
    return found


def all_singles() -> Iterator[tuple[Floats, ...]]:
    """All f32 numbers."""
    for start in range(0, 1 << 32, CHUNK):
        yield (np.arange(start, start + CHUNK, dtype=np.uint32).view(np.float32),)


def samples(
    function: Function, dtype: DType, count: int, seed: int = 1
) -> Iterator[tuple[Floats, ...]]:
    """Some special numbers, all magnitudes, and more where functions have their interesting parts.

    A larger count gives the same samples and more.
    """
    edges = special_numbers(dtype)
    grid = np.meshgrid(*[edges] * function.inputs)
    yield tuple(axis.ravel() for axis in grid)
    for number in range(-(-count // CHUNK)):
        rng = np.random.default_rng((seed, number))
        if function.op is scalar.Power:
            yield from _powers(rng, dtype, CHUNK // 8)
        for draw in _DRAWS:
            with np.errstate(over="ignore"):
                yield tuple(draw(rng, dtype, CHUNK // 4) for _ in range(function.inputs))


def special_numbers(dtype: DType) -> Floats:
    """Zeros, infinities, NaN, the smallest and largest of each kind, and some whole numbers."""
    facts = np.finfo(np.float32 if dtype is F32 else np.float64)
    positive = [
        0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.pi / 2, 2.0**23 + 1, 2.0**24 - 1, 2.0**53 - 1, np.inf, np.nan,
        float(facts.smallest_subnormal), float(facts.tiny), float(facts.max),
        float(1 + facts.eps), float(1 - facts.epsneg),
    ]  # fmt: skip
    both = np.array([*positive, *(-x for x in positive)])
    return both.astype(dtype.numpy)


def bit_patterns(rng: np.random.Generator, dtype: DType, count: int) -> Floats:
    """Numbers of all magnitudes alike, infinities and NaN among them."""
    if dtype is F32:
        return rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    return rng.integers(0, 1 << 64, count, dtype=np.uint64).view(np.float64)


def _around_zero(rng: np.random.Generator, dtype: DType, count: int) -> Floats:
    return rng.normal(size=count).astype(dtype.numpy)


def _where_exp_is_finite(rng: np.random.Generator, dtype: DType, count: int) -> Floats:
    return (rng.uniform(-110, 110, count) * (1 if dtype is F32 else 7)).astype(dtype.numpy)


def _around_one(rng: np.random.Generator, dtype: DType, count: int) -> Floats:
    distance = rng.normal(size=count) * np.exp2(rng.uniform(-20, 0, count))
    return (1 + distance).astype(dtype.numpy)


_DRAWS = (bit_patterns, _around_zero, _where_exp_is_finite, _around_one)


def _powers(rng: np.random.Generator, dtype: DType, count: int) -> Iterator[tuple[Floats, ...]]:
    """Bases with exponents for which the power is in range or just out of it."""
    limit = 100 if dtype is F32 else 800
    for width in (1e-5, 0.2, 3.0, 40.0):
        with np.errstate(all="ignore"):
            base = np.exp(rng.normal(size=count) * width).astype(dtype.numpy)
            exponent = rng.uniform(-limit, limit, count) / np.log(base.astype(np.float64))
            exponent = exponent.astype(dtype.numpy)
        yield base, exponent
        yield np.negative(base), np.rint(exponent)


def row(function: Function, *, exhaustive: bool, count: int) -> str:
    """One row of the table."""
    every = exhaustive and function.inputs == 1
    single = worst(function, all_singles() if every else samples(function, F32, count))
    double = worst(function, samples(function, F64, count))
    return f"| {function.name} | {'all' if every else 'samples'} | {single} | {double} |"


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="all functions without one")
    parser.add_argument("--all", action="store_true", help="every number of f32, not samples")
    options = parser.parse_args(arguments)
    names: list[str] = options.names or list(FUNCTIONS)
    if unknown := [name for name in names if name not in FUNCTIONS]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(FUNCTIONS)}")
    for name in names:
        print(row(FUNCTIONS[name], exhaustive=options.all, count=4_000_000), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
