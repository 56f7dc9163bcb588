"""Making tensors: numbers and lists adapt to the tensor that they meet, and shapes are broadcast.

Where nothing else decides, numbers with a point are f32, others i32, `true` and `false` bool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.frontend.elaboration.literals import literal
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import PLACEHOLDER, UNKNOWN, Datum, Items, describe, part_of
from dlc.ir.attributes import Dense, encode
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Shape, Size
from dlc.ir.types import BOOL, F32, I32, DType, TensorType

__all__ = [
    "as_tensor", "broadcast_shape", "broadcast_to", "convert", "dtype_of", "is_numeric", "natural_dtype",
    "refuse_mixture", "size_tensor", "tensor_type", "unify",
]  # fmt: skip

tensor_type = array.tensor_type


def dtype_of(value: Value) -> DType:
    """The element type of a tensor."""
    return tensor_type(value).dtype


def as_tensor(at: Trace, value: Datum, dtype: DType | None = None) -> Value:
    """The tensor that a value is or stands for; numbers and lists become one of `dtype`."""
    match value:
        case Value():
            return value
        case bool() | int() | float():
            kind = dtype or natural_dtype(value)
            return at(array.Fill(literal(at, value, kind), TensorType(kind)))
        case Dim():
            return size_tensor(at, value, dtype or I32)
        case Items():
            return _list_tensor(at, value, dtype)
        case _:
            raise not_a_tensor(at, value)


def not_a_tensor(at: Trace, value: Datum) -> Exception:
    """The error for a value that stands where a tensor is needed."""
    if value is UNKNOWN:
        return Poisoned()
    if value is PLACEHOLDER:
        return at.fail("D0326", "`_` is not allowed here", help="write the size")
    told = f"expected a tensor, found {describe(value)}"
    return at.fail("D0326", told, help=part_of(value))


def natural_dtype(value: Datum) -> DType:
    """The dtype of numbers that meet no tensor."""
    match value:
        case bool():
            return BOOL
        case float():
            return F32
        case Value():
            return dtype_of(value)
        case Items(items):
            found = [natural_dtype(item) for item in items]
            for dtype in found:
                if dtype not in (I32, BOOL):
                    return dtype
            return found[0] if found and len(set(found)) == 1 else I32 if found else F32
        case _:
            return I32


def size_tensor(at: Trace, size: Dim, dtype: DType) -> Value:
    """A symbolic size as a scalar."""
    if dtype is I32:
        return at(array.Extent(size, I32))
    return convert(at, at(array.Extent(size)), dtype)


def convert(at: Trace, value: Value, dtype: DType) -> Value:
    """The tensor in another dtype."""
    return value if dtype_of(value) is dtype else at(array.Cast(value, dtype))


# Lists ------------------------------------------------------------------------------------------


def _list_tensor(at: Trace, value: Items, dtype: DType | None) -> Value:
    """`[[1, 2], [3, 4]]` as a constant; with tensors among the items, these one above the other."""
    kind = dtype or natural_dtype(value)
    if not is_numeric(value):
        return _stacked(at, value, kind)
    elements: list[float] = []
    shape = _gather(at, value, kind, elements)
    wide = np.asarray(elements, np.float64 if kind.is_float else kind.numpy).reshape(shape)
    return at(array.Constant(Dense.of(encode(wide, kind), kind)))


def is_numeric(value: Datum) -> bool:
    """Whether it is a number, or a nested list of nothing but numbers; bools count as such."""
    if isinstance(value, Items):
        return all(is_numeric(item) for item in value.items)
    return isinstance(value, int | float)


def _gather(at: Trace, value: Items, dtype: DType, elements: list[float]) -> tuple[int, ...]:
    """Add the numbers of a nested list to `elements`; gives its shape."""
    shape: tuple[int, ...] | None = None
    for item in value.items:
        if isinstance(item, Items):
            inner = _gather(at, item, dtype, elements)
        else:
            assert isinstance(item, int | float)
            elements.append(literal(at, item, dtype, place=value.place))
            inner = ()
        if shape is not None and inner != shape:
            raise _ragged(at, value, len(inner) == len(shape))
        shape = inner
    return (len(value.items), *(shape or ()))


def _ragged(at: Trace, value: Items, alike: bool) -> Exception:
    """The error for a list whose items are not rows of one tensor, though perhaps of the same rank."""
    return at.fail(
        "D0330",
        f"the rows of the list differ in {'length' if alike else 'depth'}",
        place=value.place,
        help="a tensor has rows of one length"
        if alike
        else "write numbers alone, or lists of one length alone: [1, 2] or [[1], [2]]",
    )


def _stacked(at: Trace, value: Items, dtype: DType) -> Value:
    parts = unify(at, [as_tensor(at, item, dtype) for item in value.items])
    rows = [at(array.Reshape(part, (1, *tensor_type(part).shape))) for part in parts]
    return at(array.Concatenate(tuple(rows), 0))


# Broadcasting -----------------------------------------------------------------------------------


def unify(at: Trace, values: Sequence[Datum], verb: str = "combine") -> list[Value]:
    """The values as tensors of one type: numbers take the dtype of the tensors, shapes are broadcast.

    `verb` is what a message says is done with them.
    """
    first = next((value for value in values if isinstance(value, Value)), None)
    if first is not None:
        type = first.type
        if all(isinstance(value, Value) and value.type is type for value in values):
            return list(values)  # pyright: ignore[reportReturnType]
        dtype = dtype_of(first)
    else:
        dtype = natural_dtype(Items(tuple(values)))
    kept: list[Datum] = [
        value if isinstance(value, int | float) else as_tensor(at, value, dtype) for value in values
    ]
    tensors = [value for value in kept if isinstance(value, Value)]
    for tensor in tensors:
        if dtype_of(tensor) is not dtype:
            raise refuse_mixture(at, tensors)
    shape: Shape = ()
    for tensor in tensors:
        shape = broadcast_shape(at, shape, tensor_type(tensor).shape, verb)
    whole = TensorType(dtype, shape)
    return [
        broadcast_to(at, value, shape)
        if isinstance(value, Value)
        else at(array.Fill(literal(at, value, dtype, beside=first is not None), whole))  # pyright: ignore[reportArgumentType]
        for value in kept
    ]


def refuse_mixture(at: Trace, tensors: Sequence[Value]) -> Exception:
    """The error for tensors of several dtypes."""
    texts = list(dict.fromkeys(show(tensor) for tensor in tensors))
    wanted = _wider(tensors)
    return at.fail(
        "D0322",
        f"{' and '.join(texts[:2])} do not mix: tensors are never converted silently",
        help=f"convert one of them: {wanted.name}(...)",
    )


def mixture_help(values: Iterable[Datum]) -> str | None:
    """The way out where tensors of several float dtypes, or a list of several dtypes, do not fit."""
    found: dict[DType, Value] = {}
    for value in values:
        items = value.items if isinstance(value, Items) else (value,)
        tensors = [item for item in items if isinstance(item, Value)]
        if isinstance(value, Value):
            tensors = [each for each in tensors if dtype_of(each).is_float]
        found |= {dtype_of(each): each for each in tensors}
    if len(found) < 2:
        return None
    return f"convert one of them: {_wider(list(found.values())).name}(...)"


def _wider(tensors: Sequence[Value]) -> DType:
    """The dtype that the others are probably meant to be converted to."""
    return max((dtype_of(t) for t in tensors), key=lambda d: (d.is_float, d is not BOOL, d.bits))


def broadcast_shape(at: Trace, one: Shape, other: Shape, verb: str = "combine") -> Shape:
    """The broadcast shape of both: aligned at the right, a missing axis or a 1 is broadcast."""
    if one == other:
        return one
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    lead = len(longer) - len(shorter)
    sizes = list(longer[:lead])
    for a, b in zip(longer[lead:], shorter, strict=True):
        if a == b or b == 1:
            sizes.append(a)
        elif a == 1:
            sizes.append(b)
        else:
            raise _no_broadcast(at, one, other, (a, b), verb)
    return tuple(sizes)


def _broadcast_help(
    one: Shape, other: Shape, differing: tuple[Size, Size], verb: str
) -> str | None:
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    if verb == "multiply" and len(other) > 1 and one and one[-1] == other[-2]:
        return "the product of matrices is written @"
    if len(shorter) < len(longer) and longer[: len(shorter)] == shorter:
        places = ", ".join([":"] * len(shorter) + ["new"] * (len(longer) - len(shorter)))
        return f"axes are aligned at the right; a new last axis is made by x[{places}]"
    if all(isinstance(size, Dim) for size in differing):
        return "two sizes of different names never broadcast"
    return "only a missing axis or one of size 1 is broadcast"


def _no_broadcast(
    at: Trace, one: Shape, other: Shape, differing: tuple[Size, Size], verb: str
) -> Exception:
    texts = [f"[{', '.join(map(str, shape))}]" for shape in (one, other)]
    return at.fail(
        "D0301",
        f"cannot {verb} tensors of shapes {texts[0]} and {texts[1]}: "
        f"the sizes {differing[0]} and {differing[1]} differ",
        help=_broadcast_help(one, other, differing, verb),
    )


def broadcast_to(at: Trace, value: Value, shape: Shape) -> Value:
    """The tensor broadcast to a shape that it fits."""
    own = tensor_type(value).shape
    if own == shape:
        return value
    lead = len(shape) - len(own)
    kept = [k for k, size in enumerate(own) if size == shape[lead + k]]
    if len(kept) < len(own):
        value = at(array.Reshape(value, tuple([own[k] for k in kept])))
    if len(kept) == len(shape):
        return value
    return at(array.Broadcast(value, shape, tuple([lead + k for k in kept])))
