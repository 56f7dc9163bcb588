"""Examples of gather and scatter, sorting, and sizes that depend on values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import array
from dlc.ir.core import Op, Value
from dlc.ir.dims import symbol
from dlc.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U16
from tests.op_examples.example import Example, Input, Numbers, drawn, examples, given, loop

B = symbol("B")


examples(
    "array.check_index",
    Example(
        lambda i: array.CheckIndex(i, 4),
        [given(U8, [[1, 3], [0, 2]])],
        lambda i: np.array([[True, True], [True, True]]),
        exact=True,
    ),
    Example(
        lambda i: array.CheckIndex(i, 4, 3),
        [given(I64, 1)],
        lambda i: np.array(True),
        exact=True,
    ),
)


def gather(*axes: int) -> Callable[..., Op]:
    def build(source: Value, *indices: Value) -> Op:
        return array.Gather(source, indices, axes)

    return build


examples(
    "array.gather",
    Example(
        gather(0),
        [drawn(F64, (4, 3)), given(U8, [[1, 3], [1, 0]])],
        lambda x, i: loop((2, 2, 3), lambda p, q, r: x[i[p, q], r]),
        exact=True,
    ),
    Example(
        gather(0, 2),
        [drawn(F64, (3, 2, 4)), given(I32, [2, 0, 2]), given(I32, [3, 1, 3])],
        lambda x, i, j: loop((3, 2), lambda p, q: x[i[p], q, j[p]]),
        exact=True,
    ),
    Example(gather(1), [drawn(BF16, (2, 3)), given(I64, 2)], lambda x, i: x[:, 2], exact=True),
    Example(
        gather(0),
        [drawn(F64, (5,), symbolic=(B,)), given(I64, [4, 0])],
        lambda x, i: np.array([x[4], x[0]]),
        exact=True,
        dims={"B": 5},
    ),
    Example(
        gather(0),
        [given(BOOL, [True, False]), given(U16, np.zeros((0, 2)))],
        lambda x, i: np.zeros((0, 2)),
        exact=True,
    ),
)

COMBINE: dict[str, Callable[[float, float], float]] = {
    "set": lambda old, new: new,
    "add": lambda old, new: old + new,
    "multiply": lambda old, new: old * new,
    "max": max,
    "min": min,
}


def scatter(mode: str, *axes: int, unique: bool = False) -> Callable[..., Op]:
    def build(target: Value, updates: Value, *indices: Value) -> Op:
        return array.Scatter(target, updates, indices, axes, mode, unique)

    return build


def scattered(mode: str, *axes: int) -> Callable[..., Numbers]:
    """One update after the other."""

    def put(target: Numbers, updates: Numbers, *indices: Numbers) -> Numbers:
        result = target.astype(object)
        rest = [axis for axis in range(target.ndim) if axis not in axes]
        for place in np.ndindex(updates.shape):
            front, behind = place[: indices[0].ndim], place[indices[0].ndim :]
            at = dict(zip(axes, [int(index[front]) for index in indices], strict=True))
            at |= dict(zip(rest, behind, strict=True))
            where = tuple(at[axis] for axis in range(target.ndim))
            result[where] = COMBINE[mode](result[where], updates[place].item())
        return result

    return put


for mode in COMBINE:
    twice: list[Input] = [
        drawn(F64, (4, 2)),
        drawn(F64, (5, 2), seed=1),
        given(I32, [1, 3, 1, 0, 1]),
    ]
    once: list[Input] = [drawn(F64, (3, 4)), drawn(F64, (2, 3), seed=1), given(I64, [3, 1])]
    examples(
        "array.scatter",
        Example(
            scatter(mode, 0),
            twice,
            scattered(mode, 0),
            exact=mode not in ("add", "multiply"),
            orders=0 if mode == "multiply" else 2,
        ),
        Example(scatter(mode, 1, unique=True), once, scattered(mode, 1)),
        Example(
            scatter(mode, 0, 1),
            [drawn(I8, (2, 2), 0, 9), given(I8, [3, 5]), given(I64, [1, 1]), given(I64, [0, 0])],
            scattered(mode, 0, 1),
            exact=True,
        ),
    )
examples(
    "array.scatter",
    Example(
        scatter("add", 0),
        [given(F16, [0.0]), given(F16, [1.0, 2.0**-11, 2.0**-11]), given(I32, [0, 0, 0])],
        lambda target, updates, index: np.array([1 + 2.0**-10]),
        exact=True,
    ),
    Example(
        scatter("set", 0),
        [given(BOOL, [True, True]), given(BOOL, False), given(U8, 1)],
        lambda target, updates, index: np.array([True, False]),
        exact=True,
    ),
)


def before(x: float, y: float) -> int:
    """The order of the language: NaN above all numbers."""
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) - math.isnan(y)
    return (x > y) - (x < y)


def ordered(keys: Sequence[float], *, descending: bool) -> list[int]:
    """The indices of sorted keys, by insertion: stable without relying on a sort."""
    order: list[int] = []
    for k, key in enumerate(keys):
        place = len(order)
        while place > 0:
            comparison = before(keys[order[place - 1]], key)
            if (comparison < 0 if descending else comparison > 0) is False:
                break
            place -= 1
        order.insert(place, k)
    return order


def sort(axis: int, *, descending: bool) -> Callable[..., Op]:
    def build(keys: Value, *values: Value) -> Op:
        return array.Sort(keys, values, axis, descending)

    return build


def sorted_along(axis: int, *, descending: bool) -> Callable[..., tuple[Numbers, ...]]:
    def apply(keys: Numbers, *values: Numbers) -> tuple[Numbers, ...]:
        moved = [np.moveaxis(array, axis, -1) for array in (keys, *values)]
        results = [array.copy() for array in moved]
        for row in np.ndindex(moved[0].shape[:-1]):
            order = ordered(moved[0][row].tolist(), descending=descending)
            for result, source in zip(results, moved, strict=True):
                result[row] = [source[(*row, k)] for k in order]
        return tuple(np.moveaxis(result, -1, axis) for result in results)

    return apply


TIES = [
    given(F32, [[math.nan, 1.0, -0.0, 0.0, -math.inf, 1.0, math.nan]]),
    given(I32, [range(7)]),
]
for descending in (False, True):
    examples(
        "array.sort",
        Example(
            sort(1, descending=descending), TIES, sorted_along(1, descending=descending), exact=True
        ),
        Example(
            sort(0, descending=descending),
            [drawn(F64, (4, 2)), drawn(F64, (4, 2), seed=1)],
            sorted_along(0, descending=descending),
            exact=True,
        ),
        *[
            Example(
                sort(0, descending=descending),
                [drawn(dtype, (5,), 0, 3)],
                sorted_along(0, descending=descending),
                exact=True,
            )
            for dtype in (U8, I8, BF16, F16)
        ],
        Example(
            sort(0, descending=descending),
            [given(BOOL, [True, False, True])],
            sorted_along(0, descending=descending),
            exact=True,
        ),
    )


def top_k(axis: int, k: int, *, largest: bool) -> Callable[[Value], Op]:
    return lambda x: array.TopK(x, axis, k, largest)


def best_of(k: int, *, largest: bool) -> Callable[[Numbers], tuple[Numbers, Numbers]]:
    """Along the last axis."""

    def choose(x: Numbers) -> tuple[Numbers, Numbers]:
        order = np.array(
            [ordered(row, descending=largest)[:k] for row in x.reshape(-1, x.shape[-1]).tolist()]
        ).reshape(*x.shape[:-1], k)
        return np.take_along_axis(x, order, -1), order

    return choose


for largest in (True, False):
    examples(
        "array.top_k",
        Example(
            top_k(1, 2, largest=largest),
            [drawn(F64, (2, 4))],
            best_of(2, largest=largest),
            exact=True,
        ),
        Example(top_k(1, 5, largest=largest), TIES[:1], best_of(5, largest=largest), exact=True),
        Example(
            top_k(0, 3, largest=largest),
            [given(U8, [3, 7, 3, 7, 0])],
            best_of(3, largest=largest),
            exact=True,
        ),
    )


def nonzero(source: Value) -> Op:
    return array.NonZero(source, "N")


def where(x: Numbers) -> tuple[Numbers, Numbers]:
    rows = [place for place in np.ndindex(x.shape) if x[place] != 0]
    return np.array(rows, np.int64).reshape(len(rows), x.ndim), np.array(len(rows))


for source in (
    given(F64, [[0.0, 1.0, -0.0], [math.nan, 0.0, 2.0]]),
    given(BF16, [0.0, 2.0]),
    given(BOOL, [False, False]),
    given(I32, 3),
):
    count = int(where(source.values)[1])
    examples("array.nonzero", Example(nonzero, [source], where, exact=True, dims={"N": count}))
