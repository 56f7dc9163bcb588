"""The distributions are the same, byte by byte, wherever and whenever they are built."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

import dlc
from supply_chain.dist import as_of, build

SECONDS = 1_700_000_000


def packed(names: list[str], time: float, user: int, mode: int) -> bytes:
    """An archive of files, as a machine packs them."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            member.mtime = time
            member.uid = member.gid = user
            member.uname = f"user{user}"
            member.mode = mode
            archive.addfile(member, io.BytesIO(name.encode()))
    return made.getvalue()


def test_an_archive_does_not_tell_the_machine_that_it_was_packed_on() -> None:
    one = packed(["dlc/a.py", "dlc/b.py"], 1e9 + 0.5, 1000, 0o644)
    other = packed(["dlc/b.py", "dlc/a.py"], 1.5e9, 0, 0o664)
    assert one != other
    assert as_of(one, SECONDS) == as_of(other, SECONDS)


def test_an_archive_keeps_its_files() -> None:
    archive = as_of(packed(["dlc/b.py", "dlc/a.py"], 1e9, 7, 0o755), SECONDS)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        found = {each.name: opened.extractfile(each) for each in opened}
        read = {name: file.read() for name, file in found.items() if file is not None}
        assert all((each.mtime, each.mode) == (SECONDS, 0o755) for each in opened)
    assert read == {"dlc/a.py": b"dlc/a.py", "dlc/b.py": b"dlc/b.py"}


@pytest.mark.long
def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    builds: list[dict[str, bytes]] = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        build(folder, SECONDS)
        builds.append({file.name: file.read_bytes() for file in folder.iterdir()})
    name = f"dlc-{dlc.__version__}"
    assert builds[0].keys() == {
        f"{name}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".cdx.json")
    }
    assert builds[0] == builds[1]
