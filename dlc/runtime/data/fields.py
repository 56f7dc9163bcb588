"""Fields of data sources: the rows of one input of the loss, one for each example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.arrays.dtypes import BF16, DType, bf16_bits, bf16_values
from dlc.runtime.data.order import Rows

Array = NDArray[np.generic]
Numbers = NDArray[np.uint8]


class Field(Protocol):
    """The values of one input, of all examples."""

    @property
    def count(self) -> int:
        """How many examples there are."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        ...

    @property
    def ready(self) -> bool:
        """Whether a row is nothing but memory to be copied: then no thread need prepare it."""
        ...

    def read(self, rows: Rows, out: Array) -> None:
        """Write these examples into a contiguous array of the wanted dtype."""
        ...


@dataclass(frozen=True, slots=True)
class Table:
    """Examples of one source. `classes` names the classes behind a number, by input.

    The rows from `cut` on are the test's if the source itself has set them apart: then it has also
    heeded the limit.
    """

    fields: Mapping[str, Field]
    count: int
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    cut: int | None = None


class ArrayField:
    """Rows of an array, in memory or mapped from a file, which need not be aligned."""

    def __init__(self, stored: Array, have: DType, want: DType) -> None:
        self.count = len(stored)
        self.shape = tuple(stored.shape[1:])
        self._have, self._want = have, want
        self._stored = stored
        flat = bool(stored.flags.c_contiguous and stored.size)
        # Rows as bytes: NumPy would copy the whole of an array that is not aligned for each `take`.
        self._bytes = stored.reshape(self.count, -1).view(np.uint8) if flat else None
        self.ready = flat and have is want

    def read(self, rows: Rows, out: Array) -> None:
        if self._bytes is None:
            convert(self._stored[rows], self._have, self._want, out)
        elif self._have is self._want:
            _take(self._bytes, rows, out)
        else:
            found = np.empty((len(rows), *self.shape), self._have.numpy)
            _take(self._bytes, rows, found)
            convert(found, self._have, self._want, out)


def _take(source: Numbers, rows: Rows, out: Array) -> None:
    # mode="raise" would write into a buffer first; the rows are in range.
    np.take(source, rows, axis=0, out=out.reshape(len(rows), -1).view(np.uint8), mode="clip")


def convert(values: Array, have: DType, want: DType, out: Array) -> None:
    """Write stored elements of one dtype as stored elements of another that holds them exactly."""
    if have is want:
        out[...] = values
    elif want is BF16:
        out[...] = bf16_bits(values)
    elif have is BF16:
        out[...] = bf16_values(values.view(np.uint16))
    else:
        np.copyto(out, values, casting="unsafe")
