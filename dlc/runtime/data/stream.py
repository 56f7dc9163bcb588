"""A Python iterable of batches as a dataset, in the order of the iterable."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Protocol, cast, runtime_checkable

import numpy as np

from dlc.errors import ModelError
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.data.buckets import Buckets
from dlc.runtime.data.dataset import WHOLE, Batch, Dataset
from dlc.runtime.data.fields import Array, convert
from dlc.runtime.data.fitting import Fitting, check_dtype, missing, refusal
from dlc.runtime.data.given import stored
from dlc.runtime.data.prefetch import made_ahead

NAME = "the iterable"


@runtime_checkable
class Divided(Protocol):
    """An iterable of batches of which each of several ranks can have its part."""

    def part(self, number: int, parts: int, /) -> Iterable[object]:
        """The same batches with the rows that one of so many ranks computes."""
        ...


class Stream(Dataset):
    """A dataset whose batches are known only when they arrive.

    Each item is a batch of any size: a mapping from input to array, or the arrays in the order of the
    inputs. Sizes with different names may differ, also those of the first axes, of which the first input's
    counts the examples. An epoch is one pass over the iterable; an iterator, which allows one pass, has one
    epoch. Where several ranks divide the batches, one that is `Divided` gives each rank its rows alone.
    """

    def __init__(self, source: Iterable[object], fitting: Fitting) -> None:
        self.name, self.count = NAME, None
        self.classes, self.test = {}, None
        self._source = source
        self._fitting = fitting
        self._used_up = False

    def steps(self, batch: int, multiple: int = 1) -> int | None:
        """The length of the iterable, if it has one."""
        if isinstance(self._source, Buckets):
            return self._source.steps(multiple)
        return len(self._source) if isinstance(self._source, Sized) else None

    def example_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `Dataset.example_shapes`."""
        return {}

    def buffers(self, batch: int, sets: int) -> list[Batch]:
        """See `Dataset.buffers`; empty, since the sizes are known only from the batches."""
        return []

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
        """See `Dataset.batches`; `batch` has no effect, `start` skips batches.

        `epoch` and `seed` decide about the order of `Buckets`, `multiple` about the rests of these; they
        have no effect on other iterables.
        Batches are not made ahead by default, since the user's iterator may not support another thread.
        Raises ModelError for a batch that does not fit, and D0547 for an exhausted iterator.
        """
        if not isinstance(self._source, Divided):
            part = WHOLE
        made = self._made(self._pass(epoch, seed, multiple, part), start, out, multiple, part)
        ahead = min(ahead or 0, len(out) - 1) if out else ahead
        return made_ahead(made, ahead) if ahead else made

    def _made(
        self,
        items: Iterator[object],
        start: int,
        out: Sequence[Mapping[str, Array]],
        multiple: int,
        part: tuple[int, int],
    ) -> Generator[Batch]:
        position = 0
        for number, item in enumerate(items):
            arrays, own = self._checked(item, number)
            count = own * part[1]
            position += count
            if position <= start:
                continue
            if position - count < start:
                raise refusal(
                    NAME,
                    "D0547",
                    f"batch {number} has the examples {position - count} to {position - 1}, "
                    f"but training goes on from example {start}",
                    "give the batches that it was given before",
                )
            parts = part[1]
            made = (
                _part(out[number % len(out)], count, number) if out else self._empty(arrays, parts)
            )
            for name, (array, have) in arrays.items():
                into = made[name]
                if parts > 1 and array.ndim:
                    into = _rows(into, part, multiple)
                    array = array.reshape(into.shape)
                convert(array, DTYPES[have], self._fitting.dtype(name), into)
            yield made

    def _pass(
        self, epoch: int, seed: int, multiple: int, part: tuple[int, int]
    ) -> Iterator[object]:
        if isinstance(self._source, Buckets):
            return self._source.batches(epoch, seed, multiple)
        if part != WHOLE and isinstance(self._source, Divided):
            return iter(self._source.part(*part))
        if self._used_up:
            raise refusal(
                NAME,
                "D0547",
                "it is an iterator, which gives its batches only once, and a second epoch began",
                "give something that can be begun again, such as a list of batches",
            )
        found = iter(self._source)
        self._used_up = found is self._source
        return found

    def _checked(self, item: object, number: int) -> tuple[dict[str, tuple[Array, str]], int]:
        """The arrays of a batch with their dtypes, and the number of its examples."""
        name = f"{NAME}: batch {number}"
        given = self._by_name(item, name)
        arrays: dict[str, tuple[Array, str]] = {}
        for wanted in self._fitting.wanted:
            if wanted.name not in given:
                raise missing(name, wanted, wanted.name, given)
            array, have = stored(given[wanted.name], wanted, name)
            check_dtype(name, wanted.name, array, have, DTYPES[wanted.dtype])
            arrays[wanted.name] = array, have.name
        shapes = {label: array.shape for label, (array, _) in arrays.items()}
        self._fitting.check_batch(name, shapes)
        return arrays, next(iter(shapes.values()))[0]

    def _by_name(self, item: object, name: str) -> Mapping[str, object]:
        wanted = [input.name for input in self._fitting.wanted]
        if isinstance(item, Mapping):
            return cast("Mapping[str, object]", item)
        if isinstance(item, tuple | list):
            values = cast("Sequence[object]", item)
            if len(values) == len(wanted):
                return dict(zip(wanted, values, strict=True))
            found = f"has {len(values)} arrays, where {len(wanted)} are expected"
        else:
            found = f"is a {type(item).__name__}"
        raise refusal(name, "D0547", f"it {found}", f"give a mapping with {', '.join(wanted)}")

    def _empty(self, arrays: Mapping[str, tuple[Array, str]], parts: int) -> Batch:
        """Arrays for the rows of all ranks, of which each writes its own."""
        shapes = {name: array.shape for name, (array, _) in arrays.items()}
        return {
            name: np.empty(
                (parts * shape[0], *shape[1:]) if shape else (), self._fitting.dtype(name).numpy
            )
            for name, shape in shapes.items()
        }


def _rows(array: Array, part: tuple[int, int], microbatches: int) -> Array:
    """What a rank writes of the rows of all: a view with an axis for microbatches, as in `rows_of_part`."""
    own, parts = part
    return array.reshape(microbatches, parts, -1, *array.shape[1:])[:, own]


def _part(buffers: Mapping[str, Array], count: int, number: int) -> Batch:
    room = min(len(buffer) for buffer in buffers.values())
    if count > room:
        raise ModelError(
            f"{NAME}: batch {number} has {count} examples, at most {room} are expected",
            code="D0547",
            help=f"write batch = {count} in the train block, or give smaller batches",
        )
    return {name: buffer[:count] for name, buffer in buffers.items()}
