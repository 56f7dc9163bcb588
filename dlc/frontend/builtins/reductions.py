"""Functions that combine the elements along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.frontend.builtins.axes import Axes, one_axis, reduced_axes, with_ones
from dlc.frontend.builtins.registry import add_builtin, builtin
from dlc.frontend.elaboration.tensors import as_tensor, dtype_of, tensor_type, unify
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum, Record
from dlc.ir.core import Value
from dlc.ir.dims import product
from dlc.ir.types import BOOL

GROUP: Final = "along axes"
PARAMETERS: Final = "axis: axes = none, keepdims: bool = false, keep: axes = none"
HOW: Final = (
    " `axis` names the axes that vanish (by default all), `keep` those that stay; with `keepdims` "
    "they become 1."
)

REDUCTIONS: Final[dict[str, tuple[type[array.Reduction], str, str, str]]] = {
    "sum": (array.ReduceSum, "The sum.", "sum([[1, 2], [3, 4]], axis=0)", "[4, 6]"),
    "product": (array.ReduceProduct, "The product.", "product([[1, 2], [3, 4]])", "24"),
    "max": (array.ReduceMax, "The largest element.", "max([[1, 4], [3, 2]], axis=1)", "[4, 3]"),
    "min": (array.ReduceMin, "The smallest element.", "min([[1, 4], [3, 2]], keep=0)", "[1, 2]"),
}


def _reduction(op: type[array.Reduction]) -> Callable[..., Datum]:
    def run(at: Trace, x: Value, axis: Axes, keepdims: bool, keep: Axes) -> Datum:
        return reduce(at, op, x, reduced_axes(at, x, axis, keep), keepdims)

    return run


def reduce(
    at: Trace, op: type[array.Reduction], x: Value, axes: tuple[int, ...], keepdims: bool
) -> Value:
    """The reduction of these axes; with `keepdims` they stay with size 1."""
    result = at(op(x, axes))
    return with_ones(at, result, x, axes) if keepdims else result


for _name, (_op, _doc, _example, _result) in REDUCTIONS.items():
    add_builtin(
        f"{_name}(x: tensor, {PARAMETERS})", GROUP, _doc + HOW, _example, _result, _reduction(_op)
    )


def _truth(op: type[array.Reduction]) -> Callable[..., Datum]:
    def run(at: Trace, x: Value, axis: Axes, keepdims: bool, keep: Axes) -> Datum:
        if dtype_of(x) is not BOOL:
            raise at.fail("D0302", f"bools are needed here, found {show(x)}", help="compare: x > 0")
        return reduce(at, op, x, reduced_axes(at, x, axis, keep), keepdims)

    return run


add_builtin(
    f"all(x: tensor, {PARAMETERS})",
    GROUP,
    "Whether all elements are true." + HOW,
    "all([[true, false], [true, true]], axis=1)",
    "[false, true]",
    _truth(array.ReduceAnd),
)
add_builtin(
    f"any(x: tensor, {PARAMETERS})",
    GROUP,
    "Whether any element is true." + HOW,
    "any([[true, false], [false, false]], axis=1)",
    "[true, false]",
    _truth(array.ReduceOr),
)


def count_of(at: Trace, x: Value, axes: tuple[int, ...]) -> Value:
    """The number of elements along these axes, as a scalar of the dtype of x."""
    shape = tensor_type(x).shape
    return as_tensor(at, product([shape[axis] for axis in axes]), dtype_of(x))


def mean_of(at: Trace, x: Value, axes: tuple[int, ...], keepdims: bool = False) -> Value:
    """The mean of floats along axes."""
    total = reduce(at, array.ReduceSum, x, axes, keepdims)
    return at(array.Divide(*unify(at, (total, count_of(at, x, axes)))))


def variance_of(
    at: Trace, x: Value, axes: tuple[int, ...], keepdims: bool = False
) -> tuple[Value, Value]:
    """The mean and the mean squared distance from it."""
    mean = mean_of(at, x, axes, keepdims=True)
    away = at(array.Subtract(*unify(at, (x, mean))))
    variance = mean_of(at, at(array.Multiply(away, away)), axes, keepdims)
    return mean if keepdims else _dropped(at, mean, axes), variance


def _dropped(at: Trace, x: Value, axes: tuple[int, ...]) -> Value:
    shape = tensor_type(x).shape
    return at(array.Reshape(x, tuple([n for k, n in enumerate(shape) if k not in axes])))


@builtin(
    "mean(x: float, axis: axes = none, keepdims: bool = false, keep: axes = none)",
    GROUP,
    "The sum divided by the number of elements." + HOW,
    "mean([[1, 2], [3, 4]], axis=0)",
    "[2.0, 3.0]",
)
def mean(at: Trace, x: Value, axis: Axes, keepdims: bool, keep: Axes) -> Datum:
    return mean_of(at, x, reduced_axes(at, x, axis, keep), keepdims)


@builtin(
    "variance(x: float, axis: axes = none, keepdims: bool = false, keep: axes = none)",
    GROUP,
    "The mean squared distance from the mean (not Bessel-corrected)." + HOW,
    "variance([1, 2, 3, 4])",
    "1.25",
)
def variance(at: Trace, x: Value, axis: Axes, keepdims: bool, keep: Axes) -> Datum:
    return variance_of(at, x, reduced_axes(at, x, axis, keep), keepdims)[1]


@builtin(
    "moments(x: float, axis: axes = none, keepdims: bool = false, keep: axes = none)",
    GROUP,
    "The mean and the variance." + HOW,
    "moments([1, 2, 3, 4])",
    "(2.5, 1.25)",
)
def moments(at: Trace, x: Value, axis: Axes, keepdims: bool, keep: Axes) -> Datum:
    return Record.of(variance_of(at, x, reduced_axes(at, x, axis, keep), keepdims))


@builtin(
    "norm(x: float, axis: axes = none, keepdims: bool = false, keep: axes = none)",
    GROUP,
    "The square root of the sum of squares." + HOW,
    "norm([3, 4])",
    "5.0",
)
def norm(at: Trace, x: Value, axis: Axes, keepdims: bool, keep: Axes) -> Datum:
    squares = at(array.Multiply(x, x))
    axes = reduced_axes(at, x, axis, keep)
    return at(array.Sqrt(reduce(at, array.ReduceSum, squares, axes, keepdims)))


def _extreme(op: type[array.ArgMax | array.ArgMin]) -> Callable[..., Datum]:
    def run(at: Trace, x: Value, axis: int, keepdims: bool) -> Datum:
        place = one_axis(at, x, axis)
        result = at(op(x, place))
        return with_ones(at, result, x, (place,)) if keepdims else result

    return run


for _name, _op, _what in (
    ("argmax", array.ArgMax, "largest"),
    ("argmin", array.ArgMin, "smallest"),
):
    add_builtin(
        f"{_name}(x: tensor, axis: axis = -1, keepdims: bool = false)",
        GROUP,
        f"The index of the {_what} element along an axis, an i32; the first of equals.",
        f"{_name}([[1, 5, 3], [7, 2, 9]])",
        "[1, 2]" if _name == "argmax" else "[0, 1]",
        _extreme(_op),
    )

CUMULATIVE: Final[dict[str, tuple[type[array.Cumulative], str, str]]] = {
    "cumsum": (array.CumulativeSum, "sum", "[1, 3, 6]"),
    "cumprod": (array.CumulativeProduct, "product", "[1, 2, 6]"),
    "cummax": (array.CumulativeMax, "largest", "[1, 2, 3]"),
    "cummin": (array.CumulativeMin, "smallest", "[1, 1, 1]"),
}


def _cumulative(op: type[array.Cumulative]) -> Callable[..., Datum]:
    def run(at: Trace, x: Value, axis: int, reverse: bool, exclusive: bool) -> Datum:
        return at(op(x, one_axis(at, x, axis), reverse, exclusive))

    return run


for _name, (_kind, _what, _result) in CUMULATIVE.items():
    add_builtin(
        f"{_name}(x: tensor, axis: axis = -1, reverse: bool = false, exclusive: bool = false)",
        GROUP,
        f"The {_what} of all elements up to each one along an axis; from the end with `reverse`, "
        "without the element itself with `exclusive`.",
        f"{_name}([1, 2, 3])",
        _result,
        _cumulative(_kind),
    )
