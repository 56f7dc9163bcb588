"""Entry points of a heterogeneous model, whose transfers can be timed."""

from __future__ import annotations

from dlc.errors import CallError
from dlc.runtime.abi import Root
from dlc.runtime.calling.results import Out
from dlc.runtime.gpu.frame import CallTimes
from dlc.runtime.gpu.located import LaunchingEntryPoint
from dlc.runtime.hetero.frame import HeteroFrame
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.system.buffers import address


class HeteroEntryPoint(LaunchingEntryPoint):
    """A function of a heterogeneous model; see `EntryPoint`."""

    def profile(self, /, *args: object, rounds: int | None = None, **named: object) -> Profile:
        """Kernels on a processor and a GPU overlap, and have no common clock. Raises CallError (D0826)."""
        del args, rounds, named
        raise CallError(
            f"{self.name}: kernels on {self.artifact.manifest.targets[0].name} overlap, and have no common "
            "clock",
            code="D0826",
            help='profile it on one of them, target="cpu" or target="cuda"; `dlc bench` times transfers '
            "and computing",
        )

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
