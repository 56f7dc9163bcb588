"""Sorting and choosing by value, and places that an index names along one axis."""

from __future__ import annotations

from typing import Final

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.dialects.array.shape import reshape, transpose
from dlc.frontend.builtins.axes import one_axis
from dlc.frontend.builtins.registry import builtin
from dlc.frontend.elaboration.tensors import as_tensor, broadcast_to, dtype_of, tensor_type, unify
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum, Record
from dlc.ir.core import Value
from dlc.ir.dims import Size, symbol
from dlc.ir.types import I32

GROUP: Final = "order and places"


@builtin(
    "sort(x: tensor, axis: axis = -1, descending: bool = false)",
    GROUP,
    "The elements in rising order along an axis; NaN comes last.",
    "sort([3, 1, 2])",
    "[1, 2, 3]",
)
def sort(at: Trace, x: Value, axis: int, descending: bool) -> Datum:
    return at(array.Sort(x, (), one_axis(at, x, axis), descending))


@builtin(
    "argsort(x: tensor, axis: axis = -1, descending: bool = false)",
    GROUP,
    "The indices of the elements in rising order, as i32; equal ones keep their order.",
    "argsort([3, 1, 2])",
    "[1, 2, 0]",
)
def argsort(at: Trace, x: Value, axis: int, descending: bool) -> Datum:
    axis = one_axis(at, x, axis)
    index = at(array.Iota(tensor_type(x).shape, axis, I32))
    return at.all(array.Sort(x, (index,), axis, descending))[1]


@builtin(
    "sort_pairs(keys: tensor, values: tensor, axis: axis = -1, descending: bool = false)",
    GROUP,
    "The keys in rising order along an axis, and the values, which have their shape, in the order of "
    "their keys; those of equal keys keep theirs.",
    "sort_pairs([3, 1, 2], [30, 10, 20])",
    "([1, 2, 3], [10, 20, 30])",
)
def sort_pairs(at: Trace, keys: Value, values: Value, axis: int, descending: bool) -> Datum:
    pairs = array.Sort(keys, (values,), one_axis(at, keys, axis), descending)
    return Record(at.all(pairs), ("keys", "values"))


@builtin(
    "top_k(x: tensor, k: size, axis: axis = -1, largest: bool = true)",
    GROUP,
    "The k largest (or smallest) elements along an axis, best first, and their indices, as i32.",
    "top_k([3, 1, 2], 2)",
    "([3, 2], [0, 2])",
)
def top_k(at: Trace, x: Value, k: Size, axis: int, largest: bool) -> Datum:
    return Record(at.all(array.TopK(x, one_axis(at, x, axis), k, largest)), ("values", "places"))


@builtin(
    "take_along(x: tensor, index: tensor, axis: axis = -1)",
    GROUP,
    "`y[.., i] = x[.., index[.., i]]` along an axis: other axes as they are.",
    "take_along([[1, 2], [3, 4]], [[1], [0]])",
    "[[2], [3]]",
)
def take_along(at: Trace, x: Value, index: Value, axis: int) -> Datum:
    axis = one_axis(at, x, axis)
    _check_index(at, index)
    one, two = tensor_type(x), tensor_type(index)
    others = [k for k in range(one.rank) if k != axis]
    if one.rank != two.rank or any(one.shape[k] != two.shape[k] for k in others):
        raise at.fail(
            "D0308", f"the index {two.text} has not the shape of {one.text} beside axis {axis}"
        )
    return array.take_along(at, x, index, axis)


@builtin(
    "take(x: tensor, index: tensor, axis: axis = 0)",
    GROUP,
    "The parts of x along an axis that an index names; its axes replace that axis.",
    "take([10, 20, 30], [2, 0])",
    "[30, 10]",
)
def take(at: Trace, x: Value, index: Value, axis: int) -> Datum:
    axis = one_axis(at, x, axis)
    _check_index(at, index)
    rows = at(array.Gather(x, (index,), (axis,)))
    width, rank = tensor_type(index).rank, tensor_type(rows).rank
    order = (*range(width, width + axis), *range(width), *range(width + axis, rank))
    return transpose(at, rows, order)


def _check_index(at: Trace, index: Value) -> None:
    if not dtype_of(index).is_integer:
        raise at.fail(
            "D0308",
            f"an index is made of whole numbers, found {show(index)}",
            help="convert it: i32(...)",
        )


@builtin(
    "scatter_add(x: alike, index: tensor, value: any)",
    GROUP,
    "x with values added to the rows that an index names; a row named twice receives both.",
    "scatter_add([0, 0, 0], [1, 1], [2, 3])",
    "[0, 5, 0]",
)
def scatter_add(at: Trace, x: Value, index: Value, value: Datum) -> Datum:
    _check_index(at, index)
    if not tensor_type(x).rank:
        raise at.fail("D0305", f"{show(x)} has no rows")
    part = as_tensor(at, value, dtype_of(x))
    rows = (*tensor_type(index).shape, *tensor_type(x).shape[1:])
    whole = array.fill(at, 0, tensor_type(x).with_shape(rows))
    part, _ = unify(at, (part, whole))
    return at(array.Scatter(x, part, (index,), (0,), "add"))


@builtin(
    "nonzero(x: tensor, bound: size = none)",
    GROUP,
    "Where x is not 0 (or is true): the places, one in each row, in row-major order, and their number n. "
    "n is a size that later shapes refer to; storage is laid out for `bound` rows, by default the size "
    "of x.",
    "nonzero([0, 7, 8])",
    "([[1], [2]], 2)",
)
def nonzero(at: Trace, x: Value, bound: Size | None) -> Datum:
    name = at.fresh_dim("n")
    places, _ = at.all(array.NonZero(x, name, bound))
    return Record((places, symbol(name)), ("places", "count"))


@builtin(
    "compress(x: tensor, mask: tensor, axis: axis = 0, bound: size = none)",
    GROUP,
    "The parts of x along an axis where a mask is true; their number is a size that later shapes refer "
    "to.",
    "compress([1, 2, 3], [true, false, true])",
    "[1, 3]",
)
def compress(at: Trace, x: Value, mask: Value, axis: int, bound: Size | None) -> Datum:
    axis = one_axis(at, x, axis)
    return array.compress(at, x, mask, axis, at.fresh_dim("n"), bound)[0]


@builtin(
    "searchsorted(sorted: alike, x: alike)",
    GROUP,
    "How many elements of a rising row are smaller than each element of x, as i32.",
    "searchsorted([1, 3, 5], [0, 4])",
    "[0, 2]",
)
def searchsorted(at: Trace, sorted: Value, x: Value) -> Datum:
    row, values = tensor_type(sorted), tensor_type(x)
    if row.rank != 1 or row.dtype is not values.dtype:
        raise at.fail(
            "D0301", f"{values.text} cannot be found in {row.text}: that is not a row of it"
        )
    whole = (*values.shape, row.shape[0])
    column = reshape(at, x, (*values.shape, 1))
    less = at(array.Compare(broadcast_to(at, sorted, whole), broadcast_to(at, column, whole), "lt"))
    # Counting the others leaves the length to `as_tensor`, which refuses one that is not an i32.
    others = at(array.ReduceSum(at(array.Cast(at(array.Not(less)), I32)), (values.rank,)))
    return at(array.Subtract(*unify(at, (as_tensor(at, row.shape[0], I32), others))))
