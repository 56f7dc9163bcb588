"""Targets that tests compile for."""

from __future__ import annotations

from dlc.target import Target
from dlc.target.cpu import CpuTarget
from dlc.target.gpu import GpuTarget

ON_GPU = Target.all_on(GpuTarget.named("sm_80"))
AVX2 = Target(CpuTarget.named("x86-64-v3"))
AVX512 = Target(CpuTarget.named("x86-64-v4"))
