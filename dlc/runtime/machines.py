"""What a model runs on: this machine's processor, a GPU, or both."""

from __future__ import annotations

from typing import TypeAlias

from dlc.runtime.buffers import Bytes
from dlc.runtime.cuda.frame import GpuFrame
from dlc.runtime.cuda.gpu import Gpu
from dlc.runtime.frames import Frame
from dlc.runtime.mixed.frame import MixedFrame
from dlc.runtime.mixed.machine import Mixed
from dlc.runtime.native import Native

Machine: TypeAlias = Native | Gpu | Mixed
CallFrame: TypeAlias = Frame | GpuFrame | MixedFrame


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
    if isinstance(machine, Mixed):
        return MixedFrame(machine, program, threads, fixed, inputs + outputs)
    return Frame(machine, program, threads, fixed, inputs + outputs)
