"""Hostile files: nothing but typed errors, in a time and with memory that the size of the file bounds.

Each case damages a whole file of some reader and reads it. It is wrong where that takes more than 2 s of
the processor (20 s for a file of 1 MB or more), or 64 bytes of memory for each byte beyond what is always
allowed.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from benchmarks.fuzz.cases import Kind, Outcome, reason
from benchmarks.fuzz.file_readers import READERS, Reader
from dlc.errors import DlcError, InternalError
from dlc.runtime.arrays.picture_files import ENDINGS

SECONDS, SECONDS_LARGE = 2.0, 20.0
LARGE = 1 << 20
LONG, SHARE_OF_LONG = 64 << 10, 0.125
"""From this number of bytes on, whole files are damaged this many times as often as shorter ones."""
BYTES_EACH = 64
BYTES_ALWAYS = 128 << 20
"""What reading may take whatever the size."""
BYTES_OF_PICTURES = 640 << 20
"""The same for pictures, which few bytes can describe: two canvases of 2^26 pixels with 4 channels."""
ADDRESSES = 16 << 30
"""Bytes of addresses that a process may have: for more there is a MemoryError, which is wrong."""
STATUS = Path("/proc/self/status")


def start() -> Callable[[int], Outcome]:
    """What tries one file. Whole files are read first, so that everything that reading loads is loaded."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    warnings.simplefilter("ignore")  # Pillow's remarks about damage
    folder = Path(tempfile.mkdtemp())
    os.chdir(folder)  # models that refer to files find none
    for reader in READERS.values():
        for whole in reader.whole():
            for seed in range(3):
                with suppress(DlcError):  # those made by hand are not models, but load
                    read(reader, whole, Random(seed), folder)
    return lambda seed: check(seed, folder, READERS)


def check(seed: int, folder: Path, readers: Mapping[str, Reader]) -> Outcome:
    """What becomes of the file of a seed."""
    random = Random(seed)
    name = random.choice(sorted(readers))
    reader = readers[name]
    data = reader.damage(random, _one_of(random, reader.whole()))
    _forget_peak()
    before, began = _peak(), time.process_time()
    refusal = ""
    try:
        read(reader, data, random, folder)
    except InternalError:
        raise
    except DlcError as error:
        refusal = f"{name}: {reason(error)}"
    seconds, taken = time.process_time() - began, _peak() - before
    if seconds > (SECONDS if len(data) < LARGE else SECONDS_LARGE):
        return Outcome("wrong", f"{name}: took {seconds:.1f} s for {len(data)} bytes")
    always = BYTES_OF_PICTURES if reader.ending in ENDINGS else BYTES_ALWAYS
    if taken > always + BYTES_EACH * len(data):
        return Outcome("wrong", f"{name}: took {taken >> 20} MiB for {len(data)} bytes")
    return Outcome("refused", refusal) if refusal else Outcome("agreed")


def _one_of(random: Random, files: Sequence[bytes]) -> bytes:
    """One of some whole files, a long one less often: it takes as much time as many short ones."""
    (chosen,) = random.choices(
        files, [1.0 if len(file) < LONG else SHARE_OF_LONG for file in files]
    )
    return chosen


def read(reader: Reader, data: bytes, random: Random, folder: Path) -> None:
    """Have a reader read some bytes as a file. Raises what it raises."""
    path = folder / f"damaged{reader.ending}"
    path.write_bytes(data)
    try:
        reader.read(path, random)
    finally:
        path.unlink(missing_ok=True)


def _forget_peak() -> None:
    """Begin to measure the peak of memory anew, where the system can."""
    if STATUS.exists():
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """The peak of memory since then in bytes; 0 where nobody knows."""
    if not STATUS.exists():
        return 0
    for line in STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


KIND = Kind("hostile files against every reader", start, seconds=90.0, recycled=20_000)
