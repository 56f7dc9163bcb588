"""How many threads a call uses by default."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from dlc.runtime.abi import MAX_THREADS
from dlc.runtime.cpu import threads
from dlc.runtime.cpu.threads import cpu_quota, default_threads


def group(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content + "\n")
    return folder


def quota(tmp_path: Path, membership: str) -> float:
    (tmp_path / "membership").write_text(membership)
    return cpu_quota(tmp_path / "groups", tmp_path / "membership")


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "none", tmp_path / "none") == math.inf
    assert quota(tmp_path, "0::/\n") == math.inf


def test_the_tightest_group_around_the_process_counts(tmp_path: Path) -> None:
    group(tmp_path / "groups/pods", cpu__max="350000 100000")
    group(tmp_path / "groups/pods/one", cpu__max="max 100000")
    assert quota(tmp_path, "0::/pods/one\n") == 3.5
    group(tmp_path / "groups/pods/one", cpu__max="150000 100000")
    assert quota(tmp_path, "0::/pods/one\n") == 1.5
    assert quota(tmp_path, "0::/pods\n") == 3.5


def test_in_a_container_the_mount_itself_is_the_group(tmp_path: Path) -> None:
    group(tmp_path / "groups", cpu__max="200000 100000")
    assert quota(tmp_path, "0::/seen/only/by/the/host\n") == 2


def test_groups_of_version_1_count_too(tmp_path: Path) -> None:
    group(
        tmp_path / "groups/cpu,cpuacct/docker",
        cpu__cfs_quota_us="50000",
        cpu__cfs_period_us="100000",
    )
    membership = "4:memory:/docker\n1:cpu,cpuacct:/docker\n0::/\n"
    assert quota(tmp_path, membership) == 0.5
    group(tmp_path / "groups/cpu,cpuacct/docker", cpu__cfs_quota_us="-1")
    assert quota(tmp_path, membership) == math.inf


def test_a_name_with_colons_or_nonsense_in_a_file_does_no_harm(tmp_path: Path) -> None:
    group(tmp_path / "groups/a:b", cpu__max="nonsense")
    assert quota(tmp_path, "0::/a:b\n") == math.inf
    group(tmp_path / "groups/a:b", cpu__max="100 0")
    assert quota(tmp_path, "0::/a:b\n") == math.inf


@pytest.mark.parametrize(
    ("cpus", "limit", "expected"),
    [(8, math.inf, 8), (8, 2.5, 2), (2, 6.0, 2), (4, 0.3, 1), (1024, math.inf, MAX_THREADS)],
)
def test_the_default_is_the_smaller_of_cpus_and_quota(
    monkeypatch: pytest.MonkeyPatch, cpus: int, limit: float, expected: int
) -> None:
    def affinity(_: int) -> set[int]:
        return set(range(cpus))

    monkeypatch.setattr(os, "sched_getaffinity", affinity)
    monkeypatch.setattr(threads, "cpu_quota", lambda: limit)
    assert default_threads() == expected
