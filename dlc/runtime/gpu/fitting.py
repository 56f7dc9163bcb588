"""Arguments that fit a call on a GPU as they are: what tells such calls apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.arrays.dtypes import DType
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.cuda.array import ALIGNED, DeviceArray
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.system.buffers import address

Array = NDArray[np.generic]
Key: TypeAlias = "tuple[tuple[int, ...] | int | None, ...]"
"""The shape of each argument, and after it its address on the device, None for one of the host."""
FITS = 0x1 | 0x100
"""NumPy's flags C_CONTIGUOUS and ALIGNED."""
_ndarray = np.ndarray  # every call looks it up for each argument


class Parameter(NamedTuple):
    """An input of an entry point by its number, with what an argument has to be."""

    number: int
    kind: DType
    dtype: np.dtype[np.generic] | None
    """NumPy's dtype of arrays that need no conversion; None if NumPy lacks it."""


def key_of(
    values: Sequence[object],
    parameters: Sequence[Parameter],
    driver: Driver | None,
    hosts: list[int],
) -> Key | None:
    """The key of arguments that fit as they are, on the host or on this GPU; None where they do not.

    Addresses of arrays of the host go to `hosts`, by the number of the input.
    """
    if len(values) != len(parameters):
        return None
    key: Key = ()
    for place, value in enumerate(values):  # `zip` with `strict` takes twice as long
        parameter, kind = parameters[place], type(value)
        if kind is _ndarray:
            here: Array = value  # pyright: ignore[reportAssignmentType] - its type was looked at
            if here.dtype is not parameter.dtype or here.flags.num & FITS != FITS:
                return None
            hosts[parameter.number] = address(here)
            key += here.shape, None
        elif kind is Tensor:
            tensor: Tensor = value  # pyright: ignore[reportAssignmentType] - likewise
            there = tensor.memory
            if tensor.kind is not parameter.kind or not isinstance(there, DeviceArray):
                return None
            if there.address % ALIGNED or there.driver is not driver:
                return None
            key += there.shape, there.address
        else:
            return None
    return key


def shapes_of(key: Key) -> tuple[tuple[int, ...], ...]:
    """The shapes in a key."""
    return cast("tuple[tuple[int, ...], ...]", key[::2])
