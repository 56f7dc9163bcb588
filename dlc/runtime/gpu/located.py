"""Entry points that launch kernels: a kernel that fails is reported with its line of the model."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.frames import Words
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.calling.status import located_error
from dlc.runtime.gpu.errors import KernelFailed

Array = NDArray[np.generic]


class LaunchingEntryPoint(EntryPoint):
    """A function of a model that runs on a GPU, at least in part; see `EntryPoint`."""

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
        with self._located():
            return super()._enter(inputs, outputs, specialization, arena, records, alone=alone)

    @contextmanager
    def _located(self) -> Generator[None]:
        """Report a kernel that fails meanwhile with its line of the model."""
        try:
            yield
        except KernelFailed as failed:
            raise self.at_line(failed) from failed

    def at_line(self, failed: KernelFailed) -> CallError:
        """The error of a kernel that has failed, with its line of the model."""
        op = self._program.program.ops[failed.op]
        return located_error(failed, self.name, op, self._needed_runner().texts)
