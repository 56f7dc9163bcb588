"""Examples of different lengths in batches of few sizes: each is padded to the least size that holds it.

A compiled step takes any size within the bounds of its sizes, but a batch has one size for all of its
examples. Buckets keep the padding small: a batch has examples of one bucket only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from math import isinf
from operator import index
from typing import SupportsFloat, TypeAlias, cast
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlc.errors import ModelError
from dlc.errors.boundary import without_frames
from dlc.runtime.arrays.masked import UNMASK, has_masked
from dlc.runtime.data.order import epoch_purpose, order

Array: TypeAlias = NDArray[np.generic]
Example: TypeAlias = Mapping[str, ArrayLike]

_NAME = "dlc.buckets"


class Buckets:
    """Batches of padded examples, a different order for each epoch. `dlc.buckets` makes it.

    One pass gives the batches of an epoch; `len` is their number, the same in every epoch. `Trainer.fit`
    goes through `batches(epoch, seed, multiple)`, so a training that is resumed goes on with the same
    batches.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        *,
        sizes: Sequence[int],
        batch: int | Sequence[int],
        pad: Mapping[str, float],
        mask: str | None,
        lengths: str | None,
        shuffle: bool,
    ) -> None:
        self._sizes = _whole_numbers("sizes", sizes, "[32, 64, 128]")
        each = [batch] * len(self._sizes) if np.ndim(batch) == 0 else batch
        self._batch = _whole_numbers("batch", each, "32 or [64, 32, 16]")
        self._pad, self._mask, self._lengths = dict(pad), mask, lengths
        self._shuffle = shuffle
        self._check_settings()
        self._examples = [_arrays(example, number) for number, example in enumerate(examples)]
        if not self._examples:
            raise _refused("there are no examples", "give at least one")
        self._own = [self._length(number) for number in range(len(self._examples))]
        self._check_arrays()
        self._bucket = [bisect_left(self._sizes, length) for length in self._own]

    def _check_settings(self) -> None:
        sizes = list(self._sizes)
        if not sizes or sorted(set(sizes)) != sizes or sizes[0] < 1:
            raise _refused(
                f"sizes are {sizes}",
                "sizes are whole numbers from 1 on, each larger than the one before: [32, 64, 128]",
            )
        if min(self._batch, default=1) < 1:
            raise _refused(
                f"batch is {min(self._batch)}",
                "a batch has a whole number of examples from 1 on: batch=32",
            )
        if len(self._batch) != len(self._sizes):
            raise _refused(
                f"there are {len(self._sizes)} sizes, and batches for {len(self._batch)}",
                "give one batch for all sizes, or one for each",
            )
        if not self._pad:
            raise _refused("it pads nothing", 'name what has the length: pad={"ids": 0}')

    def _check_arrays(self) -> None:
        """All examples have the same arrays, of dtypes that hold what pads them; other names are free."""
        first = self._examples[0]
        for number, example in enumerate(self._examples):
            for name in (*first, *example):
                if name not in first or name not in example:
                    without = number if name in first else 0
                    raise _refused(
                        f"example {without} has no {name}", "give every example the same arrays"
                    )
                have, want = example[name].dtype, first[name].dtype
                if have != want:
                    raise _refused(
                        f"{name} of example {number} is {have}, of example 0 {want}",
                        f"give all examples one dtype: np.asarray({name}, np.{want})",
                    )
        for name, value in self._pad.items():
            _check_padding(name, value, first[name].dtype)
        for kind, name in (("mask", self._mask), ("lengths", self._lengths)):
            if name is not None and name in first:
                raise _refused(
                    f"{kind} is called {name}, as an array of the examples is", "call it otherwise"
                )
        if self._mask is not None and self._mask == self._lengths:
            raise _refused(f"mask and lengths are both called {self._mask}", "call one otherwise")

    def _length(self, number: int) -> int:
        """The length of an example, which all of its padded arrays have."""
        example = self._examples[number]
        missing = [name for name in self._pad if name not in example]
        if missing:
            known = ", ".join(example)
            raise _refused(f"example {number} has no {missing[0]}", f"it has {known}")
        lengths = {name: _first_size(example[name], name, number) for name in self._pad}
        length = next(iter(lengths.values()))
        other = next((name for name, own in lengths.items() if own != length), None)
        if other is not None:
            first = next(iter(lengths))
            raise _refused(
                f"example {number} has {length} of {first} and {lengths[other]} of {other}",
                "what is padded has one length; leave the other out of pad",
            )
        if length > self._sizes[-1]:
            raise _refused(
                f"example {number} has the length {length}, the largest size is {self._sizes[-1]}",
                "add a size, or cut the example",
            )
        return length

    def __len__(self) -> int:
        return self.steps(1)

    def steps(self, multiple: int) -> int:
        """The number of batches of an epoch whose rests are cut to multiples of a number."""
        counts = np.bincount(self._bucket, minlength=len(self._sizes)).tolist()
        return sum(
            count // batch + (count % batch >= multiple)
            for count, batch in zip(counts, self._batch, strict=True)
        )

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return self.batches(0, 0)

    def batches(self, epoch: int, seed: int, multiple: int = 1) -> Iterator[dict[str, Array]]:
        """The batches of an epoch: a bucket gives one whenever it is full, and its rest at the end.

        A rest is cut to a multiple of `multiple`, for the microbatches of a step.
        """
        count = len(self._examples)
        rows = order(count, seed, epoch_purpose(epoch)) if self._shuffle else np.arange(count)
        waiting: list[list[int]] = [[] for _ in self._sizes]
        for number in rows.tolist():
            bucket = self._bucket[number]
            waiting[bucket].append(number)
            if len(waiting[bucket]) == self._batch[bucket]:
                yield self._made(waiting[bucket], self._sizes[bucket])
                waiting[bucket] = []
        for rest, size in zip(waiting, self._sizes, strict=True):
            if kept := rest[: len(rest) - len(rest) % multiple]:
                yield self._made(kept, size)

    def _made(self, numbers: Sequence[int], size: int) -> dict[str, Array]:
        """The batch of these examples, padded to a size."""
        own = np.array([self._own[number] for number in numbers], np.int32)
        batch = {
            name: self._padded(name, numbers, size)
            if name in self._pad
            else self._stacked(name, numbers)
            for name in self._examples[numbers[0]]
        }
        if self._lengths is not None:
            batch[self._lengths] = own
        if self._mask is not None:
            batch[self._mask] = np.arange(size) < own[:, None]
        return batch

    def _padded(self, name: str, numbers: Sequence[int], size: int) -> Array:
        first = self._array(name, numbers[0])
        made = np.full((len(numbers), size, *first.shape[1:]), self._pad[name], first.dtype)
        for row, number in zip(made, numbers, strict=True):
            array = self._array(name, number)
            if array.shape[1:] != first.shape[1:]:
                raise self._different(name, number, numbers[0])
            row[: len(array)] = array
        return made

    def _stacked(self, name: str, numbers: Sequence[int]) -> Array:
        arrays = [self._array(name, number) for number in numbers]
        for number, array in zip(numbers, arrays, strict=True):
            if array.shape != arrays[0].shape:
                raise self._different(name, number, numbers[0])
        return np.stack(arrays)

    def _array(self, name: str, number: int) -> Array:
        return self._examples[number][name]

    def _different(self, name: str, number: int, other: int) -> ModelError:
        shapes = [list(self._array(name, each).shape) for each in (number, other)]
        return _refused(
            f"{name} of example {number} has the shape {shapes[0]}, of example {other} {shapes[1]}",
            f'only the first axis is padded, of what is named: pad={{"{name}": 0}}',
        )


@without_frames
def buckets(
    examples: Sequence[Example],
    *,
    sizes: Sequence[int],
    batch: int | Sequence[int] = 32,
    pad: Mapping[str, float],
    mask: str | None = None,
    lengths: str | None = None,
    shuffle: bool = True,
) -> Buckets:
    """Batches of examples of different lengths, for `Trainer.fit` and `Trainer.evaluate`.

    Each example has the same arrays by name, each of one dtype. Those in `pad` have its length as their
    first axis, and are padded with this number to the least of the `sizes` that is not shorter; of the
    others all have one shape. A batch
    has examples of one size: arrays of [batch, size, ..] for what is padded, [batch, ..] for the rest.
    `batch` is one number of examples, or one for each size. `mask` names a further array, bool
    [batch, size], true where an example has elements, `lengths` one of i32 [batch] with their numbers. With
    `shuffle` each epoch has an order of its own.

    Raises ModelError (D0547) for examples that do not fit each other or the sizes, and for padding that the
    dtype of an array does not hold.

    >>> texts = [{"ids": np.arange(n, dtype=np.int32)} for n in (3, 1, 2, 5)]
    >>> found = buckets(texts, sizes=[2, 8], batch=2, pad={"ids": -1}, mask="seen", shuffle=False)
    >>> [batch["ids"].tolist() for batch in found]
    [[[0, -1], [0, 1]], [[0, 1, 2, -1, -1, -1, -1, -1], [0, 1, 2, 3, 4, -1, -1, -1]]]
    """
    return Buckets(
        examples,
        sizes=sizes,
        batch=batch,
        pad=pad,
        mask=mask,
        lengths=lengths,
        shuffle=shuffle,
    )


def _arrays(example: Example, number: int) -> dict[str, Array]:
    if not isinstance(example, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _refused(
            f"example {number} is a {type(example).__name__}",
            'an example is a mapping from names to arrays: {"ids": ids}',
        )
    for name, value in example.items():
        if has_masked(value):
            raise _refused(
                f"{name} of example {number} is a masked array, and what is masked has no number",
                f"put numbers there: {name}{UNMASK}",
            )
    return {name: np.asarray(value) for name, value in example.items()}


def _whole_numbers(name: str, given: object, example: str) -> tuple[int, ...]:
    try:
        return tuple([index(number) for number in cast("Sequence[int]", given)])
    except TypeError:
        raise _refused(f"{name} is {given!r}", f"give whole numbers: {name}={example}") from None


def _check_padding(name: str, value: float, dtype: np.dtype[np.generic]) -> None:
    """Refuse a number that arrays of a dtype cannot be padded with: integers and bool hold it exactly."""
    if not isinstance(value, SupportsFloat):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise _refused(f"{name} is padded with {value!r}", f'give a number: pad={{"{name}": 0}}')
    with np.errstate(all="ignore"), catch_warnings():
        simplefilter("ignore")
        try:
            held = None if dtype.kind in "OSU" else float(np.asarray(value).astype(dtype))
        except (TypeError, ValueError):
            held = None
    exact = dtype.kind in "iub"
    if held is None or (held != value if exact else isinf(held) != isinf(value)):
        raise _refused(
            f"{name} is {dtype}, and padded with {value}, which {dtype} does not hold",
            f'pad with a number of this dtype: pad={{"{name}": 0}}',
        )


def _first_size(array: Array, name: str, number: int) -> int:
    if array.ndim == 0:
        raise _refused(f"{name} of example {number} is one number", "give it a first axis")
    return len(array)


def _refused(message: str, help: str) -> ModelError:
    return ModelError(f"{_NAME}: {message}", code="D0547", help=help)
