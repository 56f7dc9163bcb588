"""One reader, led by Atheris to inputs that reach new code.

    python -m benchmarks.fuzz.reader_target READER FOLDER [OPTION OF LIBFUZZER | INPUT]...

Whole files of the reader are put into the folder first; with inputs, these alone are read. Anything but a
typed error ends the process, which leaves the input in a file; `benchmarks.fuzz.readers` runs it and says
what came of it.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import warnings
from pathlib import Path
from random import Random
from typing import Any

# Atheris is an extra of an environment of its own, not installed where types are checked.
atheris: Any = importlib.import_module("atheris")

INSTRUMENTED = [
    "dlc.runtime",
    "dlc.text",
    "dlc.importers",
    "dlc.frontend",
    "dlc.driver.source.open",
    "PIL",
]
"""The packages whose branches lead the search: those that read. Of pictures Pillow reads the headers."""
DAMAGED = 0.5
"""The part of inputs that are changed by what knows the format, sealed files among them."""

with atheris.instrument_imports(include=INSTRUMENTED):
    for name in ("Bmp", "Gif", "Jpeg", "Png", "Tiff", "WebP"):
        importlib.import_module(f"PIL.{name}ImagePlugin")
    from benchmarks.fuzz.file_readers import READERS
    from benchmarks.fuzz.files import read
    from dlc.errors import DlcError, InternalError


def main(name: str, corpus: str, *options: str) -> None:
    """Search; ends the process."""
    reader, folder = READERS[name], Path(tempfile.mkdtemp())
    for number, whole in enumerate(reader.whole()):
        Path(corpus, f"whole-{number}").write_bytes(whole)
    warnings.simplefilter("ignore")  # Pillow's remarks about damage
    os.chdir(folder)  # models that refer to files find none

    def one(data: bytes) -> None:
        try:
            read(reader, data, Random(len(data)), folder)
        except InternalError:
            raise
        except DlcError:
            return

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < DAMAGED:
            try:
                return reader.damage(random, data)[:most]
            except Exception:  # noqa: BLE001 - not every input has the format any more
                return data
        return atheris.Mutate(data, most)

    inputs = [each for each in options if not each.startswith("-")]
    flags = [each for each in options if each.startswith("-")]
    atheris.Setup(
        [sys.argv[0], *(inputs or [corpus]), *flags],
        one,
        custom_mutator=mutated,
        internal_libfuzzer=True,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
