"""The cache of object files: wherever it is and whatever is in it, results are the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.driver.compile.cache import DiskCache, open_cache
from dlc.driver.compile.compile import Report, compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.report.doctor import examine
from dlc.driver.source.open import open_model
from dlc.errors import DlcError
from dlc.errors.warn import warn_once
from dlc.runtime.model import Model
from dlc.runtime.system.atomic_write import write_file


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


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_file_in_the_place_of_another_is_none(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put("abcd", b"object")
    cache.put("abce", b"another")
    one, other = files(tmp_path)
    shutil.copyfile(other, one)
    assert cache.get("abcd") is None
    assert cache.get("abce") == b"another"


def compiled(formula: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """What a model with this formula gives for 0 and 1."""
    text = f"dlc 1\nexport fn f(x: f32[2]) -> f32[2] = {formula}\n"
    with dlc.compile(text=text) as model:
        return np.asarray(model(np.arange(2, dtype=np.float32)))


def test_equal_kernels_are_one_file_wherever_they_stand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DLC_CACHE", str(tmp_path))
    found: list[tuple[int, int]] = []
    for before in ("", "export fn e(x: f32[2]) -> f32[2] = sqrt(x)\n"):
        text = f"dlc 1\n{before}export fn f(x: f32[2]) -> f32[2] = exp(x) + 1\n"
        report = Report()
        model = Model(compile_model(open_model("m.dlm", text=text), Settings(), report=report))
        np.testing.assert_array_equal(np.asarray(model.f(np.zeros(2, np.float32))), [2, 2])
        found.append((report.cached, report.compiled))
    assert found == [(0, 1), (1, 1)]


def test_swapped_files_change_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each file of one model was put into the place of every file of the other."""
    formulas = {"one": "x + 1.0", "other": "x * 3.0 - 7.0"}
    for name, formula in formulas.items():
        monkeypatch.setenv("DLC_CACHE", str(tmp_path / name))
        compiled(formula)
    monkeypatch.setenv("DLC_CACHE", str(tmp_path / "one"))
    for source in files(tmp_path / "other"):
        for target in files(tmp_path / "one"):
            shutil.copyfile(source, target)
        np.testing.assert_array_equal(compiled(formulas["one"]), [1.0, 2.0])


@pytest.fixture
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has not said anything yet."""
    warn_once.cache_clear()
    yield
    warn_once.cache_clear()


@pytest.mark.usefixtures("nothing_said")
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_is_not_used_which_is_said_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int
) -> None:
    monkeypatch.setenv("DLC_CACHE", str(tmp_path / "open"))
    compiled("x + 1.0")
    assert files(tmp_path / "open")
    (tmp_path / "open").chmod(mode)
    with pytest.warns(UserWarning, match=r"open is not used: other users may write it"):
        assert open_cache() is None
    assert open_cache() is None, "a second warning would be an error"
    np.testing.assert_array_equal(compiled("x + 1.0"), [1.0, 2.0])
    [found] = [finding for finding in examine() if finding.what == "cache"]
    assert found.level == "warning"
    assert "other users may write it" in found.text


def test_a_file_that_others_may_write_is_none(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put("abcd", b"object")
    [file] = files(tmp_path)
    assert file.stat().st_mode & 0o077 == 0
    file.chmod(0o666)
    assert cache.get("abcd") is None


def test_a_link_or_a_pipe_in_the_place_of_a_file_is_none_and_is_replaced(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    cache.put("abcd", b"object")
    [file] = files(tmp_path)
    elsewhere = file.rename(tmp_path / "elsewhere")
    written = elsewhere.read_bytes()
    file.symlink_to(elsewhere)
    assert cache.get("abcd") is None
    cache.put("abcd", b"another")
    assert cache.get("abcd") == b"another"
    assert elsewhere.read_bytes() == written
    file.unlink()
    os.mkfifo(file)
    assert cache.get("abcd") is None
    cache.put("abcd", b"object")
    assert cache.get("abcd") == b"object"


def test_folders_are_the_users_own(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        DiskCache(tmp_path / "cache").put("abcd", b"object")
    finally:
        os.umask(before)
    for folder in (tmp_path / "cache", tmp_path / "cache" / "ab"):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("nothing_said")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_folder_of_another_user_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = DiskCache(tmp_path / "theirs")
    cache.put("abcd", b"object")
    [file] = files(tmp_path)
    os.chown(file, 65534, 65534)
    assert cache.get("abcd") is None
    os.chown(tmp_path / "theirs", 65534, 65534)
    monkeypatch.setenv("DLC_CACHE", str(tmp_path / "theirs"))
    with pytest.warns(UserWarning, match=r"theirs is not used: it belongs to another user"):
        assert open_cache() is None


WORKER = """
import sys
import numpy as np
import dlc
for turn in range(3):
    for k in range(4):
        factor = float((k + int(sys.argv[1])) % 4 + 2)
        text = f"dlc 1\\nexport fn f(x: f32[5]) -> f32[5] = exp(x * {factor}) + {factor}\\n"
        x = np.linspace(-1, 1, 5, dtype=np.float32)
        with dlc.compile(text=text) as model:
            np.testing.assert_allclose(model(x), np.exp(x * np.float32(factor)) + factor, rtol=1e-5)
"""


def test_processes_that_share_a_cache_get_their_own_results(tmp_path: Path) -> None:
    """They begin with an empty one at once, on the same models in another order."""
    environment = {**os.environ, "DLC_CACHE": str(tmp_path / "cache")}
    root = Path(__file__).parents[3]
    workers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WORKER, str(number)],
            cwd=root,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for worker in workers:
        _, told = worker.communicate()
        assert worker.returncode == 0, told
    assert all(path.suffix == ".o" for path in files(tmp_path / "cache"))


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
