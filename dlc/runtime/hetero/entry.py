"""Entry points of a heterogeneous model, whose transfers can be timed."""

from __future__ import annotations

from dlc.runtime.abi import Root
from dlc.runtime.calling.results import Out
from dlc.runtime.gpu.frame import CallTimes
from dlc.runtime.gpu.located import LaunchingEntryPoint
from dlc.runtime.hetero.frame import HeteroFrame
from dlc.runtime.system.buffers import address


class HeteroEntryPoint(LaunchingEntryPoint):
    """A function of a heterogeneous model; see `EntryPoint`."""

    def timed(self, /, *args: object, out: Out | None = None, **named: object) -> CallTimes:
        """Call it; milliseconds of uploads, kernels and downloads by the GPU's clock, which may overlap."""
        inputs, sizes = self._reader.read(args, named)
        inputs = self._results.own_inputs(inputs)
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
