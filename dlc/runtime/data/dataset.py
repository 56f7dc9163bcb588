"""Datasets: examples that are read in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from math import prod
from typing import TypeAlias

from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.artifact.manifest import Input
from dlc.runtime.data.fields import Array, Table
from dlc.runtime.data.order import Rows, epoch_purpose, order
from dlc.runtime.data.prefetch import made_ahead
from dlc.runtime.system.buffers import aligned_array

Batch: TypeAlias = dict[str, Array]
"""A contiguous array for each input, of its dtype; bf16 as uint16 bits."""

_SMALL = 1 << 20
"""Bytes of a batch up to which a copy takes less time than waking another thread."""
_AHEAD = 2


WHOLE = (0, 1)
"""The part of a batch that a process alone reads."""


class Dataset(ABC):
    """Examples for training or for the test."""

    name: str
    """The source of the examples, for messages."""
    count: int | None
    """The number of examples in an epoch; None for a stream, which does not state it."""
    classes: Mapping[str, tuple[str, ...]]
    """The names of the classes of an input by their numbers, if the source has the classes as text."""
    test: Dataset | None
    """The examples that are reserved for the test."""

    @abstractmethod
    def steps(self, batch: int, multiple: int = 1) -> int | None:
        """The number of batches in an epoch, if it is known; `multiple` is that of `batches`."""

    @abstractmethod
    def example_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of one example by input; empty for a stream, whose shapes may differ."""

    @abstractmethod
    def buffers(self, batch: int, sets: int) -> list[Batch]:
        """Memory for `batches(out=...)`, aligned for compiled code; empty if sizes are unknown."""

    @abstractmethod
    def batches(
        self,
        epoch: int,
        batch: int,
        seed: int,
        start: int = 0,
        *,
        multiple: int = 1,
        out: Sequence[Mapping[str, Array]] = (),
        ahead: int | None = None,
        part: tuple[int, int] = WHOLE,
    ) -> Generator[Batch]:
        """The batches of an epoch from example `start` on; the last one may be short.

        The batches are a function of `seed` (any u64), `epoch` (from 0), `batch` and `start` alone. `out`
        has sets of arrays of at least `batch` rows, which are filled in turn: a batch is a view of a set,
        valid until the next batch is requested. Without `out` each batch has separate memory. Another
        thread prepares up to `ahead` batches in advance; None decides by the cost of a batch. With `out`
        it prepares at most one batch less than there are sets. A step with microbatches takes a `multiple`
        of their number: buckets cut their rests to it, other data leaves that to who asks.

        With the `part` (k, n) only rows are read of which the kth of n ranks computes its part, where the
        examples of a batch, a `multiple`, have equal ones: the others may have any numbers. Streams that
        cannot be divided read all.
        """


class Examples(Dataset):
    """A dataset with random access to its examples."""

    def __init__(
        self,
        name: str,
        wanted: Sequence[Input],
        table: Table,
        rows: Rows,
        *,
        shuffled: bool,
        test: Dataset | None = None,
    ) -> None:
        self.name, self.count = name, len(rows)
        self.classes, self.test = table.classes, test
        self._wanted = tuple(wanted)
        self._fields = table.fields
        self._rows = rows
        self._shuffled = shuffled

    def steps(self, batch: int, multiple: int = 1) -> int | None:
        """See `Dataset.steps`."""
        whole, rest = divmod(len(self._rows), batch)
        return whole + (rest >= multiple)

    def example_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `Dataset.example_shapes`."""
        return {item.name: self._fields[item.name].shape for item in self._wanted}

    def buffers(self, batch: int, sets: int) -> list[Batch]:
        """See `Dataset.buffers`."""
        return [self._memory(min(batch, len(self._rows))) for _ in range(sets)]

    def batches(
        self,
        epoch: int,
        batch: int,
        seed: int,
        start: int = 0,
        *,
        multiple: int = 1,
        out: Sequence[Mapping[str, Array]] = (),
        ahead: int | None = None,
        part: tuple[int, int] = WHOLE,
    ) -> Generator[Batch]:
        """See `Dataset.batches`."""
        assert batch > 0 and 0 <= start <= len(self._rows), (batch, start, self.count)
        made = self._made(epoch, batch, seed, start, out, multiple, part)
        ahead = self._default_ahead(batch) if ahead is None else ahead
        ahead = min(ahead, len(out) - 1) if out else ahead
        return made_ahead(made, ahead) if ahead else made

    def _made(
        self,
        epoch: int,
        batch: int,
        seed: int,
        start: int,
        out: Sequence[Mapping[str, Array]],
        multiple: int,
        part: tuple[int, int],
    ) -> Generator[Batch]:
        rows = self._rows
        if self._shuffled:
            rows = rows[order(len(rows), seed, epoch_purpose(epoch))]
        for number, first in enumerate(range(start, len(rows), batch)):
            chosen = rows[first : first + batch]
            made = self._memory(len(chosen)) if not out else _part(out[number % len(out)], chosen)
            for own in rows_of_part(len(chosen), part, multiple):
                for name, field in self._fields.items():
                    field.read(chosen[own], made[name][own])
            yield made

    def _memory(self, count: int) -> Batch:
        """Arrays for `count` examples."""
        made: Batch = {}
        for item in self._wanted:
            shape, dtype = (count, *self._fields[item.name].shape), DTYPES[item.dtype].numpy
            made[item.name] = aligned_array(shape, dtype, prod(shape) * dtype.itemsize)
        return made

    def _default_ahead(self, batch: int) -> int:
        fields = [(self._fields[item.name], DTYPES[item.dtype].bytes) for item in self._wanted]
        size = batch * sum(prod(field.shape) * width for field, width in fields)
        return 0 if size <= _SMALL and all(field.ready for field, _ in fields) else _AHEAD


def rows_of_part(count: int, part: tuple[int, int], microbatches: int = 1) -> list[slice]:
    """The rows of a batch of `count` examples that a rank reads: its part of each of the microbatches.

    What is left over behind these nobody takes. A batch without equal parts is read whole.

    >>> rows_of_part(8, (1, 4)), rows_of_part(6, (1, 4))
    ([slice(2, 4, None)], [slice(0, 6, None)])
    >>> rows_of_part(9, (1, 2), 2)
    [slice(2, 4, None), slice(6, 8, None)]
    """
    own, parts = part
    shared = count - count % microbatches
    size, rest = divmod(shared, parts * microbatches)
    if parts == 1 or rest or not shared:
        return [slice(0, count)]
    return [slice(first, first + size) for first in range(own * size, shared, parts * size)]


def _part(buffers: Mapping[str, Array], rows: Rows) -> Batch:
    """The first rows of each buffer."""
    return {name: buffer[: len(rows)] for name, buffer in buffers.items()}
