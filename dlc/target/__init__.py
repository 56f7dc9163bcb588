"""Targets: one description and one table of measured costs for each machine that code is made for.

Passes and lowerings that decide by machine ask `cpu_of` or `gpu_of`, and nothing else: what a machine has,
how large its caches are and what work costs there is in these files alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.ir.passes import Options
from dlc.target.cpu import CpuTarget
from dlc.target.gpu import GpuTarget


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that a model is compiled for: a processor, a GPU, or a processor with a GPU.

    Where a GPU runs all of it, `cpu` describes one of its threads: kernels without a form of their own are
    the loops of a processor, a tile for each thread.

    >>> Target(CpuTarget.named("x86-64-v3")).name
    'cpu:x86-64-v3'
    >>> Target.all_on(GpuTarget.named("sm_80")).name
    'cuda:sm_80'
    """

    cpu: CpuTarget
    gpu: GpuTarget | None = None

    @classmethod
    def all_on(cls, gpu: GpuTarget) -> Target:
        """A GPU that runs all of a model, or what part of one is placed on it."""
        return cls(gpu.thread, gpu)

    @property
    def name(self) -> str:
        """As `--target` spells it."""
        if self.gpu is None:
            return f"cpu:{self.cpu.name}"
        gpu = f"cuda:{self.gpu.name}"
        return gpu if self.cpu == self.gpu.thread else f"cpu:{self.cpu.name}+{gpu}"


DEFAULT = Target(CpuTarget.named("x86-64-v3"), GpuTarget.named(""))
"""What passes are run for where no options say: tests and tools that ask for one pass."""


def target_of(options: Options) -> Target:
    """The target of a compilation."""
    target = options.target or DEFAULT
    assert isinstance(target, Target), target
    return target


def cpu_of(options: Options) -> CpuTarget:
    """The processor of a compilation; where a GPU runs all of it, one of its threads."""
    return target_of(options).cpu


def gpu_of(options: Options) -> GpuTarget:
    """The GPU of a compilation that has one."""
    gpu = target_of(options).gpu
    assert gpu is not None, "only what is on a GPU asks what it is like"
    return gpu
