"""What needs more memory than the machine has is refused before work begins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.errors import Unsupported
from dlc.runtime.system import available_memory
from dlc.runtime.system.available_memory import (
    NOTABLE,
    check_fits,
    check_free,
    free_memory,
    machine_memory,
)


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


def free(folder: Path, membership: str, available: int) -> int:
    (folder / "membership").write_text(membership)
    (folder / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available} kB\n")
    return free_memory(folder / "groups", folder / "membership", folder / "meminfo")


def test_what_is_free_is_what_the_machine_has_available(tmp_path: Path) -> None:
    assert free(tmp_path, "0::/\n", 12) == 12 << 10


@pytest.mark.parametrize(
    ("folder", "limit", "usage", "membership"),
    [
        ("groups/one", "memory.max", "memory.current", "0::/one\n"),
        (
            "groups/memory/one",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "5:memory:/one\n0::/\n",
        ),
    ],
)
def test_what_a_control_group_has_left_counts_where_it_is_less(
    tmp_path: Path, folder: str, limit: str, usage: str, membership: str
) -> None:
    group = tmp_path / folder
    group.mkdir(parents=True)
    (group / limit).write_text("8192\n")
    (group / usage).write_text("5000\n")
    (group / "memory.stat").write_text("anon 3000\ninactive_file 600\nactive_file 400\n")
    assert free(tmp_path, membership, 1 << 20) == 8192 - 5000 + 1000
    (group / usage).write_text("20000\n")
    assert free(tmp_path, membership, 1 << 20) == 0
    (group / limit).write_text("max\n")
    assert free(tmp_path, membership, 1) == 1 << 10


def test_what_is_about_to_be_taken_is_compared_with_what_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(available_memory, "free_memory", lambda: NOTABLE)
    check_free("a square", NOTABLE)
    with pytest.raises(Unsupported) as caught:
        check_free("a square", NOTABLE + 1)
    (found,) = caught.value.diagnostics
    assert found.message == "a square needs 0.3 GiB of memory, and 0.2 are free on this machine"
    monkeypatch.setattr(available_memory, "free_memory", lambda: 0)
    check_free("a small square", NOTABLE - 1)
