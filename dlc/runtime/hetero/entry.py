"""Entry points of a heterogeneous model, whose transfers can be timed."""

from __future__ import annotations

from collections.abc import Callable

from dlc.runtime.abi import Root
from dlc.runtime.calling.frames import CallFrame
from dlc.runtime.calling.profiled import check_traced
from dlc.runtime.calling.results import Out
from dlc.runtime.calling.shared_entry import RankEntryPoint, SharedEntryPoint
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.gpu.frame import CallTimes
from dlc.runtime.gpu.located import LaunchingEntryPoint
from dlc.runtime.hetero import profiled
from dlc.runtime.hetero.frame import HeteroFrame
from dlc.runtime.hetero.recorder import Pieces
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.system.buffers import address

FEW_RECORDS = 1024
"""Room for records of a segment at first; a call with more is made again with more room."""


class HeteroEntryPoint(LaunchingEntryPoint):
    """A function of a heterogeneous model; see `EntryPoint`."""

    def _profiled(
        self,
        frame: CallFrame,
        specialization: Specialization,
        call: Callable[[], object],
        rounds: int | None,
    ) -> Profile:
        assert isinstance(frame, HeteroFrame)
        capacity = FEW_RECORDS

        def pieces(alone: bool) -> Pieces:
            nonlocal capacity
            while True:
                with self._located():
                    status, found = frame.run_profiled(specialization.sized, capacity, alone=alone)
                if status:
                    raise self.failure(frame.status_words())
                if found.most_records <= capacity:
                    return found
                capacity = check_traced(self.name, 2 * found.most_records)

        return profiled.profile(self.subject(specialization), call, pieces, rounds)

    def timed(self, /, *args: object, out: Out | None = None, **named: object) -> CallTimes:
        """Call it; milliseconds of uploads, kernels and downloads by the GPU's clock, which may overlap."""
        inputs, sizes = self._reader.read(args, named)
        inputs = self._overwritten.own(inputs)
        specialization = self._bound([array.shape for array in inputs], sizes)
        if out is None:
            outputs = self._results.allocate(specialization.outputs, inputs)
        else:
            outputs, _ = self._results.taken(out, specialization.outputs, inputs)
        frame = self._take_frame()
        try:
            assert isinstance(frame, HeteroFrame)
            for index, array in enumerate((*inputs, *outputs)):
                frame.roots[Root.INPUTS + index] = address(array)
            with self._located():
                status, times = frame.run_timed(specialization.sized)
            if status:
                raise self.failure(frame.status_words())
        finally:
            self._give_back(frame)
        return times


class HeteroRankEntryPoint(RankEntryPoint, HeteroEntryPoint):
    """An entry point of a rank with a GPU beside its processor, which ranks call together."""


class HeteroSharedEntryPoint(SharedEntryPoint, HeteroRankEntryPoint):
    """An entry point whose batch such ranks divide."""
