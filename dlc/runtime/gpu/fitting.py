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
    key: list[tuple[int, ...] | int | None] = []
    for value, (number, kind, dtype) in zip(values, parameters, strict=True):
        if type(value) is Tensor:
            there = value.memory
            if value.kind is not kind or not isinstance(there, DeviceArray):
                return None
            if there.address % ALIGNED or there.driver is not driver:
                return None
            key += there.shape, there.address
        elif type(value) is np.ndarray:
            here = cast(Array, value)
            if here.dtype is not dtype or here.flags.num & FITS != FITS:
                return None
            hosts[number] = address(here)
            key += here.shape, None
        else:
            return None
    return tuple(key)


def shapes_of(key: Key) -> tuple[tuple[int, ...], ...]:
    """The shapes in a key."""
    return cast("tuple[tuple[int, ...], ...]", key[::2])
