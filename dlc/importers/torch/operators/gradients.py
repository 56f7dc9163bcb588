"""Derivatives that PyTorch has as operators of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc.dialects import array, flow
from dlc.dialects.array import Padding, tensor_type
from dlc.dialects.array.shape import elements, reshape
from dlc.frontend.elaboration.trace import capture
from dlc.importers.torch.facts import Graph, Ref
from dlc.importers.torch.node_context import Importer, NodeContext, Operand, Regions
from dlc.importers.torch.operators.slices import IMPORTERS as SLICES
from dlc.importers.torch.operators.windows import IMPORTERS as WINDOWS
from dlc.importers.torch.operators.windows import LAYOUTS, batched
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.types import Type


def _gradient(op: Op, emit: Builder, dy: Value) -> tuple[Value | None, ...]:
    """The derivatives by the operands of an operation, which is not computed itself."""
    op.location = emit.location
    found = op.gradient(emit, dy)
    op.erase()
    return found


def _convolution_backward(context: NodeContext) -> Operand:
    """By the source, the kernel and the bias, as far as they are asked for."""
    emit = context.emit
    dy, x, kernel = (context.value(name) for name in ("grad_output", "input", "weight"))
    count = tensor_type(kernel).rank - 2
    dy, x = batched(emit, dy, count), batched(emit, x, count)
    wanted = [part is not None for part in context.node.types]
    dx = dw = None
    if wanted[0] or wanted[1]:
        dx, dw = (_transposed if context.flag("transposed") else _plain)(context, dy, x, kernel)
    axes = tuple([axis for axis in range(count + 2) if axis != 1])
    return (
        dx if wanted[0] else None,
        dw if wanted[1] else None,
        emit(array.ReduceSum(dy, axes)) if wanted[2] else None,
    )


def _steps(context: NodeContext, count: int) -> tuple[tuple[int, ...], Padding, tuple[int, ...]]:
    strides, dilations = context.spatial("stride", count, 1), context.spatial("dilation", count, 1)
    padding: Padding = tuple([(pad, pad) for pad in context.spatial("padding", count, 0)])
    return strides, padding, dilations


def _plain(context: NodeContext, dy: Value, x: Value, kernel: Value) -> tuple[Value | None, ...]:
    rank = tensor_type(x).rank
    strides, padding, dilations = _steps(context, rank - 2)
    ones, groups = (1,) * (rank - 2), context.integer("groups", 1)
    convolution = array.Convolution(
        x, kernel, strides, padding, dilations, ones, groups, LAYOUTS[rank]
    )
    return _gradient(convolution, context.emit, dy)


def _transposed(
    context: NodeContext, dy: Value, x: Value, kernel: Value
) -> tuple[Value | None, ...]:
    """A transposed convolution is the derivative of the plain one, so its derivative is that one again."""
    emit, rank = context.emit, tensor_type(x).rank
    strides, padding, dilations = _steps(context, rank - 2)
    ones, groups = (1,) * (rank - 2), context.integer("groups", 1)
    plain = array.Convolution(dy, kernel, strides, padding, dilations, ones, groups, LAYOUTS[rank])
    plain.location = emit.location
    _, dw = plain.gradient(emit, x)
    return emit(plain), dw


def _max_pool_backward(spatial: int) -> Importer:
    """The cotangent of each window goes to the place of its maximum."""

    def apply(context: NodeContext) -> Operand:
        emit, type = context.emit, context.type
        dy, index = context.value("grad_output"), context.value("indices")
        shape = tensor_type(dy).shape
        front = shape[: len(shape) - spatial]
        inner = elements(type.shape[len(front) :])
        pictures, windows = elements(front), elements(shape[len(front) :])
        flat = array.fill(emit, 0, type.with_shape((pictures, inner)))
        rows = reshape(emit, index, (pictures, windows))
        added = array.put_along(
            emit, flat, reshape(emit, dy, (pictures, windows)), rows, 1, "add", unique=False
        )
        return reshape(emit, added, type.shape)

    return apply


SOURCE = "source"
"""What the operand of a function is called while its derivative is imported; no node is called so."""


class _Inside:
    """What is around a function of one tensor: the tensor, and what is around its derivative."""

    def __init__(self, outer: Regions, source: Value) -> None:
        self._outer = outer
        self._source = source
        self.bounds = outer.bounds
        self.counted = outer.counted

    def operand(self, name: str) -> Operand:
        return self._source if name == SOURCE else self._outer.operand(name)

    def block(self, graph: Graph, types: Sequence[Type]) -> tuple[Block, list[Value]]:
        return self._outer.block(graph, types)

    def places(self, emit: Builder, mask: Value, names: Sequence[str]) -> Value:
        return self._outer.places(emit, mask, names)

    def random_key(self, emit: Builder) -> Value:
        return self._outer.random_key(emit)


def _derivative(forward: str) -> Importer:
    """The derivative of an operator by its only tensor, from its own importer.

    Where the tensor is not given, the operator is linear in it, and any will do.
    """
    importer = (SLICES if forward in SLICES else WINDOWS)[forward]

    def apply(context: NodeContext) -> Operand:
        emit, dy = context.emit, context.value("grad_output")
        known = isinstance(context.given("self"), Ref)
        x = context.value("self") if known else array.fill(emit, 0, context.type)
        block = Block([x.type])
        inner = Builder(block, emit.location)
        arguments = {**context.node.arguments, "self": Ref(SOURCE)}
        node = replace(context.node, kind=forward, arguments=arguments, types=(tensor_type(dy),))
        y = importer(NodeContext(node, inner, _Inside(context.regions, block.arguments[0])))
        assert isinstance(y, Value)
        inner.place(flow.Yield((y,)))
        used = capture([block])
        return emit(flow.Vjp((x, *used), (dy,), block, (0,)))

    return apply


IMPORTERS: dict[str, Importer] = {
    "aten._adaptive_avg_pool2d_backward": _derivative("aten._adaptive_avg_pool2d"),
    "aten._adaptive_avg_pool3d_backward": _derivative("aten._adaptive_avg_pool3d"),
    "aten._upsample_nearest_exact1d_backward": _derivative("aten._upsample_nearest_exact1d"),
    "aten._upsample_nearest_exact2d_backward": _derivative("aten._upsample_nearest_exact2d"),
    "aten._upsample_nearest_exact3d_backward": _derivative("aten._upsample_nearest_exact3d"),
    "aten.adaptive_max_pool2d_backward": _max_pool_backward(2),
    "aten.avg_pool2d_backward": _derivative("aten.avg_pool2d"),
    "aten.avg_pool3d_backward": _derivative("aten.avg_pool3d"),
    "aten.convolution_backward": _convolution_backward,
    "aten.max_pool2d_with_indices_backward": _max_pool_backward(2),
    "aten.max_pool3d_with_indices_backward": _max_pool_backward(3),
    "aten.replication_pad1d_backward": _derivative("aten.replication_pad1d"),
    "aten.replication_pad2d_backward": _derivative("aten.replication_pad2d"),
    "aten.replication_pad3d_backward": _derivative("aten.replication_pad3d"),
    "aten.upsample_bicubic2d_backward": _derivative("aten.upsample_bicubic2d"),
    "aten.upsample_bilinear2d_backward": _derivative("aten.upsample_bilinear2d"),
    "aten.upsample_linear1d_backward": _derivative("aten.upsample_linear1d"),
    "aten.upsample_nearest1d_backward": _derivative("aten.upsample_nearest1d"),
    "aten.upsample_nearest2d_backward": _derivative("aten.upsample_nearest2d"),
    "aten.upsample_nearest3d_backward": _derivative("aten.upsample_nearest3d"),
    "aten.upsample_trilinear3d_backward": _derivative("aten.upsample_trilinear3d"),
}
