"""What needs more memory than the machine has is refused before work begins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.errors import Unsupported
from dlc.runtime.memory import check_fits, machine_memory


def limited(folder: Path, membership: str) -> int:
    (folder / "membership").write_text(membership)
    return machine_memory(folder / "groups", folder / "membership")


def test_without_a_limit_it_is_that_of_the_machine(tmp_path: Path) -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    [total] = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:")]
    assert limited(tmp_path, "0::/\n") == total


@pytest.mark.parametrize(
    ("folder", "file", "membership"),
    [
        ("groups/one", "memory.max", "0::/one\n"),
        ("groups", "memory.max", "0::/seen/by/the/host\n"),
        ("groups/memory/one", "memory.limit_in_bytes", "5:memory:/one\n0::/\n"),
    ],
)
def test_the_limit_of_a_control_group_counts(
    tmp_path: Path, folder: str, file: str, membership: str
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / file).write_text("1048576\n")
    assert limited(tmp_path, membership) == 1 << 20
    (tmp_path / folder / file).write_text("max\n")
    assert limited(tmp_path, membership) > 1 << 20


def test_what_cannot_fit_is_unsupported_with_both_numbers() -> None:
    check_fits("nothing", 0)
    have = machine_memory()
    with pytest.raises(
        Unsupported, match=r"a square needs [\d,.]+ GiB of memory, and this"
    ) as caught:
        check_fits("a square", have + 1)
    assert caught.value.diagnostics[0].code == "D0705"
    assert caught.value.exit_code == 4
    assert np.isfinite(have)
