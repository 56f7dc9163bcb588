"""Functions between layers, and functions of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.dialects.array.arithmetic import times
from dlc.dialects.nn import activations, functions
from dlc.dialects.nn.rows import mean
from dlc.dialects.nn.softmax import LogSoftmax, LogSumExp, Softmax
from dlc.frontend.builtins.axes import one_axis, with_ones
from dlc.frontend.builtins.registry import add_builtin, builtin
from dlc.frontend.elaboration.tensors import refuse_mixture, tensor_type, unify
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum
from dlc.ir.core import Value

GROUP: Final = "between layers"
ROWS: Final = "rows"

ACTIVATIONS: Final[dict[str, tuple[Callable[[Trace, Value], Value], str, str]]] = {
    "relu": (activations.relu, "relu([-1, 2])", "[0.0, 2.0]"),
    "silu": (activations.silu, "silu([0, 1])", "[0.0, 0.7310586]"),
    "softplus": (activations.softplus, "softplus([0, 1])", "[0.6931472, 1.3132616]"),
    "softsign": (activations.softsign, "softsign([0, 1])", "[0.0, 0.5]"),
    "selu": (activations.selu, "selu([0, 1])", "[0.0, 1.050701]"),
    "hardsigmoid": (activations.hardsigmoid, "hardsigmoid([-4, 0, 4])", "[0.0, 0.5, 1.0]"),
    "hardswish": (activations.hardswish, "hardswish([-4, 0, 4])", "[0.0, 0.0, 4.0]"),
    "mish": (activations.mish, "mish([0, 1])", "[0.0, 0.8650984]"),
}


def first_line(function: Callable[..., object]) -> str:
    """The summary of a function, in one line."""
    return (function.__doc__ or "").partition("\n")[0]


for _name, (_function, _example, _result) in ACTIVATIONS.items():
    _doc = first_line(_function)
    add_builtin(f"{_name}(x: float)", GROUP, _doc, _example, _result, _function)


@builtin(
    "gelu(x: float, tanh: bool = false)",
    GROUP,
    first_line(activations.gelu),
    "gelu([0, 1])",
    "[0.0, 0.8413447]",
)
def gelu(at: Trace, x: Value, tanh: bool) -> Datum:
    return activations.gelu(at, x, tanh=tanh)


@builtin(
    "elu(x: float, alpha: number = 1.0)",
    GROUP,
    first_line(activations.elu),
    "elu([-1, 2])",
    "[-0.63212055, 2.0]",
)
def elu(at: Trace, x: Value, alpha: float) -> Datum:
    return activations.elu(at, x, alpha)


@builtin(
    "leaky_relu(x: float, slope: number = 0.01)",
    GROUP,
    first_line(activations.leaky_relu),
    "leaky_relu([-1, 2], 0.5)",
    "[-0.5, 2.0]",
)
def leaky_relu(at: Trace, x: Value, slope: float) -> Datum:
    return activations.leaky_relu(at, x, slope)


@builtin(
    "prelu(x: float, slope: any)",
    GROUP,
    "x where it is positive, else `slope * x`; the slope is broadcast to x.",
    "prelu([-1, 2], [0.5])",
    "[-0.5, 2.0]",
)
def prelu(at: Trace, x: Value, slope: Datum) -> Datum:
    return activations.prelu(at, *unify(at, (x, slope)))


# Rows ---------------------------------------------------------------------------------------------

for _name, _kind, _example, _result in (
    ("softmax", Softmax, "softmax([0.0, 0.0])", "[0.5, 0.5]"),
    ("log_softmax", LogSoftmax, "log_softmax([0.0, 0.0])", "[-0.6931472, -0.6931472]"),
):

    def _of_rows(kind: type[Softmax | LogSoftmax]) -> Callable[..., Datum]:
        def run(at: Trace, x: Value, axis: int) -> Datum:
            return at(kind(x, one_axis(at, x, axis)))

        return run

    _doc = (_kind.__doc__ or "").partition("\n")[0]
    add_builtin(
        f"{_name}(x: float, axis: axis = -1)", ROWS, _doc, _example, _result, _of_rows(_kind)
    )


@builtin(
    "logsumexp(x: float, axis: axis = -1, keepdims: bool = false)",
    ROWS,
    (LogSumExp.__doc__ or "").partition("\n")[0],
    "logsumexp([0.0, 0.0])",
    "0.6931472",
)
def logsumexp(at: Trace, x: Value, axis: int, keepdims: bool) -> Datum:
    place = one_axis(at, x, axis)
    result = at(LogSumExp(x, place))
    return with_ones(at, result, x, (place,)) if keepdims else result


@builtin(
    "layer_norm(x: float, scale: float = none, shift: float = none, eps: number = 1e-5)",
    ROWS,
    "`(x - mean) / sqrt(variance + eps) * scale + shift` over the last axis.",
    "layer_norm([[1, 3]], eps=0)",
    "[[-1.0, 1.0]]",
)
def layer_norm(at: Trace, x: Value, scale: Value | None, shift: Value | None, eps: float) -> Datum:
    return functions.layer_norm(at, x, scale, shift, axis=one_axis(at, x, -1), eps=float(eps))


@builtin(
    "rms_norm(x: float, scale: float = none, eps: number = 1e-5)",
    ROWS,
    "`x / sqrt(mean of x * x + eps) * scale` over the last axis.",
    "rms_norm([[3, 3]], eps=0)",
    "[[1.0, 1.0]]",
)
def rms_norm(at: Trace, x: Value, scale: Value | None, eps: float) -> Datum:
    return functions.rms_norm(at, x, scale, axis=one_axis(at, x, -1), eps=float(eps))


@builtin(
    "batch_norm(x: float, scale: float, shift: float, mean: float, variance: float, "
    "axis: axis = -1, eps: number = 1e-5)",
    ROWS,
    "`(x - mean) / sqrt(variance + eps) * scale + shift` with one number of each for every channel; "
    "`axis` is the channels'.",
    "batch_norm([[1, 3]], ones([2]), zeros([2]), ones([2]), ones([2]), eps=0)",
    "[[0.0, 2.0]]",
)
def batch_norm(
    at: Trace,
    x: Value,
    scale: Value,
    shift: Value,
    mean: Value,
    variance: Value,
    axis: int,
    eps: float,
) -> Datum:
    channel = one_axis(at, x, axis)
    parts = (scale, shift, mean, variance)
    _check_channels(at, x, channel, parts)
    return functions.batch_norm(at, x, *parts, axis=channel, eps=float(eps))


@builtin(
    "group_norm(x: float, scale: float, shift: float, groups: int, axis: axis = -1, "
    "eps: number = 1e-5)",
    ROWS,
    "Each example normalised over the channels of a group and all axes but the first; `axis` is the "
    "channels'.",
    "group_norm([[1, 3]], ones([2]), zeros([2]), 1, eps=0)",
    "[[-1.0, 1.0]]",
)
def group_norm(
    at: Trace, x: Value, scale: Value, shift: Value, groups: int, axis: int, eps: float
) -> Datum:
    channel = one_axis(at, x, axis)
    channels = tensor_type(x).shape[channel]
    if groups < 1 or channels % groups != 0:
        raise at.fail("D0306", f"{channels} channels do not make {groups} groups")
    _check_channels(at, x, channel, (scale, shift))
    place = {"groups": groups, "axis": channel}
    return functions.group_norm(at, x, scale, shift, **place, eps=float(eps))


def _check_channels(at: Trace, x: Value, channel: int, values: Sequence[Value]) -> None:
    """Raise D0301 unless the values have one number for each channel of x."""
    row = tensor_type(x).with_shape((tensor_type(x).shape[channel],))
    for value in values:
        if value.type is not row:
            raise at.fail("D0301", f"the channels are {row.text}, found {show(value)}")


@builtin(
    "local_response_norm(x: float, size: int, alpha: number = 1e-4, beta: number = 0.75, "
    "bias: number = 1, axis: axis = -1)",
    ROWS,
    "`x / (bias + alpha * sum of squares of the size channels around) ** beta`; `axis` is the channels'.",
    "local_response_norm([[3, 4]], 1, alpha=1, beta=0.5, bias=0)",
    "[[1.0, 1.0]]",
)
def local_response_norm(
    at: Trace, x: Value, size: int, alpha: float, beta: float, bias: float, axis: int
) -> Datum:
    if size < 1:
        raise at.fail("D0306", f"size is at least 1, found {size}")
    channel = one_axis(at, x, axis)
    numbers = {"alpha": float(alpha), "beta": float(beta), "bias": float(bias)}
    return functions.local_response_norm(at, x, size=size, axis=channel, **numbers)


@builtin(
    "cross_entropy(logits: float, labels: tensor, smoothing: number = 0)",
    ROWS,
    "The loss of each row: `-log softmax(logits)[label]`, with whole-numbered labels; or, with labels "
    "that are distributions, `-sum(labels * log softmax(logits))`. `smoothing` is the share of the labels "
    "that is spread evenly over all classes (Szegedy and others, 2016).",
    "cross_entropy([[0.0, 0.0]], [1])",
    "[0.6931472]",
)
def cross_entropy(at: Trace, logits: Value, labels: Value, smoothing: float) -> Datum:
    if not 0 <= smoothing <= 1:
        raise at.fail("D0320", f"a share lies from 0 to 1, found {smoothing}")
    sharp = _cross_entropy(at, logits, labels)
    if smoothing == 0:
        return sharp
    rows = tensor_type(logits).rank - 1
    even = mean(at, at(LogSoftmax(logits, rows)), (rows,))
    kept, spread = times(at, sharp, 1 - smoothing), times(at, even, smoothing)
    return at(array.Subtract(kept, spread))


def _cross_entropy(at: Trace, logits: Value, labels: Value) -> Value:
    one, two = tensor_type(logits), tensor_type(labels)
    if not two.dtype.is_float:
        return functions.cross_entropy(at, logits, labels)
    if two.rank < one.rank:
        raise at.fail(
            "D0302",
            f"labels of {two.dtype.name} are distributions over the classes, as {show(logits)}, "
            f"found {show(labels)}",
            help="the number of a class is a whole number: i32(labels)",
        )
    if one.dtype is not two.dtype:
        raise refuse_mixture(at, [logits, labels])
    return functions.soft_cross_entropy(at, *unify(at, (logits, labels)))
