"""PTX and machine code for NVIDIA GPUs: LLVM generates PTX, and `ptxas` assembles it.

`ptxas` comes with NVIDIA's toolkit, or as the wheel `nvidia-cuda-nvcc`. Without it an artifact has PTX
only, which the driver compiles when the artifact is loaded.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import llvmlite.binding as llvm

from dlc.codegen.llvm.object_code import loop_passes, parsed, refusal
from dlc.errors import UsageError
from dlc.target.gpu import TRIPLE, GpuTarget

GPU_LEVEL = 3
"""LLVM's optimization level; the code of a thread is short."""

_HEAD = re.compile(r"^(//.*|\.version.*|\.target.*|\.address_size.*|)$")
_FUNCTION = re.compile(r"Compiling entry function '(\w+)' for")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_TOO_OLD = re.compile(r"Unsupported \.version|is not defined for option 'gpu-name'")
_SHARED = re.compile(r"(\d+) bytes smem")


class NoAssembler(UsageError):
    """There is no `ptxas`, or none that knows the architecture (D0926)."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            code="D0926",
            help="install the wheel nvidia-cuda-nvcc, or NVIDIA's toolkit",
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources of a kernel as `ptxas` reports them: registers of a thread, bytes of memory."""

    registers: int
    shared: int
    stack: int
    spilled: int


def facts_of(gpu: GpuTarget) -> tuple[str, ...]:
    """The facts that the code for a GPU depends on besides its kernels, for cache keys."""
    return TRIPLE, gpu.name, str(gpu.ptx)


def kernel_ptx(text: str, architecture: str) -> str:
    """The PTX of a module of LLVM IR, without the header of a file."""
    machine = _machine(architecture)
    module = parsed(text, TRIPLE, machine, GPU_LEVEL)
    with loop_passes(own_pointers=True, hoisting=True):
        lines = machine.emit_assembly(module).splitlines()
    first = next(k for k, line in enumerate(lines) if not _HEAD.match(line))
    return "\n".join([*lines[first:], ""])


def whole_ptx(kernels: Sequence[str], architecture: str) -> str:
    """A file of PTX with these kernels."""
    version = GpuTarget.named(architecture).ptx
    head = f".version {version // 10}.{version % 10}\n.target {architecture}\n.address_size 64\n"
    return "\n".join([head, *kernels])


def assemble(ptx: str, architecture: str) -> tuple[bytes, dict[str, Usage]]:
    """Machine code ("cubin") for a file of PTX, and the resources of each kernel.

    Raises NoAssembler without a `ptxas` that knows the architecture, `refusal` if it refuses the PTX.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        source.write_text(ptx)
        ptxas = find_ptxas()
        command = [ptxas, "-v", f"-arch={architecture}", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and _TOO_OLD.search(done.stderr):
            raise NoAssembler(
                f"{ptxas} is too old for {architecture}: {done.stderr.splitlines()[0]}"
            )
        if done.returncode:
            raise refusal(f"ptxas refuses our text: {' '.join(done.stderr.split())[:2000]}")
        return target.read_bytes(), _usage(done.stderr)


def has_ptxas() -> bool:
    """Whether the assembler is installed."""
    try:
        find_ptxas()
    except NoAssembler:
        return False
    return True


def find_ptxas() -> str:
    """The path of `ptxas`, in the wheel or else in the toolkit. Raises NoAssembler without it."""
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for found in sorted(Path(folder).glob("*/bin/ptxas")):
            return str(found)
    found = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
    if found is None:
        raise NoAssembler("there is no ptxas here")
    return found


def _usage(report: str) -> dict[str, Usage]:
    """The resources of each kernel in the report of `ptxas -v`."""
    usage: dict[str, Usage] = {}
    name, stack, spilled = "", 0, 0
    for line in report.splitlines():
        if found := _FUNCTION.search(line):
            name = found[1]
        elif found := _SPILLS.search(line):
            stack, spilled = int(found[1]), int(found[2]) + int(found[3])
        elif found := _USED.search(line):
            shared = _SHARED.search(line)
            usage[name] = Usage(int(found[1]), int(shared[1]) if shared else 0, stack, spilled)
    return usage


@cache
def _machine(architecture: str) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=architecture, features=f"+ptx{GpuTarget.named(architecture).ptx}", opt=GPU_LEVEL
    )
