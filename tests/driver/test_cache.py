"""The cache of object files: wherever it is and whatever is in it, results are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.driver.cache import DiskCache, open_cache
from dlc.driver.doctor import examine
from dlc.errors import DlcError
from dlc.runtime.atomic import write_file


def test_what_is_kept_is_found_again_and_what_is_damaged_is_not(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    assert cache.get("abcd") is None
    cache.put("abcd", b"object")
    assert cache.get("abcd") == b"object"
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert cache.get("abcd") is None
    assert (cache.hits, cache.misses) == (1, 2)


def test_compiling_does_not_wait_for_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def sync(_: int) -> None:
        raise AssertionError("waits for the disk")

    monkeypatch.setattr("os.fsync", sync)
    cache = DiskCache(tmp_path)
    cache.put("abcd", b"object")
    assert cache.get("abcd") == b"object"
    with pytest.raises(AssertionError, match="waits for the disk"):
        write_file(tmp_path / "checkpoint", [b"weights"])


def test_a_file_that_a_power_cut_emptied_is_none(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put("abcd", b"object")
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    file.write_bytes(b"")
    assert cache.get("abcd") is None


def test_a_place_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = DiskCache(tmp_path / "file")
    cache.put("abcd", b"object")
    assert cache.get("abcd") is None
    with pytest.raises((OSError, DlcError)):
        cache.check()


def test_the_environment_says_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def folder() -> Path | None:
        found = open_cache()
        return found and found.folder

    monkeypatch.setenv("DLC_CACHE", str(tmp_path))
    assert folder() == tmp_path
    monkeypatch.setenv("DLC_CACHE", "")
    assert folder() is None
    monkeypatch.delenv("DLC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "dlc" / "objects"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for nothing in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", nothing)
        assert folder() == tmp_path / "home" / ".cache" / "dlc" / "objects"


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.delenv("DLC_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert open_cache() is None


def test_doctor_says_where_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("DLC_CACHE", str(tmp_path / "file" / "below"))
    [found] = [finding for finding in examine() if finding.what == "cache"]
    assert found.level == "warning"
    assert "nothing is kept in" in found.text
    monkeypatch.setenv("DLC_CACHE", str(tmp_path / "fresh"))
    [found] = [finding for finding in examine() if finding.what == "cache"]
    assert (found.level, found.text) == ("ok", str(tmp_path / "fresh"))
