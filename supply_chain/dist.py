"""Build the distributions: the source archive, the wheel, and the bill of materials of both.

    python -m supply_chain.dist FOLDER

The same tree gives the same bytes: all times are that of SOURCE_DATE_EPOCH, which has to be set.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import dlc
from supply_chain.lock import ROOT
from supply_chain.sbom import bill_of_materials


def build(folder: Path, seconds: int) -> None:
    """Build all three into a folder, from this checkout as of a time."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    name = f"dlc-{dlc.__version__}"
    archive, wheel = folder / f"{name}.tar.gz", folder / f"{name}-py3-none-any.whl"
    archive.write_bytes(as_of(archive.read_bytes(), seconds))
    bill = bill_of_materials([archive, wheel], seconds)
    (folder / f"{name}.cdx.json").write_text(bill, encoding="utf-8")


def as_of(archive: bytes, seconds: int) -> bytes:
    """The same files in order, as of a time and of nobody; setuptools keeps the times and the user."""
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        gzip.GzipFile(filename="", fileobj=made, mode="wb", mtime=seconds) as packed,
        tarfile.open(fileobj=packed, mode="w") as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.pax_headers = {}
            member.mtime = seconds
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return made.getvalue()


if __name__ == "__main__":
    build(Path(sys.argv[1]), int(os.environ["SOURCE_DATE_EPOCH"]))
