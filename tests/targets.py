"""Targets that tests compile for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.target import Target, gpu
from dlc.target.cpu import CpuTarget
from dlc.target.gpu import GPUS, GpuTarget, Occupancy

ON_GPU = Target.all_on(GpuTarget.named("sm_80"))
AVX2 = Target(CpuTarget.named("x86-64-v3"))
AVX512 = Target(CpuTarget.named("x86-64-v4"))


def occupy(monkeypatch: pytest.MonkeyPatch, occupancy: Occupancy) -> None:
    """Let what is compiled for sm_80 and sm_90a after this believe that so much keeps it busy."""
    changed = {name: replace(GPUS[name], occupancy=occupancy) for name in ("sm_80", "sm_90a")}
    monkeypatch.setattr(gpu, "GPUS", {**GPUS, **changed})
