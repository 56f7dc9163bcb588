"""Readings of functions of the language in the operations that they make, and spellings of `nn`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from dlc.dialects import array, flow, nn
from dlc.dialects.array import LAYOUTS, fill, tensor_type
from dlc.dialects.array.arithmetic import plus, times
from dlc.dialects.nn.rows import mean
from dlc.export.model_text.graph import Graph, short, unstretched
from dlc.export.model_text.pattern import HOLES, Build, matched
from dlc.export.model_text.spelling import Spelling, reads, spells
from dlc.export.model_text.terms import Call, Infix, Item, Term
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Size

Named = tuple[tuple[str, Item], ...]

# Functions of one tensor ------------------------------------------------------------------------


def _gelu_tanh(emit: Builder, x: Value) -> Value:
    return nn.gelu(emit, x, tanh=True)


def _gelu_divided(emit: Builder, x: Value) -> Value:
    """As the exporter that traces writes it."""
    root = fill(emit, math.sqrt(2), tensor_type(x))
    share = emit(array.Erf(emit(array.Divide(x, root))))
    return times(emit, emit(array.Multiply(x, plus(emit, share, 1))), 0.5)


def _elu_any(emit: Builder, x: Value) -> Value:
    return nn.elu(emit, x, HOLES[0])


def _leaky_relu_any(emit: Builder, x: Value) -> Value:
    return nn.leaky_relu(emit, x, HOLES[0])


def _clip_any(emit: Builder, x: Value) -> Value:
    return nn.clip(emit, x, HOLES[0], HOLES[1])


FUNCTIONS: tuple[tuple[type[Op], str, Build, Named], ...] = (
    (array.Maximum, "relu", nn.relu, ()),
    (array.Multiply, "gelu", nn.gelu, ()),
    (array.Multiply, "gelu", _gelu_divided, ()),
    (array.Multiply, "gelu", _gelu_tanh, (("tanh", True),)),
    (array.Multiply, "selu", nn.selu, ()),
    (array.Multiply, "silu", nn.silu, ()),
    (array.Multiply, "hardswish", nn.hardswish, ()),
    (array.Multiply, "mish", nn.mish, ()),
    (flow.Custom, "softplus", nn.softplus, ()),
    (array.Divide, "softsign", nn.softsign, ()),
    (array.Minimum, "hardsigmoid", nn.hardsigmoid, ()),
)
"""The last operation of each function, and what of its arguments is not as by default."""

ADJUSTABLE: tuple[tuple[type[Op], str, Build], ...] = (
    (array.Select, "elu", _elu_any),
    (array.Select, "leaky_relu", _leaky_relu_any),
    (array.Minimum, "clip", _clip_any),
)
"""Functions of a tensor and one or two numbers."""


def _enter(op: type[Op], name: str, build: Build, named: Named) -> None:
    @reads(op)
    def _(graph: Graph, op: Op) -> Term | None:
        type = tensor_type(op.result)
        matches = matched(graph, op.result, build, [type])
        if matches is None:
            return None
        (x,), numbers = matches
        return Call(name, (x, *[short(number, type.dtype) for number in numbers]), named)


for _op, _name, _build, _named in FUNCTIONS:
    _enter(_op, _name, _build, _named)
for _op, _name, _build in ADJUSTABLE:
    _enter(_op, _name, _build, ())


@reads(array.Select)
def _prelu(graph: Graph, op: array.Select) -> Term | None:
    type = tensor_type(op.result)
    matches = matched(graph, op.result, nn.prelu, [type, type])
    if matches is None:
        return None
    (x, slope), _ = matches
    return Call("prelu", (x, unstretched(slope, type.shape)))


# Rows ---------------------------------------------------------------------------------------------


def _axis(name: str) -> Spelling[nn.Softmax | nn.LogSoftmax | nn.LogSumExp]:
    def spelling(graph: Graph, op: nn.Softmax | nn.LogSoftmax | nn.LogSumExp) -> Term:
        last = op.axis == tensor_type(op.source).rank - 1
        return Call(name, (op.source,), () if last else (("axis", op.axis),))

    return spelling


spells(nn.Softmax)(_axis("softmax"))
spells(nn.LogSoftmax)(_axis("log_softmax"))
spells(nn.LogSumExp)(_axis("logsumexp"))


@spells(nn.LayerNorm)
def _layer_norm(graph: Graph, op: nn.LayerNorm) -> Term:
    return _normalized("layer_norm", op, [("scale", op.scale), ("shift", op.shift)])


@spells(nn.RMSNorm)
def _rms_norm(graph: Graph, op: nn.RMSNorm) -> Term:
    return _normalized("rms_norm", op, [("scale", op.scale)])


def _normalized(
    name: str, op: nn.LayerNorm | nn.RMSNorm, rows: Sequence[tuple[str, Sequence[Value]]]
) -> Term:
    """Over several axes the rows are made one axis first."""
    type = tensor_type(op.source)
    eps: Named = (("eps", short(op.eps, type.dtype)),)
    named = [(key, values[0]) for key, values in rows if values]
    if op.axis == type.rank - 1:
        return Call(name, (op.source,), (*named, *eps))
    flat = Call("flatten", (op.source, op.axis))
    wide = [(key, Call("flatten", (row, 0))) for key, row in named]
    return Call("reshape", (Call(name, (flat,), (*wide, *eps)), type.shape))


@spells(nn.Linear)
def _linear(graph: Graph, op: nn.Linear) -> Term:
    product = Infix("@", op.source, op.weight)
    return Infix("+", product, op.bias[0]) if op.bias else product


@spells(nn.Attention)
def _attention(graph: Graph, op: nn.Attention) -> Term | None:
    if op.logarithms or op.causal not in (None, 0):
        return None
    width = tensor_type(op.query).shape[-1]
    named: list[tuple[str, Item]] = []
    if not isinstance(width, int) or not math.isclose(op.scale, 1 / math.sqrt(width)):
        named.append(("scale", op.scale))
    if op.causal is not None:
        named.append(("causal", True))
    scores = (*tensor_type(op.query).shape[:-1], tensor_type(op.keys).shape[-2])
    masks = [unstretched(mask, scores) for mask in op.mask]
    return Call("attention", (op.query, op.keys, op.values, *masks), tuple(named))


@spells(nn.LSTM)
def _lstm(graph: Graph, op: nn.LSTM) -> Term | None:
    """All its results; the language has the batch first."""
    named: Named = (("reverse", True),) if op.reverse else ()
    return Call("lstm", op.operands, named) if op.time == 1 else None


@reads(array.Divide)
def _mean(graph: Graph, op: array.Divide) -> Term | None:
    """A mean; in the channels of pictures, where all else is averaged, by its own name."""
    summed = op and op.operands[0].op
    if not isinstance(summed, array.ReduceSum):
        return None
    source = tensor_type(summed.source)
    build = partial(mean, axes=summed.axes)
    matches = matched(graph, op.result, build, [source])
    if matches is None:
        return None
    named: Named = () if len(summed.axes) == source.rank else (("axis", summed.axes),)
    return Call("mean", tuple(matches[0]), named)


@reads(array.Reshape)
def _kept_mean(graph: Graph, op: array.Reshape) -> Term | None:
    """A mean whose axes stay with size 1."""
    divide = op.source.op
    if not graph.is_used_only_by(op.source, {op}) or not isinstance(divide, array.Divide):
        return None
    term = _mean(graph, divide)
    if not isinstance(term, Call):
        return None
    (source,) = term.items
    assert isinstance(source, Value)
    shape = tensor_type(source).shape
    summed = divide.operands[0].op
    assert isinstance(summed, array.ReduceSum)
    kept = tuple([1 if axis in summed.axes else size for axis, size in enumerate(shape)])
    return Call("mean", term.items, (*term.named, ("keepdims", True))) if kept == op.shape else None


@reads(array.Add)
def _group_norm(graph: Graph, op: array.Add) -> Term | None:
    """Each example normalised over groups of channels, which are the second axis."""
    type = tensor_type(op.result)
    groups = _groups(op.result)
    if groups is None:
        return None
    row = type.with_shape((type.shape[1],))
    build = partial(nn.group_norm, groups=groups, axis=1, eps=HOLES[0])
    matches = matched(graph, op.result, build, [type, row, row])
    if matches is None:
        return None
    values, (eps,) = matches
    return Call("group_norm", (*values, groups), (("axis", 1), ("eps", short(eps, type.dtype))))


def _groups(value: Value) -> int | None:
    """The number of groups, if this is the end of such a normalisation."""
    scaled = value.op and value.op.operands[0].op
    back = scaled.operands[0].op if isinstance(scaled, array.Multiply) else None
    shape = tensor_type(value).shape
    if not isinstance(back, array.Reshape) or len(shape) < 2:
        return None
    parts = tensor_type(back.source).shape
    groups = parts[1] if len(parts) == len(shape) + 1 else 0
    if not isinstance(groups, int) or groups == 0:
        return None
    return groups if parts == (shape[0], groups, shape[1] // groups, *shape[2:]) else None


# Pooling ------------------------------------------------------------------------------------------


@spells(array.ReduceWindow)
def _max_pool(graph: Graph, op: array.ReduceWindow) -> Term | None:
    if op.function != "max":
        return None
    return _pooled("max", op, op.source, ())


@spells(array.WindowIndex)
def _argmax_pool(graph: Graph, op: array.WindowIndex) -> Term | None:
    return _pooled("argmax", op, op.source, ()) if op.function == "max" else None


@reads(array.Divide)
def _avg_pool(graph: Graph, op: array.Divide) -> Term | None:
    summed = op and op.operands[0].op
    if not isinstance(summed, array.ReduceWindow) or summed.function != "sum":
        return None
    layout = _layout(summed)
    if layout is None:
        return None
    spatial = LAYOUTS[layout].spatial
    for counted in (False, True):
        build = partial(
            nn.avg_pool,
            window=[summed.window[axis] for axis in spatial],
            strides=[summed.strides[axis] for axis in spatial],
            padding=tuple([summed.padding[axis] for axis in spatial]),
            dilations=[summed.dilations[axis] for axis in spatial],
            dims=layout,
            count_padding=counted,
        )
        matches = matched(graph, op.result, build, [tensor_type(summed.source)])
        if matches is not None:
            named: Named = (("count_padding", True),) if counted else ()
            return _pooled("avg", summed, matches[0][0], named)
    return None


def _pooled(kind: str, op: array.Windowed, source: Value, named: Named) -> Term | None:
    layout = _layout(op)
    if layout is None:
        return None
    spatial = LAYOUTS[layout].spatial
    window, strides, dilations = (
        tuple([numbers[axis] for axis in spatial])
        for numbers in (op.window, op.strides, op.dilations)
    )
    settings: list[tuple[str, Item]] = []
    if strides != window:
        settings.append(("stride", one_if_equal(strides)))
    if any(op.padding[axis] != (0, 0) for axis in spatial):
        settings.append(("padding", padding([op.padding[axis] for axis in spatial])))
    if any(step != 1 for step in dilations):
        settings.append(("dilation", one_if_equal(dilations)))
    settings += dims_setting(layout)
    name = f"{kind}_pool{len(spatial)}d"
    return Call(name, (source, one_if_equal(window)), (*settings, *named))


def _layout(op: array.Windowed) -> str | None:
    """The layout whose spatial axes hold all of the window, with the channels second if they can be."""
    rank = len(op.window)
    axes = zip(op.window, op.strides, op.padding, strict=True)
    used = {axis for axis, facts in enumerate(axes) if facts != (1, 1, (0, 0))}
    for name in ("ncw", "nwc", "nchw", "nhwc", "ncdhw", "ndhwc"):
        if LAYOUTS[name].rank == rank and used <= set(LAYOUTS[name].spatial):
            return name
    return None


def one_if_equal(numbers: tuple[int, ...]) -> Item:
    """One number for all axes, or a list of them."""
    return numbers[0] if len(set(numbers)) == 1 else numbers


def padding(pairs: list[tuple[Size, Size]]) -> Item:
    """The padding as short as it can be said."""
    if any(low != high for low, high in pairs):
        return tuple(pairs)
    lows = tuple([low for low, _ in pairs])
    return lows[0] if len(set(lows)) == 1 else lows


def dims_setting(layout: str) -> list[tuple[str, Item]]:
    """The layout, unless it is the one with the channels last."""
    return [("dims", layout)] if layout[1] == "c" else []


@spells(nn.Conv)
def _conv(graph: Graph, op: nn.Conv) -> Term | None:
    named = conv_settings(op)
    if named is None:
        return None
    function = "conv" if not is_transposed(op) else "conv_transpose"
    kernel: Item = op.kernel
    if is_transposed(op):
        kernel = Call("flip", (op.kernel,), (("axis", LAYOUTS[op.dims].kernel_spatial),))
    return Call(function, (op.source, kernel, *op.bias), tuple(named))


def is_transposed(op: nn.Conv) -> bool:
    """Whether the source is spread: a transposed convolution."""
    return any(step != 1 for step in op.source_dilations)


def conv_settings(op: nn.Conv) -> list[tuple[str, Item]] | None:
    """The settings of a convolution that are not defaults; None if one has no spelling."""
    settings: list[tuple[str, Item]] = []
    if is_transposed(op):
        if any(step != 1 for step in op.strides):
            return None
        settings.append(("stride", one_if_equal(op.source_dilations)))
        settings += _cut(op)
    else:
        if any(step != 1 for step in op.strides):
            settings.append(("stride", one_if_equal(op.strides)))
        if any(pair != (0, 0) for pair in op.padding):
            settings.append(("padding", padding(list(op.padding))))
    if any(step != 1 for step in op.dilations):
        settings.append(("dilation", one_if_equal(op.dilations)))
    if op.groups != 1:
        settings.append(("groups", op.groups))
    return settings + dims_setting(op.dims)


def _cut(op: nn.Conv) -> list[tuple[str, Item]]:
    """The elements that a transposed convolution removes at each end."""
    shape = tensor_type(op.kernel).shape
    pairs: list[tuple[Size, Size]] = []
    for axis, (low, high), step in zip(
        LAYOUTS[op.dims].kernel_spatial, op.padding, op.dilations, strict=True
    ):
        reach = (shape[axis] - 1) * step
        pairs.append((reach - low, reach - high))
    return [("padding", padding(pairs))] if any(pair != (0, 0) for pair in pairs) else []


@reads(array.Divide)
def _local_response_norm(graph: Graph, op: array.Divide) -> Term | None:
    """Each channel divided by what its neighbours have."""
    type, size = tensor_type(op.result), _neighbours(op.result)
    if size is None:
        return None
    alpha, beta, bias = HOLES
    build = partial(nn.local_response_norm, size=size, alpha=alpha, beta=beta, bias=bias, axis=1)
    matches = matched(graph, op.result, build, [type])
    if matches is None:
        return None
    numbers = [short(number, type.dtype) for number in matches[1]]
    named: Named = tuple(zip(("alpha", "beta", "bias"), numbers, strict=True))
    return Call("local_response_norm", (*matches[0], size), (*named, ("axis", 1)))


def _neighbours(value: Value) -> int | None:
    """The number of channels that are summed, if this may be such a normalisation."""
    op = value.op
    for kind, operand in (
        (array.Divide, 1),
        (array.Exp, 0),
        (array.Multiply, 0),
        (array.Log, 0),
        (array.Add, 0),
        (array.Multiply, 0),
    ):
        if not isinstance(op, kind):
            return None
        op = op.operands[operand].op
    if isinstance(op, array.ReduceWindow) and len(op.window) > 1:
        return op.window[1]
    return None
