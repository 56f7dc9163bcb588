"""Calls that ranks make together, and those that they share.

Of a shared one each rank is given the whole inputs, computes a part, and has the whole results.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import OF_RANK, Input, Op
from dlc.runtime.artifact.spelling import python_name
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.frames import Words
from dlc.runtime.calling.rank_work import RankWork, Sampler
from dlc.runtime.calling.results import Out
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.calling.traces import TraceRecord
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.ranks.entering import Entering

Array = NDArray[np.generic]


class RankEntryPoint(EntryPoint):
    """An entry point that ranks call together: where one refuses its arguments, none begins."""

    _entering: Entering
    _takes_part = False
    """Whether a rank is given its part of a batch, and not the whole."""

    def join(self, entering: Entering, *, takes_part: bool = False) -> None:
        """Agree so with the other ranks from now on; with `takes_part` each is given a part of a batch."""
        self._entering, self._takes_part = entering, takes_part
        self._sampler = Sampler(self._ops())

    def _ops(self) -> Sequence[Op]:
        return self._program.program.ops

    @property
    def work(self) -> RankWork:
        """How long the calls that were looked at took, and how much of that in collectives."""
        return self._sampler.work

    def preparing(self) -> AbstractContextManager[None]:
        """For what makes the arguments of a call: other ranks that call it are told of an error."""
        return self._entering.preparing()

    def ended(self) -> None:
        """Raises CallError (D0824), on all ranks, where another one makes a further call."""
        self._entering.begin(f"{self.name} no more, as its data has ended")

    def __call__(
        self, /, *args: object, out: Out | None = None, arena: object = None, **named: object
    ) -> object:
        with self._entering.preparing():
            return super().__call__(*args, out=out, arena=arena, **named)

    def trace(self, /, *args: object, **named: object) -> tuple[object, tuple[TraceRecord, ...]]:
        """As of any entry point, with the times of this rank; all ranks call it together."""
        with self._entering.preparing():
            return super().trace(*args, **named)

    def profile(self, /, *args: object, rounds: int | None = None, **named: object) -> Profile:
        """As of any entry point, with the times of this rank; all ranks call it together."""
        with self._entering.preparing():
            return super().profile(*args, rounds=rounds, **named)

    def values(
        self, names: Sequence[str], /, *args: object, **named: object
    ) -> dict[str, NDArray[np.generic]]:
        """Raises CallError (D0811): ranks have parts of inner values."""
        raise CallError(
            f"{self.name}: inner values are those of one process, and ranks have parts of them",
            code="D0811",
            help="compile the model without ranks, and ask that one",
        )

    def _enter(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        specialization: Specialization,
        arena: int = 0,
        records: Words | None = None,
        *,
        alone: bool = False,
    ) -> int:
        checks = self._program.program.checks
        if checks >= 0:
            # A rank that found a wrong index in the call would leave the others in a collective.
            self._enter_up_to(checks, inputs, outputs, specialization, arena)
        self._begin(specialization)
        own = self._sampler.records() if records is None else None
        if own is None:
            return super()._enter(inputs, outputs, specialization, arena, records, alone=alone)
        began = time.perf_counter()
        count = super()._enter(inputs, outputs, specialization, arena, own)
        self._sampler.note(own, count, time.perf_counter() - began)
        return count

    def _begin(self, specialization: Specialization) -> None:
        self._entering.begin(self._call_text(specialization.dims))

    def _call_text(self, sizes: Mapping[str, int]) -> str:
        """What tells this call from another one, the same on all ranks."""
        told = [f"{dim.name}={sizes[dim.name]}" for dim in self.dims if dim.name in sizes]
        part = "a part of " if self._takes_part else ""
        return f"{part}{self.name}({', '.join(told)})"

    def _enough(self, own: bool) -> bool:
        return self._entering.all_of(own)


class SharedEntryPoint(RankEntryPoint):
    """An entry point whose batch is divided among ranks: they call it together with equal inputs."""

    _of_rank: EntryPoint | None = None

    def share(self, of_rank: EntryPoint, part: int, parts: int) -> None:
        """Let `of_rank` compute this rank's part of a batch of `parts` equal parts."""
        self._of_rank, self._own, self._parts_of_all = of_rank, part, parts
        batch = batch_of(self.inputs)
        self._divided = [bool(item.shape) and str(item.shape[0]) == batch for item in self.inputs]

    def __call__(
        self, /, *args: object, out: Out | None = None, arena: object = None, **named: object
    ) -> object:
        with self.preparing():
            parts = None if arena is not None else self._parts(args, named)
        if parts is None or self._of_rank is None:
            return super().__call__(*args, out=out, arena=arena, **named)
        return self._of_rank(*parts[0], out=out, **parts[1])

    def trace(self, /, *args: object, **named: object) -> tuple[object, tuple[TraceRecord, ...]]:
        """As of any entry point, of the part of this rank; all ranks call it together."""
        with self.preparing():
            parts = self._parts(args, named)
        if parts is None or self._of_rank is None:
            return super().trace(*args, **named)
        return self._of_rank.trace(*parts[0], **parts[1])

    def profile(self, /, *args: object, rounds: int | None = None, **named: object) -> Profile:
        """As of any entry point, of the part of this rank; all ranks call it together."""
        with self.preparing():
            parts = self._parts(args, named)
        if parts is None or self._of_rank is None:
            return super().profile(*args, rounds=rounds, **named)
        return self._of_rank.profile(*parts[0], rounds=rounds, **parts[1])

    def _parts(
        self, args: Sequence[object], named: Mapping[str, object]
    ) -> tuple[list[object], dict[str, object]] | None:
        """The arguments of this rank; None where the batch has no equal parts, or is not clear."""
        if self._of_rank is None:
            return None
        divided = dict(zip(map(python_name, self._names), self._divided, strict=True))
        positional = [
            self._part(value) if own else value
            for value, own in zip(args, self._divided, strict=False)
        ]
        keywords = {
            name: self._part(value) if divided.get(name) else value for name, value in named.items()
        }
        missing = len(args) + len(named) < len(self._divided)  # a default has all of the batch
        found = [*positional, *keywords.values()]
        if missing or len(args) > len(self._divided) or any(part is None for part in found):
            return None
        return positional, keywords

    @property
    def _names(self) -> list[str]:
        return [item.name for item in self.inputs]

    def _part(self, value: object) -> object:
        """This rank's rows of an array or a list; None where there are no equal parts."""
        if isinstance(value, Tensor):
            part = self._part(value.bits) if value.device == "cpu" else None
            return None if part is None else Tensor.from_bits(cast("Array", part), value.dtype)
        if not isinstance(value, np.ndarray | list) or np.ndim(cast("Array", value)) == 0:
            return None
        rows = cast("Array", value)
        size, rest = divmod(len(rows), self._parts_of_all)
        return None if rest or not size else rows[self._own * size : (self._own + 1) * size]


class EntryPointKinds(NamedTuple):
    """What entry points are on a kind of machine: of a process alone, of ranks, and shared by ranks."""

    alone: type[EntryPoint]
    of_rank: type[EntryPoint]
    shared: type[EntryPoint]


PROCESSORS = EntryPointKinds(EntryPoint, RankEntryPoint, SharedEntryPoint)


def batch_of(inputs: Sequence[Input]) -> str | None:
    """The name of the size that is divided: the first that an input of a shared entry point has."""
    sizes = [str(size) for item in inputs for size in item.shape]
    return next((size for size in sizes if size.isidentifier()), None)


def shared_entries(
    entries: Mapping[str, EntryPoint], part: int, parts: int
) -> dict[str, EntryPoint]:
    """The entry points as callers see them, without the programs of ranks, for `part` of `parts`."""
    for name, entry in entries.items():
        of_rank = entries.get(name + OF_RANK)
        if of_rank is not None and isinstance(entry, SharedEntryPoint):
            entry.share(of_rank, part, parts)
    return {
        name: entry
        for name, entry in entries.items()
        if not (name.endswith(OF_RANK) and name.removesuffix(OF_RANK) in entries)
    }
