"""A function that the stages of a pipeline run together: each rank calls its parts of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError, visible
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import OF_RANK, STAGE, Op, Output, Staged, function_of
from dlc.runtime.calling.arguments import as_array
from dlc.runtime.calling.call_arguments import ArgumentReader
from dlc.runtime.calling.dim_binding import DimBinder, Shape
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.frames import CallFrame
from dlc.runtime.calling.profiled import checked_rounds
from dlc.runtime.calling.profiled_stages import StagedCalls, profile_stages
from dlc.runtime.calling.rank_work import RankWork
from dlc.runtime.calling.results import Out, packer
from dlc.runtime.calling.shared_entry import RankEntryPoint
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.calling.stage_call import Passed, StageCall, passed, plan_of
from dlc.runtime.calling.traces import TraceRecord
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.ranks.links import Channel, Links
from dlc.runtime.ranks.mesh import Mesh

Array = NDArray[np.generic]
Arguments: TypeAlias = tuple[Sequence[object], Mapping[str, object]]
"""The arguments of a call, by position and by name."""


class StagedEntryPoint(RankEntryPoint):
    """An entry point whose parts are on the stages of a pipeline: all ranks call it with equal inputs.

    A weight that another stage has is passed as None.
    """

    def __init__(
        self, staged: Staged, parts: Mapping[str, EntryPoint], links: Links, channel: Channel
    ) -> None:
        name = staged.interface.name
        self._entry = staged.interface._replace(name=function_of(name))
        self._staged, self._stage, self._channel = staged, channel.stage, channel
        self._rank = links.rank
        self.join(links.entering, takes_part=name.endswith(OF_RANK))
        self._parts = {
            part.entry: parts[part.entry] for part in staged.parts if part.stage == channel.stage
        }
        interfaces = {part.entry: parts[part.entry].entry for part in staged.parts}
        self._plan = plan_of(staged, interfaces, channel.stage)
        self._binder = DimBinder(self._entry)
        self._reader = ArgumentReader(self._entry, self._binder.free)
        part = next(iter(parts.values()))
        self._artifact, self._target = part.artifact, part.target
        self.seconds = 0.0
        """How long calls have taken."""
        self.waited = 0.0
        """How long of that this rank has waited for values of others."""
        self._calls = 0
        self._closed = False
        self.__doc__ = visible(staged.interface.doc) or None
        self.__name__ = self._entry.name

    def _ops(self) -> Sequence[Op]:
        return ()

    @property
    def work(self) -> RankWork:
        """How long calls took, and how much of that this rank waited for values of others."""
        return RankWork(self._calls, self.seconds, self.waited)

    # What callers ask.

    @property
    def homes(self) -> Mapping[str, int]:
        """The stages of weights and states, each of which its stage has alone."""
        return self._staged.homes

    @property
    def artifact(self) -> Artifact:
        """The artifact that it was loaded from."""
        return self._artifact

    @property
    def threads(self) -> int:
        """How many threads a call may use."""
        return next((part.threads for part in self._parts.values()), 1)

    @property
    def free_dims(self) -> tuple[str, ...]:
        """The named sizes that no input tells: a call gives them by name."""
        return tuple(self._binder.free)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Name, dtype and shape of each result."""
        return self._entry.outputs

    def __call__(
        self, /, *args: object, out: Out | None = None, arena: object = None, **named: object
    ) -> object:
        if out is not None or arena is not None:
            self._fail_for("out= and arena=")
        (result,) = self.calls([(args, named)])
        return result

    def calls(self, given: Sequence[Arguments]) -> list[object]:
        """What several calls return, in which a stage goes on to the next while later ones compute.

        It is as many calls ahead of those as there are stages: what it sends takes memory until then.
        """
        began = time.perf_counter()
        agreed = self._agreed(given)
        begun: list[StageCall] = []
        for values, dims in agreed:
            call = StageCall(self._plan, self._parts, self._channel, dict(values), dims)
            call.run()
            begun.append(call)
            if len(agreed) > 1:
                self._channel.settle(ahead=max(1, self._staged.stages * call.sent))
        results = [call.results() for call in begun]
        self._channel.settle()
        self.seconds += time.perf_counter() - began
        self.waited += sum(call.waited for call in begun)
        self._calls += len(begun)
        return [
            self._packed(found, values) for found, (values, _) in zip(results, agreed, strict=True)
        ]

    @property
    def at_once(self) -> int:
        """How many calls to make together: of p stages one is idle for (p - 1) / (9 p - 1) of the time."""
        return 8 * self._staged.stages

    def _packed(self, results: Mapping[str, Passed], values: Mapping[str, Passed]) -> object:
        """What a call returns: results, and in the place of what it updates that, as far as it is here."""
        found = iter(results.values())
        shown = [values.get(o.updates) if o.updates else next(found) for o in self.outputs]
        pack = packer(self.name, [output.name for output in self.outputs])
        return shown[0] if pack is None else pack(shown)

    def _agreed(self, given: Sequence[Arguments]) -> list[tuple[dict[str, Passed], dict[str, int]]]:
        """The arguments and the named sizes of each call, once all ranks begin the same ones.

        Raises CallError as a call does, and D0824 where another rank refuses its arguments or has other
        sizes.
        """
        with self.preparing():
            read = [self._read(*each) for each in given]
            self._entering.begin(", ".join([self._call_text(dims) for _, dims in read]))
        return read

    def _read(
        self, args: Sequence[object], named: Mapping[str, object]
    ) -> tuple[dict[str, Passed], dict[str, int]]:
        given, sizes = self._reader.sorted(args, named)
        values: dict[str, Passed] = {}
        shapes: list[tuple[int, ...]] = []
        for item, value in zip(self._entry.inputs, given, strict=True):
            if value is None and self._staged.homes.get(item.name, self._stage) != self._stage:
                shapes.append(tuple([int(size) for size in item.shape]))
                continue
            array = as_array(value, item, self.name)
            shapes.append(array.shape)
            values[item.name] = passed(array, item.dtype)
        return values, self._binder.bind(shapes, sizes)

    # What is not there.

    def trace(self, /, *args: object, **named: object) -> tuple[object, tuple[TraceRecord, ...]]:
        """Not there for stages."""
        self._fail_for("trace")

    def profile(self, /, *args: object, rounds: int | None = None, **named: object) -> Profile:
        """As of any entry point, with the times of this rank; all ranks call it together.

        `stages` of it says when this stage ran its parts, sent and waited, and the share of that on each.
        """
        with self.preparing():
            values, dims = self._read(args, named)
            least = None if rounds is None else checked_rounds(self.name, rounds)
        axes = Mesh({axis.name: axis.ranks for axis in self._artifact.manifest.mesh})
        calls = StagedCalls(
            self.name,
            self._artifact.manifest.model,
            self._target,
            self._plan,
            self._parts,
            self._channel,
            axes.along(self._rank, STAGE),
            values,
            dims,
            lambda: self._entering.begin(self._call_text(dims)),
            self._entering,
        )
        return profile_stages(calls, least)

    def prepared(
        self, shapes: Sequence[Shape], sizes: Mapping[str, int]
    ) -> tuple[CallFrame, Specialization]:
        """Not there for stages."""
        self._fail_for("calls of C")

    def _fail_for(self, what: str) -> NoReturn:
        raise CallError(
            f"{self.name}: there is no {what} of what the stages of a pipeline run together",
            code="D0811",
            help="compile the model without ranks, and ask that one",
        )

    # Its parts.

    def cancel(self) -> None:
        """Request that all running calls end, with a CallError (D0809)."""
        for part in self._parts.values():
            part.cancel()

    def close(self) -> None:
        """Refuse further calls."""
        for part in self._parts.values():
            part.close()

    def check_at_bounds(self) -> None:
        """Check the memory plans of its parts at the bounds of the dims."""
        for part in self._parts.values():
            part.check_at_bounds()

    def memory_at_bounds(self) -> list[int]:
        """Bytes of working memory of the largest part at the lower bounds of the dims, and at the upper."""
        found = [part.memory_at_bounds() for part in self._parts.values()]
        ends = {max(own[0] for own in found if own), max(own[-1] for own in found if own)}
        return sorted(ends)

    def working_memory(self, /, **sizes: int) -> int:
        """Bytes of working memory of the part of this stage that needs most, at these named sizes."""
        return max(
            (
                part.working_memory(**{dim.name: sizes[dim.name] for dim in part.dims})
                for part in self._parts.values()
            ),
            default=0,
        )


def staged_entries(
    staged: Sequence[Staged], entries: Mapping[str, EntryPoint], links: Links
) -> dict[str, EntryPoint]:
    """The entry points of a model as its callers see them: functions of stages in place of their parts."""
    channel = links.channel()
    parts = {part.entry for each in staged for part in each.parts}
    found: dict[str, EntryPoint] = {
        each.interface.name: StagedEntryPoint(each, entries, links, channel) for each in staged
    }
    return found | {name: entry for name, entry in entries.items() if name not in parts}
