"""Convolutions with axes in any order, groups of channels or of the batch, and dilations."""

from __future__ import annotations

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import inverse, reshape, transpose
from dlc.dialects.nn.rows import in_dtype
from dlc.importers.stablehlo.facts import ConvNumbers
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.importers.stablehlo.operators.products import computed_dtype
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size

LAYOUTS = {1: ("ncw", "nwc"), 2: ("nchw", "nhwc"), 3: ("ncdhw", "ndhwc")}
"""By the number of spatial axes: with channels second, and with channels last."""


def _convolution(context: NodeContext) -> Made:
    spatial = context.type(0).rank - 2
    count = 2 * spatial
    flat = context.integers("padding", (0,) * count)
    padding = tuple(zip(flat[::2], flat[1::2], strict=True))
    return _convolved(context, padding)


def _dynamic_convolution(context: NodeContext) -> Made:
    flat = context.sizes(2)
    return _convolved(context, tuple(zip(flat[::2], flat[1::2], strict=True)))


def _convolved(context: NodeContext, padding: tuple[tuple[Size, Size], ...]) -> Made:
    emit, numbers = context.emit, context.given("dimension_numbers")
    assert isinstance(numbers, ConvNumbers)
    spatial = len(numbers.source) - 2
    source, kernel = context.value(0), context.value(1)
    dtype = computed_dtype(tensor_type(source).dtype, tensor_type(kernel).dtype, context.dtype)
    source, kernel = in_dtype(emit, source, dtype), in_dtype(emit, kernel, dtype)
    channels_last = numbers.source[1] == len(numbers.source) - 1
    source = transpose(emit, source, numbers.source)
    kernel = _turned(context, transpose(emit, kernel, numbers.kernel))
    ones = (1,) * spatial
    strides = context.integers("window_strides", ones)
    source_dilations = context.integers("lhs_dilation", ones)
    dilations = context.integers("rhs_dilation", ones)
    groups = context.integer("feature_group_count", 1)
    parts = context.integer("batch_group_count", 1)
    if parts > 1:
        source, groups = _batch_as_groups(emit, source, parts), parts
    if spatial == 0:
        source, kernel = (reshape(emit, x, (*tensor_type(x).shape, 1)) for x in (source, kernel))
        strides = dilations = source_dilations = (1,)
        padding = ((0, 0),)
    layouts = LAYOUTS.get(max(spatial, 1))
    if layouts is None:
        raise context.unsupported(f"over {spatial} axes is not imported")
    if channels_last:
        source, kernel = _channels_last(emit, source), _kernel_last(emit, kernel)
    result = emit(
        array.Convolution(
            source,
            kernel,
            strides,
            padding,
            dilations,
            source_dilations,
            groups,
            layouts[channels_last],
        )
    )
    if channels_last:
        rank = tensor_type(result).rank
        result = transpose(emit, result, (0, rank - 1, *range(1, rank - 1)))
    if spatial == 0:
        result = reshape(emit, result, tensor_type(result).shape[:2])
    return in_dtype(emit, transpose(emit, result, inverse(numbers.result)), context.dtype)


def _turned(context: NodeContext, kernel: Value) -> Value:
    """The kernel reversed along the axes that say so."""
    given = context.given("window_reversal")
    flags = given if isinstance(given, tuple) else ()
    axes = tuple([axis + 2 for axis, flag in enumerate(flags) if flag])
    return context.emit(array.Reverse(kernel, axes)) if axes else kernel


def _batch_as_groups(emit: Builder, source: Value, parts: int) -> Value:
    """Pictures [g * n, c, ..] as [n, g * c, ..]: each part of the batch becomes a group of channels."""
    count, channels, *rest = tensor_type(source).shape
    split = reshape(emit, source, (parts, count // parts, channels, *rest))
    order = (1, 0, 2, *range(3, 3 + len(rest)))
    return reshape(emit, transpose(emit, split, order), (count // parts, parts * channels, *rest))


def _channels_last(emit: Builder, source: Value) -> Value:
    rank = tensor_type(source).rank
    return transpose(emit, source, (0, *range(2, rank), 1))


def _kernel_last(emit: Builder, kernel: Value) -> Value:
    """`oihw` as `hwio`."""
    rank = tensor_type(kernel).rank
    return transpose(emit, kernel, (*range(2, rank), 1, 0))


IMPORTERS: dict[str, Importer] = {
    "stablehlo.convolution": _convolution,
    "stablehlo.dynamic_conv": _dynamic_convolution,
}
