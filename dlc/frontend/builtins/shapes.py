"""Functions that arrange the elements of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.dialects.array.shape import reshape as reshaped
from dlc.dialects.array.shape import transpose as transposed
from dlc.frontend.builtins.axes import Axes, one_axis, some_axes
from dlc.frontend.builtins.registry import builtin
from dlc.frontend.elaboration.tensors import (
    as_tensor,
    broadcast_to,
    dtype_of,
    natural_dtype,
    tensor_type,
)
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import (
    PLACEHOLDER,
    Datum,
    Items,
    Marker,
    Record,
    describe,
    is_number,
)
from dlc.ir.bounded import never_negative
from dlc.ir.core import Value
from dlc.ir.dims import Bounds, Dim, Shape, Size, floor_divide, maximum, product
from dlc.ir.types import BOOL, DType

GROUP: Final = "shapes"


def shape_text(shape: Sequence[Size | Marker]) -> str:
    """A shape as the language writes it."""
    return f"[{', '.join(map(str, shape))}]"


@builtin(
    "reshape(x: tensor, shape: shape)",
    GROUP,
    "The same elements in row-major order under another shape; `_` stands for the size that fits.",
    "reshape([1, 2, 3, 4], [2, _])",
    "[[1, 2], [3, 4]]",
)
def reshape(at: Trace, x: Value, shape: tuple[Size | Marker, ...]) -> Datum:
    total = tensor_type(x).size
    holes = [k for k, size in enumerate(shape) if size is PLACEHOLDER]
    sizes: list[Size] = [size if not isinstance(size, Marker) else 1 for size in shape]
    if len(holes) > 1:
        raise at.fail("D0303", f"{shape_text(shape)} leaves more than one size open")
    if holes:
        rest = product(sizes)
        if rest == 0:
            raise at.fail("D0303", f"`_` can be any size in {shape_text(shape)}: 0 elements")
        sizes[holes[0]] = floor_divide(total, rest)
        if sizes[holes[0]] * rest != total:
            raise at.fail(
                "D0303",
                f"cannot reshape {show(x)} of {total} elements to {shape_text(shape)}: "
                f"{total} is not a multiple of {rest}",
            )
    return reshaped(at, x, tuple(sizes))


@builtin(
    "flatten(x: tensor, start: axis = 1)",
    GROUP,
    "All axes from `start` on as one.",
    "flatten([[[1, 2], [3, 4]]])",
    "[[1, 2, 3, 4]]",
)
def flatten(at: Trace, x: Value, start: int) -> Datum:
    shape = tensor_type(x).shape
    first = one_axis(at, x, start, extra=1)
    return reshaped(at, x, (*shape[:first], product(shape[first:])))


@builtin(
    "transpose(x: tensor)",
    GROUP,
    "The last two axes exchanged.",
    "transpose([[1, 2], [3, 4]])",
    "[[1, 3], [2, 4]]",
)
def transpose(at: Trace, x: Value) -> Datum:
    rank = tensor_type(x).rank
    if rank < 2:
        raise at.fail("D0305", f"{show(x)} has no two axes to exchange")
    return transposed(at, x, (*range(rank - 2), rank - 1, rank - 2))


@builtin(
    "permute(x: tensor, axes: axes)",
    GROUP,
    "The axes in another order: axis k of the result is axis `axes[k]` of x.",
    "permute([[1, 2], [3, 4]], [1, 0])",
    "[[1, 3], [2, 4]]",
)
def permute(at: Trace, x: Value, axes: Axes) -> Datum:
    order = (axes,) if isinstance(axes, int) else axes or ()
    return transposed(at, x, tuple([one_axis(at, x, axis) for axis in order]))


@builtin(
    "broadcast(x: tensor, shape: shape)",
    GROUP,
    "x broadcast to a shape: missing axes and those of size 1 are repeated.",
    "broadcast([1, 2], [2, 2])",
    "[[1, 2], [1, 2]]",
)
def broadcast(at: Trace, x: Value, shape: Shape) -> Datum:
    own = tensor_type(x).shape
    lead = len(shape) - len(own)
    if lead < 0 or any(n not in (1, shape[lead + k]) for k, n in enumerate(own)):
        raise at.fail("D0304", f"cannot broadcast {show(x)} to {shape_text(shape)}")
    return broadcast_to(at, x, shape)


@builtin(
    "squeeze(x: tensor, axis: axes)",
    GROUP,
    "x without these axes, which have size 1.",
    "squeeze([[1, 2]], axis=0)",
    "[1, 2]",
)
def squeeze(at: Trace, x: Value, axis: Axes) -> Datum:
    axes = some_axes(at, x, axis)
    shape = tensor_type(x).shape
    for k in axes:
        if shape[k] != 1:
            raise at.fail("D0303", f"axis {k} of {show(x)} has size {shape[k]}, not 1")
    return reshaped(at, x, tuple([n for k, n in enumerate(shape) if k not in axes]))


@builtin(
    "flip(x: tensor, axis: axes = none)",
    GROUP,
    "The elements in reverse order along axes.",
    "flip([1, 2, 3])",
    "[3, 2, 1]",
)
def flip(at: Trace, x: Value, axis: Axes) -> Datum:
    return at(array.Reverse(x, some_axes(at, x, axis)))


# Putting together and taking apart ------------------------------------------------------------------


def tensors_of(at: Trace, xs: Sequence[Datum]) -> list[Value]:
    """Values as tensors of one dtype."""
    dtype = natural_dtype(Items(tuple(xs)))
    first = next((x for x in xs if isinstance(x, Value)), None)
    return [as_tensor(at, x, dtype if first is None else dtype_of(first)) for x in xs]


@builtin(
    "concat(xs: list, axis: axis = 0)",
    GROUP,
    "The tensors one after the other along an axis.",
    "concat([[1, 2], [3]])",
    "[1, 2, 3]",
)
def concat(at: Trace, xs: Sequence[Datum], axis: int) -> Datum:
    parts = tensors_of(at, xs)
    if not parts:
        raise at.fail("D0307", "nothing to concatenate")
    return at(array.Concatenate(tuple(parts), one_axis(at, parts[0], axis)))


@builtin(
    "stack(xs: list, axis: axis = 0)",
    GROUP,
    "The tensors, all of one type, above each other along a new axis.",
    "stack([[1, 2], [3, 4]], axis=1)",
    "[[1, 3], [2, 4]]",
)
def stack(at: Trace, xs: Sequence[Datum], axis: int) -> Datum:
    parts = tensors_of(at, xs)
    if not parts:
        raise at.fail("D0307", "nothing to stack")
    axis = one_axis(at, parts[0], axis, extra=1)
    shape = tensor_type(parts[0]).shape
    for part in parts:
        if part.type is not parts[0].type:
            raise at.fail("D0307", f"cannot stack {show(parts[0])} and {show(part)}")
    rows = [reshaped(at, part, (*shape[:axis], 1, *shape[axis:])) for part in parts]
    return at(array.Concatenate(tuple(rows), axis))


@builtin(
    "split(x: tensor, parts: any, axis: axis = 0)",
    GROUP,
    "Equal parts along an axis, or parts of the sizes listed, as a tuple.",
    "split([1, 2, 3, 4], 2)",
    "([1, 2], [3, 4])",
)
def split(at: Trace, x: Value, parts: Datum, axis: int) -> Datum:
    axis = one_axis(at, x, axis)
    whole = tensor_type(x).shape[axis]
    sizes = _part_sizes(at, parts, whole)
    slices: list[Datum] = []
    start: Size = 0
    for size in sizes:
        slices.append(array.slice_axis(at, x, axis, start, start + size))
        start = start + size
    if start != whole:
        raise at.fail(
            "D0306",
            f"the parts {shape_text(sizes)} have {start} elements together, "
            f"axis {axis} of {show(x)} has {whole}",
        )
    return Record.of(tuple(slices))


MAX_PARTS: Final = 4096


def _part_sizes(at: Trace, parts: Datum, whole: Size) -> list[Size]:
    match parts:
        case bool():
            pass
        case int() if 1 <= parts <= MAX_PARTS:
            size = floor_divide(whole, parts)
            if size * parts != whole:
                raise at.fail("D0306", f"{whole} elements do not make {parts} equal parts")
            return [size] * parts
        case Items(items) | Record(items) if all(isinstance(i, int | Dim) for i in items):
            return list(items)  # pyright: ignore[reportReturnType]
        case _:
            pass
    raise at.fail(
        "D0320", f"parts of split is a number of parts or a list of sizes, found {describe(parts)}"
    )


@builtin(
    "pad(x: tensor, by: list, value: any = none)",
    GROUP,
    "x with `value` around it, by default 0 or false: for each axis (before, after), or one number for "
    "both.",
    "pad([1, 2], [(1, 2)])",
    "[0, 1, 2, 0, 0]",
)
def pad(at: Trace, x: Value, by: Sequence[Datum], value: Datum) -> Datum:
    type = tensor_type(x)
    if len(by) != type.rank:
        raise at.fail("D0306", f"{show(x)} has {type.rank} axes, {len(by)} are padded")
    low: list[Size] = []
    high: list[Size] = []
    for item in by:
        pair = item.items if isinstance(item, Record | Items) else (item, item)
        if len(pair) != 2 or not all(isinstance(n, int | Dim) for n in pair):
            raise at.fail(
                "D0320", f"each axis is padded by (before, after), found {describe(item)}"
            )
        low.append(pair[0])  # pyright: ignore[reportArgumentType]
        high.append(pair[1])  # pyright: ignore[reportArgumentType]
    zero = False if type.dtype is BOOL else 0
    filler = as_tensor(at, zero if value is None else value, type.dtype)
    return at(array.Pad(x, filler, tuple(low), tuple(high), (0,) * type.rank))


@builtin(
    "roll(x: tensor, by: size, axis: axis = 0)",
    GROUP,
    "The elements shifted along an axis; those that leave at one end come in at the other.",
    "roll([1, 2, 3, 4], 1)",
    "[4, 1, 2, 3]",
)
def roll(at: Trace, x: Value, by: Size, axis: int) -> Datum:
    axis = one_axis(at, x, axis)
    size = tensor_type(x).shape[axis]
    if not _reaches(size, by, at.bounds):
        # Nothing moves along an axis without elements, whatever the way.
        by = by % (size if never_negative(size - 1, at.bounds) else maximum(size, 1))
    cut = size - by if not isinstance(by, int) or by >= 0 else -by
    front = array.slice_axis(at, x, axis, cut, size)
    return at(array.Concatenate((front, array.slice_axis(at, x, axis, 0, cut)), axis))


def _reaches(size: Size, by: Size, bounds: Bounds) -> bool:
    """Whether an axis is surely as long as the way that its elements move, forth or back."""
    forth = never_negative(by, bounds) and never_negative(size - by, bounds)
    return forth or (isinstance(by, int) and by < 0 and never_negative(size + by, bounds))


@builtin(
    "repeat(x: tensor, times: int, axis: axis = 0)",
    GROUP,
    "Each part along an axis repeated, the copies side by side.",
    "repeat([1, 2], 2)",
    "[1, 1, 2, 2]",
)
def repeat(at: Trace, x: Value, times: int, axis: int) -> Datum:
    return _repeated(at, x, times, one_axis(at, x, axis), each=True)


@builtin(
    "tile(x: tensor, times: int, axis: axis = 0)",
    GROUP,
    "The whole tensor repeated along an axis.",
    "tile([1, 2], 2)",
    "[1, 2, 1, 2]",
)
def tile(at: Trace, x: Value, times: int, axis: int) -> Datum:
    return _repeated(at, x, times, one_axis(at, x, axis), each=False)


def _repeated(at: Trace, x: Value, times: int, axis: int, *, each: bool) -> Value:
    shape = tensor_type(x).shape
    new = axis + 1 if each else axis
    wide = (*shape[:new], times, *shape[new:])
    axes = tuple([k for k in range(len(wide)) if k != new])
    spread = at(array.Broadcast(x, wide, axes))
    return reshaped(at, spread, (*shape[:axis], shape[axis] * times, *shape[axis + 1 :]))


# Sizes ----------------------------------------------------------------------------------------------


@builtin(
    "size(x: tensor, axis: axis = none)",
    GROUP,
    "How many elements x has, or how many places along an axis: a number known when compiling, or a "
    "symbolic size.",
    "size([[1, 2, 3]], 1)",
    "3",
)
def size(at: Trace, x: Value, axis: int | None) -> Datum:
    type = tensor_type(x)
    return type.size if axis is None else type.shape[one_axis(at, x, axis)]


@builtin("shape(x: tensor)", GROUP, "The sizes of x as a list.", "shape([[1, 2, 3]])", "[1, 3]")
def shape(at: Trace, x: Value) -> Datum:
    return Items(tensor_type(x).shape)


@builtin("rank(x: tensor)", GROUP, "How many axes x has.", "rank([[1, 2, 3]])", "2")
def rank(at: Trace, x: Value) -> Datum:
    return tensor_type(x).rank


@builtin("dtype_of(x: tensor)", GROUP, "The dtype of x.", "dtype_of(1.5) == f32", "true")
def dtype_of_tensor(at: Trace, x: Value) -> DType:
    return dtype_of(x)


@builtin(
    "len(x: any)", GROUP, "How many items a list or a tuple has.", "len([(1, 2), (3, 4)])", "2"
)
def length(at: Trace, x: Datum) -> Datum:
    if isinstance(x, Items | Record):
        return len(x.items)
    if isinstance(x, Value) and tensor_type(x).rank:
        return tensor_type(x).shape[0]
    raise at.fail("D0320", f"{'a number' if is_number(x) else describe(x)} has no length")
