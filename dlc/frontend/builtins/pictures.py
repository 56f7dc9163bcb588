"""Products with weights: dense layers, convolutions; pooling and resizing of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.dialects.nn import pooling, resize
from dlc.dialects.nn.linear import Conv, Linear
from dlc.frontend.builtins.registry import add_builtin, builtin
from dlc.frontend.elaboration.tensors import refuse_mixture, tensor_type
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum, Items, Record, describe
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Dim, Size, maximum

GROUP: Final = "layers"
LAYOUTS: Final = {1: "nwc", 2: "nhwc", 3: "ndhwc"}
"""The channels-last layout for a number of spatial axes."""

Pairs = tuple[tuple[Size, Size], ...]


@builtin(
    "linear(x: float, w: float, b: float = none)",
    GROUP,
    "`x @ w + b`: every row of x through a dense layer.",
    "linear([[1, 2]], [[1, 0], [0, 1]], [10, 20])",
    "[[11.0, 22.0]]",
)
def linear(at: Trace, x: Value, w: Value, b: Value | None) -> Datum:
    return at(Linear(x, w, () if b is None else (b,)))


@builtin(
    "ints(value: any, n: int)",
    GROUP,
    "A list of n whole numbers: the one given n times, or those given.",
    "ints(3, 2)",
    "[3, 3]",
)
def ints(at: Trace, value: Datum, n: int) -> Datum:
    return Items(_numbers(at, value, n, "the value"))


def _numbers(at: Trace, value: Datum, count: int, what: str) -> tuple[int, ...]:
    """One whole number for each axis."""
    match value:
        case bool():
            pass
        case int():
            return (value,) * count
        case Items(items) | Record(items) if len(items) == count:
            numbers = [item for item in items if isinstance(item, int)]
            if len(numbers) == count:
                return tuple(numbers)
        case _:
            pass
    raise at.fail(
        "D0320", f"{what} is a whole number or a list of {count}, found {describe(value)}"
    )


def _layout(at: Trace, x: Value, dims: str | None) -> tuple[str, array.Layout]:
    """The layout of pictures: the one said, else the one with the channels last."""
    spatial = tensor_type(x).rank - 2
    name = LAYOUTS.get(spatial, "") if dims is None else dims
    layout = array.LAYOUTS.get(name)
    if layout is None or layout.rank != tensor_type(x).rank:
        names = ", ".join(array.LAYOUTS)
        raise at.fail(
            "D0301",
            f"{show(x)} is not a picture"
            + (f" of the layout {dims}" if dims else ": it has [batch, height, width, channel]"),
            help=f"the layouts are {names}" if dims else None,
        )
    return name, layout


def _padding(
    at: Trace,
    padding: Datum,
    sizes: Sequence[Size],
    reach: Sequence[int],
    strides: Sequence[int],
) -> Pairs:
    """(before, after) for each spatial axis; "same" makes the result as large as x divided by stride."""
    if padding == "same":
        return tuple([_same(n, r, s) for n, r, s in zip(sizes, reach, strides, strict=True)])
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    return _pairs(at, padding, len(sizes), '"same", ')


def _pairs(at: Trace, padding: Datum, count: int, others: str = "") -> Pairs:
    """(before, after) for each of `count` axes."""
    if isinstance(padding, int) and not isinstance(padding, bool):
        return ((padding, padding),) * count
    if isinstance(padding, Items | Record) and len(padding.items) == count:
        pairs = [_pair(item) for item in padding.items]
        complete = [pair for pair in pairs if pair is not None]
        if len(complete) == count:
            return tuple(complete)
    raise at.fail(
        "D0320",
        f"padding is a whole number, {others}or a number or (before, after) for each of {count} axes, "
        f"found {describe(padding)}",
    )


def _pair(item: Datum) -> tuple[Size, Size] | None:
    if isinstance(item, int) and not isinstance(item, bool):
        return item, item
    if isinstance(item, Items | Record) and len(item.items) == 2:
        low, high = item.items
        if isinstance(low, int | Dim) and isinstance(high, int | Dim):
            return low, high
    return None


def _same(size: Size, reach: int, stride: int) -> tuple[Size, Size]:
    places = (size + (stride - 1)) // stride
    total = maximum((places - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def _kernel(at: Trace, x: Value, w: Value, dims: str | None) -> tuple[str, array.Layout, list[int]]:
    """The layout and the spatial sizes of the kernel."""
    name, layout = _layout(at, x, dims)
    if tensor_type(x).dtype is not tensor_type(w).dtype:
        raise refuse_mixture(at, [x, w])
    shape = tensor_type(w).shape
    if len(shape) != layout.rank:
        raise at.fail(
            "D0301", f"{show(w)} is not a kernel for {show(x)}: it has {layout.rank} axes"
        )
    sizes = [shape[axis] for axis in layout.kernel_spatial]
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) < len(sizes):
        raise at.fail("D0327", f"the kernel {show(w)} has a symbolic size")
    return name, layout, fixed


@builtin(
    "conv(x: alike, w: alike, b: alike = none, stride: any = 1, padding: any = 0, dilation: any = 1, "
    "groups: int = 1, dims: text = none)",
    GROUP,
    "Convolution of pictures [batch, .., channel] in 1, 2 or 3 dimensions with a kernel "
    '[.., in, out], and a bias for each output channel; `dims="nchw"` means pictures '
    "[batch, channel, ..] and a kernel [out, in, ..].",
    "conv([[[1.0], [2.0], [3.0]]], [[[1.0]], [[1.0]]])",
    "[[[3.0], [5.0]]]",
)
def conv(
    at: Trace,
    x: Value,
    w: Value,
    b: Value | None,
    stride: Datum,
    padding: Datum,
    dilation: Datum,
    groups: int,
    dims: str | None,
) -> Datum:
    name, layout, kernel = _kernel(at, x, w, dims)
    count = len(kernel)
    strides = _numbers(at, stride, count, "stride")
    dilations = _numbers(at, dilation, count, "dilation")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = [tensor_type(x).shape[axis] for axis in layout.spatial]
    pads = _padding(at, padding, sizes, reach, strides)
    bias = () if b is None else (b,)
    return at(Conv(x, w, bias, strides, pads, dilations, (1,) * count, groups, name))


@builtin(
    "conv_transpose(x: float, w: float, b: float = none, stride: any = 1, padding: any = 0, "
    "output_padding: any = 0, dilation: any = 1, groups: int = 1, dims: text = none)",
    GROUP,
    "The transposed convolution: every element of x adds the kernel, times itself, to the result. "
    "`padding` elements are removed at both ends of each axis, or (before, after); "
    "`output_padding` adds some at the end.",
    "conv_transpose([[[1], [2]]], [[[1]], [[10]]])",
    "[[[1.0], [12.0], [20.0]]]",
)
def conv_transpose(
    at: Trace,
    x: Value,
    w: Value,
    b: Value | None,
    stride: Datum,
    padding: Datum,
    output_padding: Datum,
    dilation: Datum,
    groups: int,
    dims: str | None,
) -> Datum:
    name, layout, kernel = _kernel(at, x, w, dims)
    count = len(kernel)
    strides = _numbers(at, stride, count, "stride")
    dilations = _numbers(at, dilation, count, "dilation")
    turned = at(array.Reverse(w, layout.kernel_spatial))
    added = _numbers(at, output_padding, count, "output_padding")
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    cut = _pairs(at, padding, count)
    pads: Pairs = tuple(
        [
            (far - low, far - high + more)
            for far, (low, high), more in zip(reach, cut, added, strict=True)
        ]
    )
    bias = () if b is None else (b,)
    return at(Conv(x, turned, bias, (1,) * count, pads, dilations, strides, groups, name))


# Pooling ------------------------------------------------------------------------------------------


class Pool(Protocol):
    """A function of `dlc.dialects.nn.pooling`."""

    def __call__(
        self,
        emit: Builder,
        x: Value,
        window: Sequence[int],
        *,
        strides: Sequence[int],
        padding: Pairs,
        dilations: Sequence[int],
        dims: str,
    ) -> Value: ...


def _pool(
    at: Trace,
    make: Pool,
    x: Value,
    size: Datum,
    stride: Datum,
    padding: Datum,
    dilation: Datum,
    dims: str | None,
) -> Datum:
    name, layout = _layout(at, x, dims)
    count = len(layout.spatial)
    window = _numbers(at, size, count, "size")
    strides = window if stride is None else _numbers(at, stride, count, "stride")
    dilations = _numbers(at, dilation, count, "dilation")
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    extents = [tensor_type(x).shape[axis] for axis in layout.spatial]
    pads = _padding(at, padding, extents, reach, strides)
    return make(at, x, window, strides=strides, padding=pads, dilations=dilations, dims=name)


def _max_pool(
    at: Trace,
    x: Value,
    size: Datum,
    stride: Datum,
    padding: Datum,
    dims: str | None,
    dilation: Datum,
) -> Datum:
    return _pool(at, pooling.max_pool, x, size, stride, padding, dilation, dims)


def _argmax_pool(
    at: Trace,
    x: Value,
    size: Datum,
    stride: Datum,
    padding: Datum,
    dims: str | None,
    dilation: Datum,
) -> Datum:
    return _pool(at, pooling.argmax_pool, x, size, stride, padding, dilation, dims)


def _avg_pool(
    at: Trace,
    x: Value,
    size: Datum,
    stride: Datum,
    padding: Datum,
    count_padding: bool,
    dims: str | None,
    dilation: Datum,
) -> Datum:
    mean = partial(pooling.avg_pool, count_padding=count_padding)
    return _pool(at, mean, x, size, stride, padding, dilation, dims)


_POOLED: Final = (
    (1, "[[[1], [4], [2], [3]]]", "[[[4], [3]]]", "[[[1], [3]]]", "[[[2.5], [2.5]]]"),
    (2, "[[[[1], [4]], [[2], [3]]]]", "[[[[4]]]]", "[[[[1]]]]", "[[[[2.5]]]]"),
    (
        3,
        "[[[[[1], [4]], [[2], [3]]], [[[0], [0]], [[0], [0]]]]]",
        "[[[[[4]]]]]",
        "[[[[[1]]]]]",
        "[[[[[1.25]]]]]",
    ),
)
"""For each number of spatial axes a picture, its largest elements, their indices and its means."""

for _n, _row, _largest, _index, _mean in _POOLED:
    add_builtin(
        f"max_pool{_n}d(x: tensor, size: any, stride: any = none, padding: any = 0, "
        "dims: text = none, dilation: any = 1)",
        GROUP,
        "The largest element of each window of `size`, `stride` apart (by default the size).",
        f"max_pool{_n}d({_row}, 2)",
        _largest,
        _max_pool,
    )
    add_builtin(
        f"argmax_pool{_n}d(x: tensor, size: any, stride: any = none, padding: any = 0, "
        "dims: text = none, dilation: any = 1)",
        GROUP,
        "The index in x, counted row by row, of the element that `max_pool` takes of each window.",
        f"i32(argmax_pool{_n}d({_row}, 2))",
        _index,
        _argmax_pool,
    )
    add_builtin(
        f"avg_pool{_n}d(x: float, size: any, stride: any = none, padding: any = 0, "
        "count_padding: bool = false, dims: text = none, dilation: any = 1)",
        GROUP,
        "The mean of each window of `size`, `stride` apart (by default the size); padding counts with "
        "`count_padding`.",
        f"avg_pool{_n}d({_row}, 2)",
        _mean,
        _avg_pool,
    )


@builtin(
    "global_avg_pool(x: float, dims: text = none)",
    GROUP,
    "The mean of each channel of each picture: [batch, channel].",
    "global_avg_pool([[[1], [3]]])",
    "[[2.0]]",
)
def global_avg_pool(at: Trace, x: Value, dims: str | None) -> Datum:
    name, _ = _layout(at, x, dims)
    return pooling.global_avg_pool(at, x, dims=name)


@builtin(
    "global_max_pool(x: tensor, dims: text = none)",
    GROUP,
    "The largest element of each channel of each picture: [batch, channel].",
    "global_max_pool([[[1], [3]]])",
    "[[3]]",
)
def global_max_pool(at: Trace, x: Value, dims: str | None) -> Datum:
    name, _ = _layout(at, x, dims)
    return pooling.global_max_pool(at, x, dims=name)


@builtin(
    'resize(x: float, sizes: shape, method: text = "nearest", coordinates: text = "half_pixel", '
    "dims: text = none)",
    GROUP,
    'Pictures in another size, by the "nearest" element or "linear" between neighbours.',
    "resize([[[1], [2]]], [4])",
    "[[[1.0], [1.0], [2.0], [2.0]]]",
)
def resized(
    at: Trace, x: Value, sizes: tuple[Size, ...], method: str, coordinates: str, dims: str | None
) -> Datum:
    _, layout = _layout(at, x, dims)
    if len(sizes) != len(layout.spatial):
        raise at.fail("D0320", f"{show(x)} has {len(layout.spatial)} axes to resize")
    wanted = dict(zip(layout.spatial, sizes, strict=True))
    if method == "nearest":
        return resize.resize_nearest(at, x, wanted, coordinates=coordinates)
    if method == "linear":
        return resize.resize_linear(at, x, wanted, coordinates=coordinates)
    raise at.fail("D0320", f'method is "nearest" or "linear", found "{method}"')
