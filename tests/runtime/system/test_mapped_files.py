"""Which files a model's text may lead to: plain ones in its folder, reached without links."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from dlc.errors import Unsupported, UsageError
from dlc.runtime.model import load
from dlc.runtime.system.mapped_files import map_file, map_inside
from tests.runtime import building


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a file, a file below, and a secret beside the folder."""
    model = tmp_path / "model"
    (model / "data").mkdir(parents=True)
    (model / "w.bin").write_bytes(b"weights")
    (model / "data" / "x.bin").write_bytes(b"below")
    (tmp_path / "secret").write_bytes(b"secret")
    return model


def refused(folder: Path, path: str) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        map_inside(folder, path)
    return caught.value.diagnostics[0].code, caught.value.diagnostics[0].message


@pytest.mark.parametrize(
    "path", ["w.bin", "./w.bin", "data/x.bin", "data//x.bin", "./data/./x.bin"]
)
def test_a_file_in_the_folder_is_read(folder: Path, path: str) -> None:
    assert bytes(map_inside(folder, path)) in (b"weights", b"below")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret", "'..'"),
        ("data/../../secret", "'..'"),
        ("data/../w.bin", "'..'"),
        ("..", "'..'"),
        ("/etc/passwd", "absolute"),
        ("//etc/passwd", "absolute"),
        ("..\\secret", "backslash"),
        ("w.bin\0.txt", "null character"),
        ("", "names a folder"),
        ("./", "names a folder"),
    ],
)
def test_a_path_that_could_leave_the_folder_is_refused(folder: Path, path: str, why: str) -> None:
    code, message = refused(folder, path)
    assert code == "D0506"
    assert why in message


def test_no_link_is_followed_on_the_way(folder: Path) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "inner").symlink_to(folder / "w.bin")
    (folder / "up").symlink_to(folder.parent)
    (folder / "loop").symlink_to("loop")
    for path in ("link", "inner", "up/secret", "up/model/w.bin", "loop", "loop/x"):
        code, message = refused(folder, path)
        assert code == "D0506", path
        assert "is a symbolic link" in message


def test_a_second_hard_link_is_refused(folder: Path) -> None:
    os.link(folder.parent / "secret", folder / "hard")
    assert refused(folder, "hard") == (
        "D0506",
        f"the path {str(folder / 'hard')!r} may lead out of the model's folder: "
        "the file has a second hard link, which may lie anywhere",
    )


def test_the_folder_itself_may_be_a_link(folder: Path) -> None:
    alias = folder.parent / "alias"
    alias.symlink_to(folder)
    assert bytes(map_inside(alias, "w.bin")) == b"weights"


def test_what_is_no_plain_file_is_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        for path, why in (
            ("pipe", "not a plain file"),
            ("socket", "cannot read"),
            ("data", "is a folder"),
            ("none", "no such file"),
            ("none/x", "no such file"),
            ("w.bin/x", "not a directory"),
            ("x" * 300, "too long"),
        ):
            code, message = refused(folder, path)
            assert code == "D0501", path
            assert why in message


def test_a_file_that_the_user_names_may_lie_anywhere(folder: Path) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    assert bytes(map_file(folder / "link")) == b"secret"
    assert bytes(map_file(folder / ".." / "secret")) == b"secret"
    for path in ("/dev/zero", "/dev/null", str(folder), str(folder / "none"), "a\0b"):
        with pytest.raises(UsageError) as caught:
            map_file(path)
        assert caught.value.diagnostics[0].code == "D0501"


def test_an_empty_file_has_no_bytes(folder: Path) -> None:
    (folder / "empty").touch()
    assert len(map_file(folder / "empty")) == 0


def test_mapped_memory_outlives_a_rename(folder: Path) -> None:
    view = map_file(folder / "w.bin")
    (folder / "new").write_bytes(b"changed")
    (folder / "new").rename(folder / "w.bin")
    assert bytes(view) == b"weights"


def test_no_descriptor_is_left_open(folder: Path) -> None:
    (folder / "link").symlink_to("w.bin")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        for path in ("w.bin", "link", "none", "data", "data/x.bin", "../x"):
            try:
                map_inside(folder, path)
            except UsageError:
                continue
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_copied_file_may_change(tmp_path: Path) -> None:
    path = tmp_path / "model.dlc"
    building.tiny().artifact().write(path)
    x = np.ones((2, 4), np.float32)
    with load(path, copy=True) as model:
        path.write_bytes(b"")
        kept = np.asarray(model.f(x, x))
    building.tiny().artifact().write(path)
    with load(path) as model:
        np.testing.assert_array_equal(kept, np.asarray(model.f(x, x)))


def test_a_copy_has_the_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "some.bin"
    for data in (b"", b"x", bytes(range(256)) * 1000):
        path.write_bytes(data)
        copy = map_file(path, copy=True)
        assert copy.readonly
        assert bytes(copy) == data


def test_a_file_larger_than_the_memory_is_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    path.touch()
    os.truncate(path, 1 << 42)
    with pytest.raises(Unsupported, match="D0705"):
        map_file(path, copy=True)
