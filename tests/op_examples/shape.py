"""Examples of operations that rearrange, repeat, cut and join tensors."""

from __future__ import annotations

import numpy as np

from dlc.dialects import array
from dlc.ir.core import Op, Value
from dlc.ir.dims import Shape, symbol
from dlc.ir.types import BF16, BOOL, F32, F64, I8, I32, I64, U8, DType
from tests.op_examples.example import Build, Example, Numbers, drawn, examples, given, loop

B = symbol("B")


def reshape(*shape: int) -> Build:
    return lambda x: array.Reshape(x, shape)


examples(
    "array.reshape",
    Example(
        reshape(2, 6),
        [drawn(F64, (3, 4))],
        lambda x: loop((2, 6), lambda i, j: x[(6 * i + j) // 4, (6 * i + j) % 4]),
        exact=True,
    ),
    Example(reshape(1, 1), [given(I32, 7)], lambda x: np.full((1, 1), 7), exact=True),
    Example(reshape(0, 3), [given(F32, np.zeros((2, 0)))], lambda x: np.zeros((0, 3)), exact=True),
    Example(
        lambda x: array.Reshape(x, (B * 4,)),
        [drawn(BF16, (3, 4), symbolic=(B, 4))],
        lambda x: loop((12,), lambda k: x[k // 4, k % 4]),
        exact=True,
        dims={"B": 3},
    ),
)


def transpose(*axes: int) -> Build:
    return lambda x: array.Transpose(x, axes)


examples(
    "array.transpose",
    Example(
        transpose(2, 0, 1),
        [drawn(F64, (2, 3, 4))],
        lambda x: loop((4, 2, 3), lambda k, i, j: x[i, j, k]),
        exact=True,
    ),
    Example(
        transpose(1, 0),
        [drawn(U8, (2, 3), 0, 255, symbolic=(B, 3))],
        lambda x: loop((3, 2), lambda j, i: x[i, j]),
        exact=True,
        dims={"B": 2},
    ),
    Example(transpose(), [given(F64, 2.0)], lambda x: x, exact=True),
)


def reverse(*axes: int) -> Build:
    return lambda x: array.Reverse(x, axes)


examples(
    "array.reverse",
    Example(
        reverse(0, 2),
        [drawn(F64, (2, 3, 4))],
        lambda x: loop((2, 3, 4), lambda i, j, k: x[1 - i, j, 3 - k]),
        exact=True,
    ),
    Example(reverse(0), [given(I32, [1, 2, 3])], lambda x: np.array([3, 2, 1]), exact=True),
)


def broadcast(shape: Shape, *axes: int) -> Build:
    return lambda x: array.Broadcast(x, shape, axes)


examples(
    "array.broadcast",
    Example(
        broadcast((2, 3, 4), 0, 2),
        [drawn(F64, (2, 4))],
        lambda x: loop((2, 3, 4), lambda i, j, k: x[i, k]),
        exact=True,
    ),
    Example(
        broadcast((B, 2)), [given(BOOL, True)], lambda x: np.ones((3, 2)), exact=True, dims={"B": 3}
    ),
)


def iota(shape: Shape, axis: int, dtype: DType) -> Build:
    return lambda: array.Iota(shape, axis, dtype)


examples(
    "array.iota",
    Example(iota((2, 3), 1, I64), [], lambda: np.array([[0, 1, 2], [0, 1, 2]]), exact=True),
    Example(iota((300,), 0, U8), [], lambda: loop((300,), lambda i: i % 256), exact=True),
    Example(
        iota((B, 2), 0, BF16),
        [],
        lambda: np.array([[0, 0], [1, 1], [2, 2]]),
        exact=True,
        dims={"B": 3},
    ),
)


def cut(starts: Shape, limits: Shape, steps: tuple[int, ...]) -> Build:
    return lambda x: array.Slice(x, starts, limits, steps)


examples(
    "array.slice",
    Example(
        cut((1, 0), (4, 5), (1, 2)),
        [drawn(F64, (4, 6))],
        lambda x: loop((3, 3), lambda i, j: x[1 + i, 2 * j]),
        exact=True,
    ),
    Example(cut((2,), (7,), (3,)), [given(I8, range(8))], lambda x: np.array([2, 5]), exact=True),
    Example(
        cut((1, 0), (B, 1), (1, 1)),
        [drawn(F64, (4, 2), symbolic=(B, 2))],
        lambda x: loop((3, 1), lambda i, j: x[1 + i, j]),
        exact=True,
        dims={"B": 4},
        least=1,
    ),
    Example(
        cut((0,), (B,), (2,)),
        [drawn(F64, (5,), symbolic=(B,))],
        lambda x: loop((3,), lambda i: x[2 * i]),
        exact=True,
        dims={"B": 5},
    ),
    Example(cut((0,), (0,), (2,)), [given(F64, [1.0])], lambda x: np.zeros(0), exact=True),
)


def pad(low: Shape, high: Shape, interior: tuple[int, ...]) -> Build:
    return lambda x, value: array.Pad(x, value, low, high, interior)


def padded(x: Numbers, value: Numbers, low: int, high: int, interior: int) -> list[float]:
    """One axis, element by element."""
    between = [float(value)] * interior
    row = [number for element in x.tolist() for number in [element, *between]]
    return [float(value)] * low + row[: len(row) - interior] + [float(value)] * high


examples(
    "array.pad",
    Example(
        pad((1,), (2,), (2,)),
        [drawn(F64, (3,)), given(F64, 9.0)],
        lambda x, value: np.array(padded(x, value, 1, 2, 2)),
        exact=True,
    ),
    Example(
        pad((0, 1), (1, 0), (0, 0)),
        [given(I32, [[1, 2], [3, 4]]), given(I32, 7)],
        lambda x, value: np.array([[7, 1, 2], [7, 3, 4], [7, 7, 7]]),
        exact=True,
    ),
    Example(
        pad((1,), (B,), (1,)),
        [drawn(F64, (3,), symbolic=(B,)), given(F64, 0.5)],
        lambda x, value: np.array(padded(x, value, 1, 3, 1)),
        exact=True,
        dims={"B": 3},
    ),
    Example(
        pad((1,), (1,), (3,)),
        [given(F64, np.zeros(0)), given(F64, 2.0)],
        lambda x, value: np.array([2.0, 2.0]),
        exact=True,
    ),
)


def concatenate(axis: int) -> Build:
    def build(*sources: Value) -> Op:
        return array.Concatenate(sources, axis)

    return build


examples(
    "array.concatenate",
    Example(
        concatenate(1),
        [drawn(F64, (2, 1)), drawn(F64, (2, 3)), drawn(F64, (2, 2))],
        lambda x, y, z: np.array([[*x[i], *y[i], *z[i]] for i in range(2)]),
        exact=True,
    ),
    Example(
        concatenate(0),
        [drawn(BF16, (3, 2), symbolic=(B, 2)), drawn(BF16, (1, 2))],
        lambda x, y: np.array([*x, *y]),
        exact=True,
        dims={"B": 3},
    ),
    Example(concatenate(0), [given(BOOL, [True])], lambda x: x, exact=True),
)


def dynamic_slice(*sizes: int) -> Build:
    def build(source: Value, *starts: Value) -> Op:
        return array.DynamicSlice(source, starts, sizes)

    return build


examples(
    "array.dynamic_slice",
    Example(
        dynamic_slice(2, 1),
        [drawn(F64, (4, 3)), given(I64, 1), given(I64, 2)],
        lambda x, i, j: loop((2, 1), lambda p, q: x[p + 1, q + 2]),
        exact=True,
    ),
    Example(
        dynamic_slice(3),
        [given(U8, range(3)), given(I64, 0)],
        lambda x, i: x,
        exact=True,
    ),
)


def dynamic_update(target: Value, update: Value, *starts: Value) -> Op:
    return array.DynamicUpdateSlice(target, update, starts)


examples(
    "array.dynamic_update_slice",
    Example(
        dynamic_update,
        [drawn(F64, (3, 3)), drawn(F64, (2, 1), seed=1), given(I64, 1), given(I64, 2)],
        lambda x, u, i, j: loop(
            (3, 3), lambda p, q: u[p - 1, q - 2] if p >= 1 and q >= 2 else x[p, q]
        ),
        exact=True,
    ),
    Example(
        dynamic_update,
        [given(BOOL, [False, False]), given(BOOL, [True]), given(I64, 1)],
        lambda x, u, i: np.array([False, True]),
        exact=True,
    ),
)
