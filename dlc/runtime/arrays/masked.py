"""Masked arrays of NumPy (`np.ma`): dlc refuses them, since masked elements have no value."""

from __future__ import annotations

from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNMASK", "has_masked"]

UNMASK: Final = ".filled(0)"
"""What makes an array with a number everywhere of one with a mask."""


def has_masked(value: object) -> bool:
    """Whether a value is an array some of whose elements are masked.

    >>> has_masked(np.ma.array([1, 2], mask=[False, True])), has_masked(np.ma.array([1, 2]))
    (True, False)
    """
    if type(value) is np.ndarray or not isinstance(value, np.ndarray):
        return False
    mask: object = getattr(cast(object, value), "mask", None)  # a subclass of arrays that has none
    if not isinstance(mask, np.ndarray | np.bool_):
        return False
    found = cast("NDArray[np.generic]", mask)  # of a dtype with fields for an array of such a dtype
    return found.dtype == np.bool_ and bool(found.any())
