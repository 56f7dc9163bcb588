"""Turning what a caller passes into arrays that compiled code can read: exact dtype, C-contiguous.

Arrays are never converted to another dtype; Python numbers and lists of them adapt to the input's dtype
where every number fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays import dlpack
from dlc.runtime.arrays.dtypes import BF16, DTYPES, DType, bf16_bits, bf16_values, dtype_of
from dlc.runtime.arrays.masked import UNMASK, has_masked
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Input
from dlc.runtime.artifact.spelling import describe
from dlc.runtime.system.device_names import CPU

Array = NDArray[np.generic]

_READY = 0x1 | 0x100
"""NumPy's flags C_CONTIGUOUS and ALIGNED."""


def as_array(value: object, item: Input, entry: str) -> Array:
    """The stored elements of an argument; a copy only where the memory's layout demands it.

    Raises CallError: D0802 for another dtype, D0805 for a value that is not an array.
    """
    dtype = DTYPES[item.dtype]
    array = _stored(value, item, dtype, entry)
    if array.flags.num & _READY != _READY:
        array = np.array(array, order="C", copy=True)
    return array


def as_changed_array(value: object, item: Input, entry: str) -> Array:
    """The memory of an argument that the call changes.

    Raises CallError: D0802 for another dtype, D0805 for a value that is not an array, D0820 for an array
    that cannot be changed where it is.
    """
    if not hasattr(value, "__dlpack__") or isinstance(value, np.generic):
        kind = type(value).__name__  # pyright: ignore[reportUnknownArgumentType]
        made = f"np.array({item.name}, {_numpy_dtype(item)})"
        raise not_changeable(entry, item, f"is a {kind}", f"{item.name} = {made}")
    if isinstance(value, Tensor) and value.device != CPU:  # what was read would be a copy
        here = f'{item.name} = {item.name}.to("cpu")'
        raise not_changeable(entry, item, f"lies on {value.device}", here)
    array = _stored(value, item, DTYPES[item.dtype], entry)
    check_changeable(array, item, entry)
    return array


def check_changeable(array: Array, item: Input, entry: str) -> None:
    """Raises CallError (D0820) for an array that a call cannot change where it is."""
    flags = array.flags
    if not flags.writeable:
        raise not_changeable(entry, item, "is read-only")
    if not flags.c_contiguous:
        raise not_changeable(entry, item, "is not C-contiguous")
    if not flags.aligned:
        raise not_changeable(entry, item, "is not aligned")


def not_changeable(entry: str, item: Input, why: str, array: str = "") -> CallError:
    """The error for an argument that the call would have to change; `array` makes one that it can."""
    array = array or f"{item.name} = {item.name}.copy()"
    own = "" if entry == "session" else ", or call it in a session, which has arrays of its own"
    return CallError(
        f"{entry}: {item.name} {why}, and the call changes it in place",
        code="D0820",
        help=f"pass an array that can be written, {array}{own}",
    )


def _numpy_dtype(item: Input) -> str:
    return f"np.{DTYPES[item.dtype].numpy.name}"


def _stored(value: object, item: Input, dtype: DType, entry: str) -> Array:
    if isinstance(value, Tensor):
        return _exact(value.bits, DTYPES[value.dtype], item, dtype, entry, ".astype({name!r})")
    if isinstance(value, np.ndarray | np.generic):
        if has_masked(cast(object, value)):
            raise CallError(
                f"{entry}: {item.name} is a masked array, and what is masked has no number",
                code="D0805",
                help=f"put numbers there: {item.name}{UNMASK}",
            )
        array = np.asarray(cast("Array", value))
        return _exact(array, dtype_of(array), item, dtype, entry, _numpy_cast(dtype))
    if isinstance(value, bytes | bytearray) and item.dtype == "u8":
        return np.frombuffer(value, np.uint8)
    if isinstance(value, bool | int | float | list | tuple):
        return _adapted(cast(object, value), item, dtype, entry)
    if hasattr(value, "__dlpack__"):
        bits, found = dlpack.imported(cast("dlpack.Exporter", value))
        return _exact(bits, found, item, dtype, entry, ", cast to {name}")
    if hasattr(value, "__array__"):
        array = _made(value, item, entry)
        return _exact(array, dtype_of(array), item, dtype, entry, _numpy_cast(dtype))
    raise CallError(
        f"{entry}: {item.name} is a {type(value).__name__}, which is not an array",
        code="D0805",
        help=f"pass an array of {describe(item)}",
    )


def _made(value: object, item: Input, entry: str) -> Array:
    """The array that an object makes of itself."""
    try:
        return np.asarray(value)
    except Exception as error:  # whatever another library raises
        raise CallError(
            f"{entry}: {item.name} is a {type(value).__name__}, which makes no array: {error}",
            code="D0805",
            help=f"pass an array of {describe(item)}",
        ) from error


def _exact(
    array: Array, found: DType | None, item: Input, dtype: DType, entry: str, way_out: str
) -> Array:
    if found is not dtype:
        have = str(found or array.dtype) + (f"{list(array.shape)}" if array.ndim else "")
        # What has no numbers, such as an array of objects, cannot be cast.
        casts = found is not None or array.dtype.kind in "fiub"
        raise CallError(
            f"{entry}: {item.name} is {have}, where {describe(item)} is expected",
            code="D0802",
            help=f"write {item.name}{way_out.format(name=dtype.name)}"
            if casts
            else f"pass an array of {describe(item)}",
        )
    return array.view(np.uint16) if dtype is BF16 else array


@cache
def _numpy_cast(dtype: DType) -> str:
    if dtype is BF16:
        return " as dlc.Tensor(..., 'bf16')"
    return f".astype(np.{dtype.numpy.name.removesuffix('_')})"


def _adapted(value: object, item: Input, dtype: DType, entry: str) -> Array:
    """Python numbers in the input's dtype, or an array of the arrays in a list, of their dtype."""

    def refuse(why: str) -> CallError:
        return CallError(
            f"{entry}: {item.name} {why}, where {describe(item)} is expected", code="D0805"
        )

    try:
        natural = np.asarray(value)  # it refuses a list that holds itself
        kinds = set(map(type, _leaves(value)))
    except (ValueError, OverflowError, RecursionError):
        raise refuse(
            "is a list whose rows differ in length or depth, or whose numbers are huge"
        ) from None
    if not kinds <= {bool, int, float}:
        if any(has_masked(leaf) for leaf in _leaves(value)):
            raise refuse("holds something that is masked, which has no number")
        if natural.dtype.kind not in "fiub" or kinds & {bool, int, float}:
            raise refuse("holds something that is not a number, or numbers beside arrays")
        return _exact(natural, dtype_of(natural), item, dtype, entry, _numpy_cast(dtype))
    if bool in kinds and (dtype.kind != "b" or len(kinds) > 1):
        raise refuse("holds True or False")
    if dtype.kind in "iu" and float in kinds:
        raise refuse("holds numbers with a fraction")
    if dtype.kind == "b" and kinds - {bool}:
        raise refuse("holds numbers")
    return _converted(natural, dtype, refuse)


def _converted(natural: Array, dtype: DType, refuse: Callable[[str], CallError]) -> Array:
    if dtype.kind in "iu" and natural.size:
        limits = np.iinfo(cast("np.dtype[np.integer]", dtype.numpy))
        low, high = int(natural.min()), int(natural.max())
        if natural.dtype.kind not in "iub" or low < limits.min or high > limits.max:
            raise refuse(f"holds {low if low < limits.min else high}")
    if natural.dtype.kind not in "fiub":
        raise refuse("holds numbers that are huge")
    try:
        with np.errstate(over="raise"):
            return _narrowed(natural, dtype)
    except FloatingPointError:
        raise refuse(f"holds {_greatest(natural)}") from None


def _narrowed(natural: Array, dtype: DType) -> Array:
    """Raises FloatingPointError where a number becomes infinite."""
    if dtype is not BF16:
        return natural.astype(dtype.numpy)
    bits = bf16_bits(natural)
    if not np.array_equal(np.isinf(bf16_values(bits)), np.isinf(natural)):
        raise FloatingPointError
    return bits


def _greatest(natural: Array) -> object:
    """The finite number that is furthest from 0."""
    finite = natural[np.isfinite(natural)]
    return finite[np.argmax(np.abs(finite))].item()


def _leaves(value: object) -> Iterator[object]:
    """Everything in nested lists and tuples that is neither."""
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, list | tuple):
            rest.extend(cast("list[object]", item))
        else:
            yield item
