"""The process that reads a file of StableHLO: see `dlc.importers.stablehlo.apart`."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

from dlc.errors import DlcError
from dlc.importers.stablehlo.apart import MEMORY
from dlc.importers.stablehlo.opening import program_of
from dlc.ir.types import DType


class _Written(pickle.Pickler):
    """Facts, with dtypes by their names."""

    def persistent_id(self, obj: object) -> str | None:
        return obj.name if isinstance(obj, DType) else None


def main() -> None:
    """Read a file and write its facts, or the error, to the standard output."""
    path = Path(sys.argv[1])
    data = path.read_bytes()
    _limit(MEMORY + 16 * len(data))
    output = os.dup(1)
    os.dup2(2, 1)  # what the reader itself prints is not a fact
    try:
        found: object = program_of(data, path.name)
    except DlcError as error:
        (told,) = error.diagnostics
        found = (type(error).__name__, told.code, told.message, told.help)
    with os.fdopen(output, "wb") as file:
        _Written(file, protocol=5).dump(found)


def _limit(size: int) -> None:
    """Limit the address space, where the system can."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
