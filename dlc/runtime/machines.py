"""What a model runs on: this machine's processor, or a GPU."""

from __future__ import annotations

from typing import TypeAlias

from dlc.runtime.buffers import Bytes
from dlc.runtime.cuda.frame import GpuFrame
from dlc.runtime.cuda.gpu import Gpu
from dlc.runtime.frames import Frame
from dlc.runtime.native import Native

Machine: TypeAlias = Native | Gpu
CallFrame: TypeAlias = Frame | GpuFrame


def new_frame(
    machine: Machine,
    program: Bytes,
    threads: int,
    fixed: tuple[int, int],
    inputs: int = 0,
    outputs: int = 0,
) -> CallFrame:
    """What one call in flight of a program needs; `fixed` are where WEIGHTS and SOURCES lie."""
    if isinstance(machine, Gpu):
        return GpuFrame(machine, program, fixed, inputs, inputs + outputs)
    return Frame(machine, program, threads, fixed, inputs + outputs)
