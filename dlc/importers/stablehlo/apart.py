"""Files of StableHLO are read in a process of their own.

The readers of MLIR are written in C++ for modules that compilers wrote: a damaged file may end the process
that reads it, or keep it busy without end. That process gets a limit of time and of memory, and hands over
facts: of what it writes, only the classes of facts are read.
"""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

from dlc.errors import Unsupported, UsageError
from dlc.importers.stablehlo import facts
from dlc.importers.stablehlo.facts import Program
from dlc.ir.types import DType

READER = "dlc.importers.stablehlo.reader_process"
"""The module that reads a file in its process; it imports what opens files, which imports this one."""
SECONDS = 60
"""The time for a file, with one second more for each MiB."""
MEMORY = 16 << 30
"""The address space for a file in bytes, with 16 bytes more for each of its bytes."""
FACTS = {
    ("dlc.importers.stablehlo.facts", name): getattr(facts, name)
    for name in (
        "ConvNumbers", "Declared", "DotNumbers", "Elements", "Function", "IndexNumbers", "Node", "Program",
        "Region",
    )
}  # fmt: skip


def read_apart(path: Path) -> Program:
    """The facts of a file. Raises what reading it raises, and UsageError (D0903) where the reader ends."""
    length = path.stat().st_size
    if not length:
        raise UsageError(
            f"{path.name} is empty",
            code="D0903",
            help="jax.export.export(jax.jit(f))(x).mlir_module() is the text of a module",
        )
    command = [sys.executable, "-P", "-m", READER, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    seconds = SECONDS + (length >> 20)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise _ended(path, f"was not done after {seconds} seconds") from None
    if done.returncode < 0:
        raise _ended(path, f"was ended by signal {-done.returncode}")
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().splitlines()
        raise _ended(path, f"ended: {told[-1][:200] if told else done.returncode}")
    found = _Facts(io.BytesIO(done.stdout)).load()
    if isinstance(found, Program):
        return found
    kind, code, message, help = found
    raise (Unsupported if kind == "Unsupported" else UsageError)(message, code=code, help=help)


def _ended(path: Path, how: str) -> UsageError:
    return UsageError(
        f"{path.name} is not read as a module of StableHLO: the reader of MLIR {how}",
        code="D0903",
        help="the file is damaged or too large; write it again",
    )


class _Facts(pickle.Unpickler):
    """Reads facts, and no other class."""

    def persistent_load(self, pid: str) -> DType:
        return DType.named[pid]

    def find_class(self, module_name: str, global_name: str) -> type:
        key = (module_name, global_name)
        if key in FACTS:
            return FACTS[key]
        if module_name.startswith("numpy") and global_name in ARRAYS:
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not a fact")


ARRAYS = frozenset({"_reconstruct", "_frombuffer", "dtype", "ndarray", "scalar"})
"""What NumPy needs to read its arrays."""
