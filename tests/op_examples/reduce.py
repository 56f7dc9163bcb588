"""Examples of reductions, running reductions and extremes, against Python's loops."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import cast

import numpy as np

from dlc.ir.core import OPS, Op, Value
from dlc.ir.dims import symbol
from dlc.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType
from tests.op_examples.example import (
    Example,
    Input,
    Numbers,
    drawn,
    examples,
    given,
    wrap,
)

B = symbol("B")
Fold = Callable[[list[float]], float]


def build(name: str, *attributes: object) -> Callable[[Value], Op]:
    """An operation of one operand."""
    make = cast("Callable[..., Op]", OPS[f"array.{name}"])
    return lambda x: make(x, *attributes)


def over(axes: tuple[int, ...], function: Fold) -> Callable[[Numbers], Numbers]:
    """The function of the list of elements along the axes, row-major."""

    def reduce(x: Numbers) -> Numbers:
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        result = np.empty([x.shape[axis] for axis in kept], object)
        for place in np.ndindex(result.shape):
            at = dict(zip(kept, place, strict=True))
            ranges = [[at[k]] if k in at else range(size) for k, size in enumerate(x.shape)]
            result[place] = function([x[index].item() for index in itertools.product(*ranges)])
        return result

    return reduce


def product(numbers: list[float]) -> float:
    return functools.reduce(lambda x, y: x * y, numbers, 1)


def largest(numbers: list[float]) -> float:
    return math.nan if any(map(math.isnan, numbers)) else max(numbers)


def smallest(numbers: list[float]) -> float:
    return math.nan if any(map(math.isnan, numbers)) else min(numbers)


def reduction(name: str, inputs: list[Input], function: Fold, *, exact: bool = False) -> None:
    """Examples over the first, the last and all axes."""
    for given_input in inputs:
        rank = given_input.array.ndim
        for axes in {(0,), (rank - 1,), (0, rank - 1) if rank > 1 else (0,), ()}:
            examples(
                name,
                Example(
                    build(name.removeprefix("array."), axes),
                    [given_input],
                    over(axes, function),
                    exact=exact or not given_input.dtype.is_float,
                ),
            )


def wrapping(function: Fold, dtype: DType) -> Fold:
    return lambda numbers: wrap(int(function(numbers)), dtype)


FLOATS = [drawn(dtype, (2, 3, 2)) for dtype in (F64, F32, F16, BF16)]
HOLES = [given(F64, [[math.nan, 1.0, 2.0], [math.inf, -math.inf, 0.0]])]
ZEROS = [given(F64, [[0.0, 3.0, 2.0], [0.0, 0.0, 2.0]])]
BYTES = {dtype: [drawn(dtype, (3, 4), 0, 100)] for dtype in (I8, U8)}

reduction("array.reduce_sum", FLOATS, math.fsum)
reduction("array.reduce_product", [*FLOATS, *ZEROS], product)
for dtype, rows in BYTES.items():
    reduction("array.reduce_sum", rows, wrapping(sum, dtype))
    reduction("array.reduce_product", rows, wrapping(product, dtype))
    reduction("array.reduce_max", rows, max)
    reduction("array.reduce_min", rows, min)
    reduction(
        "array.reduce_and", rows, lambda numbers: functools.reduce(int.__and__, map(int, numbers))
    )
    reduction(
        "array.reduce_or", rows, lambda numbers: functools.reduce(int.__or__, map(int, numbers))
    )
reduction("array.reduce_max", FLOATS, largest, exact=True)
reduction("array.reduce_min", FLOATS, smallest, exact=True)
TRUTH = [given(BOOL, [[True, False], [True, True]])]
reduction("array.reduce_and", TRUTH, all)
reduction("array.reduce_or", TRUTH, any)
reduction("array.reduce_max", TRUTH, any)

for name, function in {"reduce_max": largest, "reduce_min": smallest}.items():
    examples(
        f"array.{name}",
        Example(build(name, (1,)), HOLES, over((1,), function), exact=True, orders=0),
    )
examples(
    "array.reduce_max",
    Example(
        build("reduce_max", (0,)),
        [given(F32, np.zeros((0, 2)))],
        lambda x: np.full(2, -math.inf),
        exact=True,
    ),
    Example(
        build("reduce_max", (0,)),
        [given(I8, np.zeros((0, 2)))],
        lambda x: np.full(2, -128),
        exact=True,
    ),
)
examples(
    "array.reduce_min",
    Example(
        build("reduce_min", (0,)),
        [given(U8, np.zeros((0, 2)))],
        lambda x: np.full(2, 255),
        exact=True,
    ),
)
examples(
    "array.reduce_sum",
    Example(
        build("reduce_sum", (0,)),
        [drawn(F64, (3, 2), symbolic=(B, 2))],
        over((0,), math.fsum),
        dims={"B": 3},
    ),
)


def where_is(best: Fold) -> Fold:
    """The first place of the best, or of the first NaN."""

    def place(numbers: list[float]) -> int:
        wanted = best(numbers)
        return next(k for k, number in enumerate(numbers) if number == wanted or number != number)

    return place


for name, best in {"argmax": largest, "argmin": smallest}.items():
    for row in [*FLOATS, *HOLES, *ZEROS, *BYTES[I8], *TRUTH]:
        for axis in range(row.array.ndim):
            examples(
                f"array.{name}",
                Example(build(name, axis), [row], over((axis,), where_is(best)), exact=True),
            )


def running(
    axis: int, function: Fold, *, reverse: bool, exclusive: bool
) -> Callable[[Numbers], Numbers]:
    """The function of the elements up to each place."""

    def accumulate(x: Numbers) -> Numbers:
        result = np.empty(x.shape, object)
        for place in np.ndindex(x.shape):
            before, k, after = place[:axis], place[axis], place[axis + 1 :]
            if reverse:
                covered = range(x.shape[axis] - 1, k - (not exclusive), -1)
            else:
                covered = range(k + (not exclusive))
            result[place] = function([x[(*before, i, *after)].item() for i in covered])
        return result

    return accumulate


RUNNING: dict[str, tuple[Fold, list[Input], bool]] = {
    "cumulative_sum": (math.fsum, [*FLOATS, *ZEROS], False),
    "cumulative_product": (product, [*FLOATS, *ZEROS], False),
    "cumulative_max": (lambda row: largest(row) if row else -math.inf, FLOATS, True),
    "cumulative_min": (lambda row: smallest(row) if row else math.inf, FLOATS, True),
}
for name, (function, rows, exact) in RUNNING.items():
    for row, axis, reverse, exclusive in itertools.product(
        rows, (0, 1), (False, True), (False, True)
    ):
        examples(
            f"array.{name}",
            Example(
                build(name, axis, reverse, exclusive),
                [row],
                running(axis, function, reverse=reverse, exclusive=exclusive),
                exact=exact,
            ),
        )
examples(
    "array.cumulative_sum",
    Example(
        build("cumulative_sum", 0),
        [given(I8, [100, 100, 100])],
        lambda x: np.array([100, -56, 44]),
        exact=True,
    ),
)
examples(
    "array.cumulative_max",
    Example(
        build("cumulative_max", 0, True, True),
        [given(I32, [1, 5, 3])],
        lambda x: np.array([5, 3, -(2**31)]),
        exact=True,
    ),
    Example(
        build("cumulative_max", 0),
        [given(I64, [])],
        lambda x: np.zeros(0),
        exact=True,
    ),
)
