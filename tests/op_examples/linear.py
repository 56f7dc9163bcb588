"""Examples of products, convolutions and windows, against the formula in Python's loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dlc.dialects import array
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.types import BF16, F16, F32, F64, I8, I32, U8
from tests.op_examples.example import Example, Input, Numbers, drawn, examples, given, loop, wrap

B = symbol("B")


def matmul(x: Numbers, y: Numbers) -> Numbers:
    *batch, m, inner = x.shape

    def element(*at: int) -> float:
        row = [x[(*at[:-1], k)].item() for k in range(inner)]
        column = [y[(*at[:-2], k, at[-1])].item() for k in range(inner)]
        return math.fsum(a * b for a, b in zip(row, column, strict=True))

    return loop((*batch, m, y.shape[-1]), element)


for dtype in (F64, F32, F16, BF16):
    examples(
        "array.matmul",
        Example(array.MatMul, [drawn(dtype, (2, 3)), drawn(dtype, (3, 4), seed=1)], matmul),
        Example(array.MatMul, [drawn(dtype, (2, 1, 3)), drawn(dtype, (2, 3, 2), seed=1)], matmul),
    )
examples(
    "array.matmul",
    Example(
        array.MatMul,
        [drawn(U8, (2, 3), 0, 255), drawn(U8, (3, 2), 0, 255, seed=1)],
        lambda x, y: loop(
            (2, 2), lambda i, j: sum(int(x[i, k]) * int(y[k, j]) for k in range(3)) % 256
        ),
        exact=True,
    ),
    Example(
        array.MatMul,
        [drawn(F64, (3, 2), symbolic=(B, 2)), drawn(F64, (2, 3), symbolic=(2, B))],
        matmul,
        dims={"B": 3},
    ),
    Example(
        array.MatMul,
        [given(F32, np.zeros((2, 0))), given(F32, np.zeros((0, 3)))],
        lambda x, y: np.zeros((2, 3)),
        exact=True,
    ),
)


def dot(*axes: tuple[int, ...]) -> Callable[[Value, Value], Op]:
    return lambda x, y: array.DotGeneral(x, y, *axes)


examples(
    "array.dot_general",
    # b i d . j b d -> b i j
    Example(
        dot((0,), (1,), (2,), (2,)),
        [drawn(F64, (2, 3, 4)), drawn(F64, (5, 2, 4), seed=1)],
        lambda x, y: loop(
            (2, 3, 5), lambda b, i, j: sum(x[b, i, k] * y[j, b, k] for k in range(4))
        ),
    ),
    # k l i . l j k -> i j
    Example(
        dot((), (), (0, 1), (2, 0)),
        [drawn(F64, (2, 3, 2)), drawn(F64, (3, 4, 2), seed=1)],
        lambda x, y: loop(
            (2, 4),
            lambda i, j: sum(
                x[k, m, i] * y[m, j, k] for k, m in itertools.product(range(2), range(3))
            ),
        ),
    ),
    Example(
        dot((), (), (), ()),
        [drawn(BF16, (2,)), drawn(BF16, (3,))],
        lambda x, y: loop((2, 3), lambda i, j: x[i] * y[j]),
    ),
    Example(
        dot((0,), (0,), (1,), (1,)),
        [drawn(F64, (3, 4), symbolic=(B, 4)), drawn(F64, (3, 4), seed=1, symbolic=(B, 4))],
        lambda x, y: loop((3,), lambda b: sum(x[b, k] * y[b, k] for k in range(4))),
        dims={"B": 3},
    ),
)


def convolution(
    x: Numbers,
    w: Numbers,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilations: Sequence[int],
    apart: Sequence[int],
    groups: int,
) -> Numbers:
    """The formula, with the channels last; `apart` are the source dilations."""
    sizes, kernel = x.shape[1:-1], w.shape[:-2]
    taken, out = w.shape[-2:]
    spatial = [
        ((n - 1) * t + 1 + low + high - (k - 1) * d - 1) // s + 1
        for n, t, (low, high), k, d, s in zip(
            sizes, apart, padding, kernel, dilations, strides, strict=True
        )
    ]

    def element(n: int, *rest: int) -> float:
        *place, o = rest
        group = o // (out // groups)
        terms: list[float] = []
        for offset in np.ndindex(kernel):
            at = [
                p * s + k * d - low
                for p, s, k, d, (low, _) in zip(
                    place, strides, offset, dilations, padding, strict=True
                )
            ]
            if any(q % t for q, t in zip(at, apart, strict=True)):
                continue
            inside = [q // t for q, t in zip(at, apart, strict=True)]
            if all(0 <= q < size for q, size in zip(inside, sizes, strict=True)):
                terms += [
                    float(x[(n, *inside, group * taken + c)]) * float(w[(*offset, c, o)])
                    for c in range(taken)
                ]
        return math.fsum(terms)

    return loop((x.shape[0], *spatial, out), element)


def convolve(
    x: Input,
    w: Input,
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    dilations: tuple[int, ...],
    apart: tuple[int, ...],
    groups: int = 1,
    exact: bool = False,
) -> list[Example]:
    """An example with the channels last, and the same with the channels first."""
    rank = x.array.ndim
    last = {3: "nwc", 4: "nhwc", 5: "ndhwc"}[rank]
    first = {3: "ncw", 4: "nchw", 5: "ncdhw"}[rank]

    def build(dims: str) -> Callable[[Value, Value], Op]:
        return lambda source, kernel: array.Convolution(
            source, kernel, strides, padding, dilations, apart, groups, dims
        )

    def plain(source: Numbers, kernel: Numbers) -> Numbers:
        return convolution(source, kernel, strides, padding, dilations, apart, groups)

    def turned(source: Numbers, kernel: Numbers) -> Numbers:
        kernel_last = kernel.transpose([*range(2, rank), 1, 0])
        return np.moveaxis(plain(np.moveaxis(source, 1, -1), kernel_last), -1, 1)

    x_first = Input(x.dtype, np.moveaxis(x.array, -1, 1))
    w_first = Input(w.dtype, w.array.transpose([rank - 1, rank - 2, *range(rank - 2)]))
    return [
        Example(build(last), [x, w], plain, exact=exact),
        Example(build(first), [x_first, w_first], turned, exact=exact),
    ]


examples(
    "array.convolution",
    *convolve(drawn(F64, (2, 5, 2)), drawn(F64, (3, 2, 3), seed=1), (1,), ((1, 1),), (1,), (1,)),
    *convolve(
        drawn(F64, (1, 4, 5, 2)),
        drawn(F64, (2, 3, 1, 4), seed=1),
        (2, 1),
        ((1, 0), (2, 1)),
        (1, 2),
        (1, 1),
        2,
    ),
    *convolve(  # transposed
        drawn(F64, (1, 3, 2, 1)),
        drawn(F64, (3, 3, 1, 2), seed=1),
        (1, 1),
        ((1, 2), (2, 2)),
        (1, 1),
        (2, 3),
    ),
    *convolve(  # more padding than the kernel is long: negative in the derivative
        drawn(F64, (1, 3, 1)), drawn(F64, (1, 1, 1), seed=1), (2,), ((2, 1),), (1,), (1,)
    ),
    *convolve(drawn(F64, (1, 6, 1)), drawn(F64, (2, 1, 1), seed=1), (1,), ((-1, -2),), (1,), (1,)),
    *convolve(
        drawn(F64, (1, 2, 3, 2, 1)),
        drawn(F64, (2, 2, 1, 1, 2), seed=1),
        (1, 1, 1),
        ((0, 0), (1, 0), (0, 0)),
        (1, 1, 1),
        (1, 1, 1),
    ),
    *convolve(
        drawn(F32, (1, 3, 3, 3)),
        drawn(F32, (3, 3, 1, 3), seed=1),
        (1, 1),
        ((1, 1), (1, 1)),
        (1, 1),
        (1, 1),
        3,
    ),
    *convolve(drawn(BF16, (1, 4, 2)), drawn(BF16, (2, 2, 1), seed=1), (1,), ((0, 0),), (1,), (1,)),
    *convolve(
        drawn(I32, (1, 4, 2), -9, 9),
        drawn(I32, (2, 2, 1), -9, 9, seed=1),
        (1,),
        ((0, 0),),
        (1,),
        (1,),
        exact=True,
    ),
)


def depthwise_gradient(
    x: Numbers,
    dy: Numbers,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilations: Sequence[int],
) -> Numbers:
    """The formula, with the channels last."""

    def element(*at: int) -> float:
        *tap, _, c = at
        terms: list[float] = []
        for n, *place in np.ndindex(dy.shape[:-1]):
            inside = [
                p * s + k * d - low
                for p, s, k, d, (low, _) in zip(
                    place, strides, tap, dilations, padding, strict=True
                )
            ]
            if all(0 <= q < size for q, size in zip(inside, x.shape[1:-1], strict=True)):
                terms.append(float(x[(n, *inside, c)]) * float(dy[(n, *place, c)]))
        return math.fsum(terms)

    return loop((*window, 1, x.shape[-1]), element)


def depthwise(
    x: Input,
    dy: Input,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    dilations: tuple[int, ...],
    *,
    exact: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> Example:
    dims = {3: "nwc", 4: "nhwc", 5: "ndhwc"}[x.array.ndim]
    steps = window, strides, padding, dilations
    return Example(
        lambda source, cotangent: array.DepthwiseGradient(source, cotangent, *steps, dims),
        [x, dy],
        lambda source, cotangent: depthwise_gradient(source, cotangent, *steps),
        exact=exact,
        dims=sizes or {},
    )


ONES = (1, 1)

examples(
    "array.depthwise_gradient",
    depthwise(
        drawn(F64, (2, 5, 4, 3)),
        drawn(F64, (2, 5, 4, 3), seed=1),
        (3, 3),
        ONES,
        ((1, 1), (1, 1)),
        ONES,
    ),
    depthwise(
        drawn(F64, (1, 6, 7, 2)),
        drawn(F64, (1, 2, 5, 2), seed=1),
        (2, 3),
        (2, 1),
        ((0, 0), (2, 0)),
        (3, 2),
    ),
    depthwise(  # the end of the picture is left out
        drawn(F32, (2, 6, 4)), drawn(F32, (2, 2, 4), seed=1), (2,), (2,), ((-1, -1),), (1,)
    ),
    depthwise(
        drawn(F64, (1, 3, 2, 4, 2)),
        drawn(F64, (1, 3, 1, 4, 2), seed=1),
        (1, 2, 3),
        (1, 1, 1),
        ((0, 0), (0, 0), (1, 1)),
        (1, 1, 1),
    ),
    depthwise(
        drawn(F64, (3, 4, 4, 9), symbolic=(B, 4, 4, 9)),
        drawn(F64, (3, 2, 2, 9), symbolic=(B, 2, 2, 9), seed=1),
        (3, 3),
        (2, 2),
        ((1, 1), (1, 1)),
        ONES,
        sizes={"B": 3},
    ),
    depthwise(drawn(BF16, (1, 4, 2)), drawn(BF16, (1, 4, 2), seed=1), (3,), (1,), ((1, 1),), (1,)),
    depthwise(
        drawn(I32, (1, 4, 2), -9, 9),
        drawn(I32, (1, 3, 2), -9, 9, seed=1),
        (2,),
        (1,),
        ((0, 0),),
        (1,),
        exact=True,
    ),
)


def same(source: Value, kernel: Value) -> Op:
    return array.Convolution(source, kernel, (2,), ((1, 1),), (1,), (2,), 1, "nwc")


examples(
    "array.convolution",
    Example(
        same,
        [drawn(F64, (2, 4, 1), symbolic=(2, B, 1)), drawn(F64, (3, 1, 1), seed=1)],
        lambda x, w: convolution(x, w, (2,), [(1, 1)], (1,), (2,), 1),
        dims={"B": 4},
    ),
)

Window = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[Size, Size], ...], tuple[int, ...]]
PLAIN: Window = ((2,), (2,), ((0, 0),), (1,))
OVERLAPPING: Window = ((3, 2), (2, 1), ((1, 1), (0, 1)), (1, 1))
DILATED: Window = ((2, 1), (1, 1), ((1, 0), (0, 0)), (2, 1))


def covered(x: Numbers, window: Window) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """For each place of the window, the elements that it covers, in its order."""
    sizes, strides, padding, dilations = window
    result: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    counts = [
        (n + int(str(low)) + int(str(high)) - (k - 1) * d - 1) // s + 1
        for n, (low, high), k, d, s in zip(x.shape, padding, sizes, dilations, strides, strict=True)
    ]
    for place in np.ndindex(*counts):
        result[place] = []
        for offset in np.ndindex(sizes):
            at = tuple(
                p * s + k * d - int(str(low))
                for p, s, k, d, (low, _) in zip(
                    place, strides, offset, dilations, padding, strict=True
                )
            )
            if all(0 <= q < n for q, n in zip(at, x.shape, strict=True)):
                result[place].append(at)
    return result


def best(x: Numbers, places: list[tuple[int, ...]], function: str) -> tuple[int, ...] | None:
    """The place of the first NaN, or of the first extreme."""
    if not places:
        return None
    numbers = [float(x[at]) for at in places]
    for at, number in zip(places, numbers, strict=True):
        if math.isnan(number):
            return at
    return places[numbers.index(max(numbers) if function == "max" else min(numbers))]


def windowed(function: str, window: Window) -> Callable[[Numbers], Numbers]:
    def reduce(x: Numbers) -> Numbers:
        cells = covered(x, window)

        def element(*place: int) -> float:
            if function == "sum":
                return math.fsum(float(x[at]) for at in cells[place])
            at = best(x, cells[place], function)
            return -math.inf if at is None else x[at]

        return loop(tuple(np.add(max(cells), 1)), element)

    return reduce


def index_of(function: str, window: Window) -> Callable[[Numbers], Numbers]:
    def find(x: Numbers) -> Numbers:
        cells = covered(x, window)

        def element(*place: int) -> float:
            at = best(x, cells[place], function)
            return -1 if at is None else int(np.ravel_multi_index(at, x.shape))

        return loop(tuple(np.add(max(cells), 1)), element)

    return find


def scattered(function: str, window: Window) -> Callable[[Numbers, Numbers], Numbers]:
    def put(x: Numbers, updates: Numbers) -> Numbers:
        result = np.zeros(x.shape)
        for place, places in covered(x, window).items():
            at = best(x, places, function)
            if at is not None:
                result[at] += updates[place]
        return result

    return put


def reduce_window(function: str, window: Window) -> Callable[[Value], Op]:
    return lambda x: array.ReduceWindow(x, function, *window)


def window_index(function: str, window: Window) -> Callable[[Value], Op]:
    return lambda x: array.WindowIndex(x, function, *window)


def select_and_scatter(function: str, window: Window) -> Callable[[Value, Value], Op]:
    sizes, strides, padding, dilations = window
    return lambda x, updates: array.SelectAndScatter(
        x,
        updates=updates,
        function=function,
        window=sizes,
        strides=strides,
        padding=padding,
        dilations=dilations,
    )


for function, window in itertools.product(("max", "min", "sum"), (OVERLAPPING, DILATED)):
    for dtype in (F64, F32, BF16, F16):
        examples(
            "array.reduce_window",
            Example(
                reduce_window(function, window),
                [drawn(dtype, (5, 3))],
                windowed(function, window),
                exact=function != "sum",
            ),
        )
    if function != "sum":
        examples(
            "array.window_index",
            Example(
                window_index(function, window),
                [drawn(F64, (5, 3))],
                index_of(function, window),
                exact=True,
            ),
            Example(
                window_index(function, window),
                [drawn(I8, (5, 3), 0, 2)],
                index_of(function, window),
                exact=True,
            ),
        )
        places = windowed(function, window)(np.zeros((5, 3))).shape
        examples(
            "array.select_and_scatter",
            Example(
                select_and_scatter(function, window),
                [drawn(F64, (5, 3)), drawn(F64, places, seed=1)],
                scattered(function, window),
            ),
        )
NAN_AND_TIES = [given(F32, [1.0, 1.0, math.nan, -math.inf, -math.inf, -math.inf])]
examples(
    "array.window_index",
    Example(window_index("max", PLAIN), NAN_AND_TIES, lambda x: np.array([0, 2, 4]), exact=True),
    Example(  # the last window lies in the padding alone
        window_index("max", ((2,), (2,), ((1, 1),), (2,))),
        [given(F32, [-math.inf])],
        lambda x: np.array([-1]),
        exact=True,
    ),
)
examples(
    "array.reduce_window",
    Example(
        reduce_window("max", PLAIN),
        NAN_AND_TIES,
        lambda x: np.array([1.0, math.nan, -math.inf]),
        exact=True,
    ),
    Example(
        reduce_window("sum", PLAIN),
        [given(I8, [100, 100, 1, 2])],
        lambda x: np.array([wrap(200, I8), 3]),
        exact=True,
    ),
    Example(
        reduce_window("sum", ((3,), (2,), ((1, 1),), (1,))),
        [drawn(F64, (5,), symbolic=(B,))],
        windowed("sum", ((3,), (2,), ((1, 1),), (1,))),
        dims={"B": 5},
    ),
    Example(
        reduce_window("max", ((3,), (2,), ((1, 1),), (1,))),
        [drawn(F64, (5,), symbolic=(B,))],
        windowed("max", ((3,), (2,), ((1, 1),), (1,))),
        exact=True,
        dims={"B": 5},
    ),
)
