"""Derives the polynomials of `dlc/lowering/math` and writes them to its file `coefficients.py`.

    python -m benchmarks.derive_math

Each is the polynomial of its degree whose largest weighted error is smallest (the exchange algorithm
of E. Remez, 1934; see J.-M. Muller, "Elementary Functions", 3rd edition, section 3.6), found with 100
digits on a fine grid. Then its coefficients are rounded to the dtype: each stands behind a leading term
that is exact, so the rounding hardly counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mpmath import mp, mpf

TARGET = Path(__file__).parents[1] / "dlc" / "lowering" / "math" / "coefficients.py"
GRID = 800
SINGLE, DOUBLE = 24, 53

Function = Callable[[mpf], mpf]


@dataclass(frozen=True, slots=True)
class Problem:
    """Approximate `function` on the interval; `weight` times the error is what counts."""

    name: str
    meaning: str
    function: Function
    weight: Function
    interval: tuple[float, float]
    degree: int
    bits: int


def solve(problem: Problem) -> tuple[list[mpf], mpf]:
    """The coefficients, each a number of the dtype, and the largest weighted error with them."""
    grid = [_node(problem, k, GRID) for k in range(GRID + 1)]
    wanted = [problem.function(x) for x in grid]
    weights = [problem.weight(x) for x in grid]
    best = _fit(grid, wanted, weights, problem.degree + 1)
    coefficients = [rounded(c, problem.bits) for c in best]
    return coefficients, max(abs(e) for e in _errors(grid, wanted, weights, coefficients))


def _node(problem: Problem, k: int, count: int) -> mpf:
    """One of the extrema of a Chebyshev polynomial, moved to the interval."""
    low, high = (mpf(end) for end in problem.interval)
    middle, half = (high + low) / 2, (high - low) / 2
    return middle - half * mp.cos(mp.pi * k / count)


def _fit(
    grid: Sequence[mpf], wanted: Sequence[mpf], weights: Sequence[mpf], count: int
) -> list[mpf]:
    """The best `count` coefficients."""
    usable = [k for k, weight in enumerate(weights) if weight != 0]
    nodes = [usable[(len(usable) - 1) * k // count] for k in range(count + 1)]
    while True:
        coefficients, level = _alternate(grid, wanted, weights, nodes)
        errors = _errors(grid, wanted, weights, coefficients)
        if max(abs(e) for e in errors) <= abs(level) * mpf("1.001"):
            return coefficients
        nodes = _extrema(errors, count + 1)


def _alternate(
    grid: Sequence[mpf], wanted: Sequence[mpf], weights: Sequence[mpf], nodes: Sequence[int]
) -> tuple[list[mpf], mpf]:
    """Coefficients whose weighted errors at the nodes are equal and alternate in sign."""
    count = len(nodes) - 1
    matrix = mp.matrix(count + 1, count + 1)
    right = mp.matrix(count + 1, 1)
    for row, node in enumerate(nodes):
        for column in range(count):
            matrix[row, column] = grid[node] ** column
        matrix[row, count] = (-1) ** row / weights[node]
        right[row] = wanted[node]
    solution = mp.lu_solve(matrix, right)
    return [solution[k] for k in range(count)], solution[count]


def _errors(
    grid: Sequence[mpf], wanted: Sequence[mpf], weights: Sequence[mpf], coefficients: Sequence[mpf]
) -> list[mpf]:
    return [
        weight * (want - _value(coefficients, x))
        for x, want, weight in zip(grid, wanted, weights, strict=True)
    ]


def _extrema(errors: Sequence[mpf], count: int) -> list[int]:
    """Where the error is largest in each stretch of one sign; `count` neighbouring ones."""
    peaks: list[int] = []
    for k, error in enumerate(errors):
        if error == 0:
            continue
        if peaks and (errors[peaks[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[peaks[-1]]):
                peaks[-1] = k
        else:
            peaks.append(k)
    while len(peaks) > count:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    assert len(peaks) == count, "the error changes its sign too seldom: take a finer grid"
    return peaks


def _value(coefficients: Sequence[mpf], x: mpf) -> mpf:
    result = mpf(0)
    for coefficient in reversed(coefficients):
        result = result * x + coefficient
    return result


def rounded(value: mpf, bits: int) -> mpf:
    """The nearest number with `bits` significant bits."""
    if value == 0:
        return value
    _, exponent = mp.frexp(value)
    scale = mpf(2) ** (bits - exponent)
    return mp.nint(value * scale) / scale


def near_zero(function: Function) -> Function:
    """The same function, with its limit at 0 where its formula has none."""
    return lambda x: function(x if abs(x) > mpf("1e-25") else mpf("1e-25"))


def _of_root(function: Function) -> Function:
    """As a function of the square of its argument."""
    return near_zero(lambda z: function(mp.sqrt(z)))


# Intervals, a little wider than needed where a bound of theirs is found in floating point.
HALF_LN2 = 0.3468  # exp: half of ln 2
LOG_ROOT = 0.029438  # log: ((sqrt 2 - 1) / (sqrt 2 + 1)) ** 2
EIGHTH_TURN = 0.61686  # sin and cos: (pi / 4) ** 2
TANH_SPLIT = 0.625  # tanh: above, it is found by exp
ERF_SPLIT = 1.0  # erf: up to here a polynomial in the square
ERF_ONE = 3.92  # erf rounds to 1 in f32
ERFC_POLE = 2.5  # erfc in f64 is a polynomial in (x - pole) / (x + pole) times exp(-x * x)
ERFC_LAST = 6.0  # erf rounds to 1 in f64


def erf_middle() -> float:
    """A place in f32 near the middle of the second interval whose erf is almost a number of f32.

    The polynomial's first coefficient is the erf there, so rounding it costs nothing.
    """
    start = rounded(mpf(ERF_SPLIT + ERF_ONE) / 2, SINGLE)
    places = [start + k * mpf(2) ** -22 for k in range(2000)]
    return float(min(places, key=lambda x: abs(mp.erf(x) - rounded(mp.erf(x), SINGLE))))


def problems() -> list[Problem]:
    """All polynomials that are in use."""
    return [
        *_pair(
            "EXP", "(exp(x) - 1 - x) / x**2", _exp_tail, _exp_weight, (-HALF_LN2, HALF_LN2), 4, 10
        ),
        Problem(
            "LOG_F32",
            "(log(1 + x) - x + x**2 / 2) / x**3",
            near_zero(lambda x: (mp.log1p(x) - x + x**2 / 2) / x**3),
            near_zero(lambda x: abs(x**3 / mp.log1p(x))),
            (-1 / 3, 1 / 3),
            7,
            SINGLE,
        ),
        _odd("LOG_F64", "2 * atanh", lambda x: 2 * mp.atanh(x), LOG_ROOT, 6, DOUBLE, slope=2),
        _odd("ATAN_F32", "atan", mp.atan, 1, 7, SINGLE),
        _odd("ATAN_F64", "atan", mp.atan, 1, 20, DOUBLE),
        _odd("ASIN_F32", "asin", mp.asin, 0.25, 4, SINGLE),
        _odd("ASIN_F64", "asin", mp.asin, 0.25, 11, DOUBLE),
        _odd("SINH_F32", "sinh", mp.sinh, HALF_LN2**2, 2, SINGLE),
        _odd("SINH_F64", "sinh", mp.sinh, HALF_LN2**2, 5, DOUBLE),
        *_pair(
            "COSH", "(cosh(x) - 1 - z / 2) / z**2", _cosh_tail, _cosh_weight, (0, HALF_LN2**2), 1, 4
        ),
        _odd("TANH_F32", "tanh", mp.tanh, TANH_SPLIT**2, 4, SINGLE),
        _odd("TANH_F64", "tanh", mp.tanh, TANH_SPLIT**2, 11, DOUBLE),
        _odd("SIN_F64", "sin", mp.sin, EIGHTH_TURN, 5, DOUBLE),
        Problem(
            "COS_F64",
            "(cos(x) - 1 + z / 2) / z**2 as a polynomial in z = x**2",
            _of_root(lambda x: (mp.cos(x) - 1 + x**2 / 2) / x**4),
            lambda z: z**2,
            (0, EIGHTH_TURN),
            5,
            DOUBLE,
        ),
        Problem(
            "SINE_OF_PI",
            "sin(pi * x) / x as a polynomial in z = x**2, good enough for f32",
            _of_root(lambda x: mp.sin(mp.pi * x) / x),
            _of_root(lambda x: x / mp.sin(mp.pi * x)),
            (0, 0.25),
            5,
            DOUBLE,
        ),
        Problem(
            "EXP_FOR_F32",
            "(exp(x) - 1 - x) / x**2 in f64, good enough for f32",
            _exp_tail,
            _exp_weight,
            (-HALF_LN2, HALF_LN2),
            5,
            DOUBLE,
        ),
        _odd("LOG_FOR_F32", "2 * atanh", lambda x: 2 * mp.atanh(x), LOG_ROOT, 3, DOUBLE, slope=2),
        Problem(
            "LOG_FIFTH",
            "(2 * atanh(x) - 2 * x - 2 * x**3 / 3) / x**5 as a polynomial in z = x**2",
            _of_root(lambda x: (2 * mp.atanh(x) - 2 * x - 2 * x**3 / 3) / x**5),
            lambda z: z**2,
            (0, LOG_ROOT),
            6,
            DOUBLE,
        ),
        *_error_functions(),
    ]


def _pair(
    name: str,
    meaning: str,
    function: Function,
    weight: Function,
    interval: tuple[float, float],
    single: int,
    double: int,
) -> list[Problem]:
    """The same for f32 and f64, with a degree for each."""
    return [
        Problem(f"{name}_F32", meaning, function, weight, interval, single, SINGLE),
        Problem(f"{name}_F64", meaning, function, weight, interval, double, DOUBLE),
    ]


def _odd(
    name: str, word: str, function: Function, high: float, degree: int, bits: int, slope: int = 1
) -> Problem:
    """The tail of an odd function after its first term, relative to the function."""
    first = "x" if slope == 1 else f"{slope} * x"
    return Problem(
        name,
        f"({word}(x) - {first}) / x**3 as a polynomial in z = x**2",
        _of_root(lambda x: (function(x) - slope * x) / x**3),
        _of_root(lambda x: abs(x**3 / function(x))),
        (0, high),
        degree,
        bits,
    )


def _error_functions() -> list[Problem]:
    middle = erf_middle()
    low, high = ((end - ERFC_POLE) / (end + ERFC_POLE) for end in (ERF_SPLIT, ERFC_LAST))

    def before_pole(t: mpf) -> mpf:
        return ERFC_POLE * (1 + t) / (1 - t)

    return [
        _erf_small("ERF_F32", 6, SINGLE),
        Problem(
            "ERF_LARGE_F32",
            f"erf(x + {middle!r})",
            lambda x: mp.erf(x + middle),
            lambda x: mpf(1),
            (ERF_SPLIT - middle, ERF_ONE - middle),
            14,
            SINGLE,
        ),
        _erf_small("ERF_F64", 12, DOUBLE),
        Problem(
            "ERFC_F64",
            f"erfc(x) * exp(x**2) as a polynomial in (x - {ERFC_POLE}) / (x + {ERFC_POLE})",
            lambda t: mp.erfc(before_pole(t)) * mp.exp(before_pole(t) ** 2),
            lambda t: mp.exp(-(before_pole(t) ** 2)),
            (low, high),
            12,
            DOUBLE,
        ),
    ]


def _erf_small(name: str, degree: int, bits: int) -> Problem:
    return Problem(
        name,
        "erf(x) / x - 1 as a polynomial in z = x**2",
        _of_root(lambda x: mp.erf(x) / x - 1),
        _of_root(lambda x: x / mp.erf(x)),
        (0, ERF_SPLIT**2),
        degree,
        bits,
    )


@near_zero
def _exp_tail(x: mpf) -> mpf:
    return (mp.expm1(x) - x) / x**2


@near_zero
def _exp_weight(x: mpf) -> mpf:
    """Relative to `exp(x) - 1`."""
    return abs(x**2 / mp.expm1(x))


@_of_root
def _cosh_tail(x: mpf) -> mpf:
    return (mp.cosh(x) - 1 - x**2 / 2) / x**4


def _cosh_weight(z: mpf) -> mpf:
    return z**2


HEADER = '''"""Coefficients of polynomials, lowest power first. Made by `python -m benchmarks.derive_math`.

The comments say what each polynomial approximates, where, and its largest error: relative to the
function that it is a part of, absolute for erf where that is near 1.
"""
'''


def text() -> str:
    """The file."""
    mp.dps = 100
    parts = [HEADER, "# Numbers as the nearest f64 and the nearest f64 to what that leaves out."]
    parts += [_number("LN2", mp.log(2)), _number("PI", mp.pi), _number("LOG2_E", 1 / mp.log(2))]
    parts += [f"\nERF_MIDDLE = {erf_middle()!r}\n"]
    parts += [_table(problem) for problem in problems()]
    parts.append(_inverse_pi())
    return "\n".join(parts)


def _number(name: str, value: mpf) -> str:
    first = rounded(value, DOUBLE)
    return f"{name} = ({float(first)!r}, {float(value - first)!r})"


def _table(problem: Problem) -> str:
    coefficients, error = solve(problem)
    low, high = problem.interval
    lines = [
        f"# {problem.meaning}",
        f"# on [{low:.6g}, {high:.6g}]; error 2**{float(mp.log(error, 2)):.1f}.",
        f"{problem.name} = (",
        *(f"    {_decimal(c, problem.bits)}," for c in coefficients),
        ")\n",
    ]
    return "\n".join(lines)


def _decimal(value: mpf, bits: int) -> str:
    """The shortest decimal number that stands for this number of the dtype."""
    return repr(float(value)) if bits == DOUBLE else str(np.float32(float(value)))


INVERSE_PI_BITS = 1280


def _inverse_pi() -> str:
    with mp.workprec(INVERSE_PI_BITS + 100):
        digits = f"{int(mp.floor(mpf(2) ** INVERSE_PI_BITS / mp.pi)):X}"
    rows = [digits[k : k + 80] for k in range(0, len(digits), 80)]
    return "\n".join(
        [
            f"# The first {INVERSE_PI_BITS} bits of 1 / pi after the binary point.",
            f"INVERSE_PI_BITS = {INVERSE_PI_BITS}",
            "INVERSE_PI = int(",
            *(f'    "{row}"' for row in rows[:-1]),
            f'    "{rows[-1]}",',
            "    16,",
            ")\n",
        ]
    )


if __name__ == "__main__":
    TARGET.write_text(text())
