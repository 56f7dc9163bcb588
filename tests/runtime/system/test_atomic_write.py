"""A file is written whole or not at all, whatever stands at its name and whatever goes wrong."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlc.errors import UsageError
from dlc.runtime.system.atomic_write import make_folder, write_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_pieces_replace_the_old_file_and_leave_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "a.dlc"
    target.write_bytes(b"old and long")
    write_file(target, [b"new", memoryview(b" file")])
    assert target.read_bytes() == b"new file"
    assert names(tmp_path) == ["a.dlc"]


def test_a_failure_between_pieces_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.dlc"
    target.write_bytes(b"old")

    def pieces() -> Iterator[bytes]:
        yield b"half of the new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(target, pieces())
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a.dlc"]


def test_a_disk_that_fills_up_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.dlc"
    target.write_bytes(b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(UsageError, match=r"a\.dlc: file too large"):
            write_file(target, [bytes(1 << 20)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a.dlc"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "a.dlc"
    link.symlink_to(Path("real") / "b.dlc")
    write_file(link, [b"new"])
    assert link.is_symlink()
    assert (tmp_path / "real" / "b.dlc").read_bytes() == b"new"
    assert names(tmp_path / "real") == ["b.dlc"]


def test_a_pipe_takes_the_bytes_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, [b"through ", memoryview(b"the pipe")])
    reader.join()
    assert received == [b"through the pipe"]
    assert pipe.is_fifo()


def test_a_full_device_is_no_place_for_a_file() -> None:
    with pytest.raises(UsageError, match="cannot write /dev/full: no space left on device"):
        write_file("/dev/full", [b"anything"])
    assert Path("/dev/full").is_char_device()


def test_a_name_as_long_as_names_may_be_is_written(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 251 + ".dlc")
    write_file(target, [b"new"])
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("name", ["", "missing/a.dlc", "file/a.dlc", "a\0b", "n" * 256])
def test_a_place_where_no_file_can_be_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot write") as caught:
        write_file(tmp_path / name, [b"new"])
    assert caught.value.diagnostics[0].code == "D0502"
    assert names(tmp_path) == ["file"]


WRITER = """
import sys
from dlc.runtime.system.atomic_write import make_folder, write_file
def pieces():
    yield b"half" * 100_000
    print("half", flush=True)
    yield sys.stdin.readline().encode()
write_file(sys.argv[1], pieces())
"""


@contextmanager
def halfway(target: Path) -> Generator[subprocess.Popen[str]]:
    """A process that has written half of a file, and the rest when it is told a line."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(target)],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half\n"
        yield writer


def test_what_killed_writers_of_a_file_left_is_removed_by_the_next(tmp_path: Path) -> None:
    target = tmp_path / "a.dlc"
    for _ in range(2):
        with halfway(target) as writer:
            writer.kill()
    with halfway(tmp_path / "b.dlc") as writer:
        writer.kill()
    [*left, other] = names(tmp_path)
    assert left, "a killed writer leaves its temporary file"
    assert other.startswith(".b.dlc.")
    kept = {other, "notes.tmp", ".a.dlc.tmp", ".a.dlc.0123.tmp", ".a.dlc.0123456789abcdef.tmp.old"}
    for name in kept - {other}:
        (tmp_path / name).write_bytes(b"not ours")
    write_file(target, [b"whole"])
    assert {*names(tmp_path)} == {"a.dlc", *kept}
    assert target.read_bytes() == b"whole"


def test_a_writer_leaves_what_another_is_writing(tmp_path: Path) -> None:
    target = tmp_path / "a.dlc"
    with halfway(target) as writer:
        write_file(target, [b"whole"])
        assert len(names(tmp_path)) == 2
        writer.communicate("rest\n")
    assert writer.returncode == 0
    assert target.read_bytes() == b"half" * 100_000 + b"rest\n"
    assert names(tmp_path) == ["a.dlc"]


def test_a_folder_in_the_place_of_what_was_left_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".a.0123456789abcdef.tmp").mkdir()
    write_file(tmp_path / "a", [b"new"])
    assert names(tmp_path) == [".a.0123456789abcdef.tmp", "a"]


def test_a_file_system_without_locks_takes_files_and_keeps_what_was_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, operation)

    monkeypatch.setattr("fcntl.flock", refuse)
    (tmp_path / ".a.0123456789abcdef.tmp").write_bytes(b"whose?")
    write_file(tmp_path / "a", [b"new"])
    assert names(tmp_path) == [".a.0123456789abcdef.tmp", "a"]


def test_many_writers_of_one_file_leave_one_of_their_files(tmp_path: Path) -> None:
    target = tmp_path / "a.dlc"
    texts = [bytes([65 + k]) * 300_000 for k in range(6)]

    def write(text: bytes) -> None:
        for _ in range(5):
            write_file(target, [text[:1000], text[1000:]])
            assert target.read_bytes() in texts

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert target.read_bytes() in texts
    assert names(tmp_path) == ["a.dlc"]


def test_a_folder_that_cannot_be_made_has_a_reason_and_a_way_out(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be made: not a directory") as caught:
        make_folder(tmp_path / "file" / "b")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, bool(diagnostic.help)) == ("D0502", True)
