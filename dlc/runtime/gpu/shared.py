"""Entry points of ranks with a GPU each: they begin a call together, as those on processors do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.errors import CallError
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Entry
from dlc.runtime.calling.runner import Runner
from dlc.runtime.calling.shared_entry import RankEntryPoint, SharedEntryPoint
from dlc.runtime.calling.sized_program import CompiledProgram
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.calling.started import Binding
from dlc.runtime.gpu.entry import GpuEntryPoint, Placed
from dlc.runtime.gpu.frame import CallTimes, GpuFrame
from dlc.runtime.gpu.in_stream import StreamCalls
from dlc.runtime.gpu.kernel_timer import KernelTimer


class GpuRankEntryPoint(RankEntryPoint, GpuEntryPoint):
    """An entry point of a rank with a GPU. No call is taken for one like it that was begun before.

    A kernel that fails leaves no rank waiting, as later ones run all the same; the others are told then.
    """

    def __init__(self, entry: Entry, program: CompiledProgram, runner: Runner | None) -> None:
        super().__init__(entry, program, runner)
        self._repeats = False

    def bind(self, bound: Mapping[int, Tensor]) -> Binding | None:
        return None

    def in_stream(self, stream: object) -> StreamCalls:
        """Raises CallError (D0818): ranks agree on the host to begin a call."""
        raise self._refuse("ranks agree to begin a call, and no stream waits for that", "D0818")

    def _launch(
        self,
        frame: GpuFrame,
        inputs: Sequence[Placed],
        outputs: Sequence[Placed],
        specialization: Specialization,
        *,
        launches: int = 0,
    ) -> CallTimes:
        self._begin(specialization)
        try:
            times = super()._launch(frame, inputs, outputs, specialization, launches=launches)
        except CallError as error:
            self._entering.refuse(error)
            raise
        self._entering.begin(f"the end of {self.name}")
        return times

    def _kernel_times(
        self, inputs: Sequence[Placed], outputs: Sequence[Placed], specialization: Specialization
    ) -> KernelTimer:
        self._begin(specialization)
        return super()._kernel_times(inputs, outputs, specialization)


class GpuSharedEntryPoint(SharedEntryPoint, GpuRankEntryPoint):
    """An entry point whose batch ranks with a GPU each divide."""
