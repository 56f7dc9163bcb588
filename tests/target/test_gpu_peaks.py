"""What GPUs reach at best: the order of the rates, and that costs do not promise more."""

from __future__ import annotations

import pytest

from dlc.ir.types import BF16, F16, F32, F64
from dlc.target.gpu import GPUS, GpuTarget


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS.keys())
def test_matrix_instructions_are_quicker_for_narrower_numbers(gpu: GpuTarget) -> None:
    peak = gpu.peak
    assert peak.fma <= peak.matrices(F32) < peak.matrices(BF16) == peak.matrices(F16)
    assert peak.matrices(F64) == 0


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS.keys())
def test_the_costs_of_memory_are_between_half_of_the_roof_and_all_of_it(gpu: GpuTarget) -> None:
    bytes_in_a_nanosecond = 1000 / gpu.costs.memory_byte
    assert 0.5 * gpu.peak.memory < bytes_in_a_nanosecond < gpu.peak.memory
    assert gpu.peak.memory < gpu.peak.cache
