"""`python -m benchmarks roofline`: kernels by themselves move what their profile says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import roofline
from dlc.runtime.artifact.kernel_records import Roof
from dlc.target.cpu import HOST, CpuTarget

TEXT = """dlc 1
export fn f(x: f32[64, 96], y: f32[96, 128]) -> f32[64, 128] {
  return softmax(tanh(x @ y))
}
"""
CPU = CpuTarget.named(HOST)


def test_the_measured_roof_is_slower_for_memory_than_for_the_first_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roofline, "TURN_SECONDS", 4e-3)
    monkeypatch.setattr(roofline, "MEMORY_BYTES", 1 << 26)
    roof = roofline.measured_roof(CPU)
    cycles = roof.operation * CPU.vector_bytes / roofline.F32_BYTES * 4 / 1000
    assert 80 < cycles < 4000, "a cycle takes 0.1 to 1 ns, on a shared machine more"
    assert [held for held, _ in roof.levels][-1] == 0
    assert roof.levels[0][1] < roof.levels[-1][1]


def test_kernels_by_themselves_move_the_bytes_of_their_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.dlm"
    path.write_text(TEXT)
    monkeypatch.setattr(roofline, "TURN_SECONDS", 1e-3)
    case = roofline.Case("f", str(path))
    far = Roof(1, ((0, 1),))
    found = roofline.gaps(case, far, 3, CPU)
    assert found
    assert {gap.bytes for gap in found} == {1.0}
    assert all(gap.among and 0 < gap.measured < gap.stated for gap in found)
    assert "`" in roofline.table(found)
