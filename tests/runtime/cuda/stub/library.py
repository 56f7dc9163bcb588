"""The stub of the driver from Python: its settings and counts, and kernels that the evaluator runs.

cuda-python has to find it as libcuda.so.1: LD_LIBRARY_PATH names its folder before Python starts.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.codegen.llvm.begun import ObjectCache
from dlc.dialects import simt
from dlc.dialects.builtin import Module
from dlc.dialects.loop.memory import AddressSpace, MemoryRange
from dlc.driver.compile import code_maker, compile
from dlc.driver.compile.compile_cache import Kept, recall, remember
from dlc.ir.core import Op
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.gpu.conditions import PTX
from dlc.target.gpu import GpuTarget
from tests.runtime.gpu.fake_gpu import kernels_of, run_kernel
from tests.runtime.gpu.fake_ptx import Reach, kernels_of_ptx

NAME = "libcuda.so.1"
SOURCE = Path(__file__).with_name("libcuda.c")
SETTINGS: Mapping[str, int] = {
    "devices": 1,
    "version": 13000,
    "capability": 90,
    "has_pools": 1,
    "bytes": 1 << 34,
    "refuses_start": 0,
    "refuses_ptx": 0,
    "refuses_conditions": 0,
    "hangs": 0,
}
"""What a test sets, as it is at first."""
_UNKNOWN = 999
"""The driver's error for what it cannot tell: CUDA_ERROR_UNKNOWN."""
_ON_KERNEL = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int64,
)


def compiler() -> str | None:
    """The C compiler of this machine, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path, name: str = NAME) -> None:
    """Leave the stub in a folder, or that of another library."""
    command = [compiler() or "cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
    source = SOURCE.with_name(name.partition(".")[0] + ".c")
    target = ["-o", str(folder / name), "-Wl,-soname," + name, str(source), "-ldl", "-lpthread"]
    subprocess.run([*command, *target], check=True, capture_output=True, text=True)


class Stub:
    """The stub that this process has loaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(NAME)
        self._library.stub_block.restype = ctypes.c_int64
        self._conditions = kernels_of_ptx(PTX)
        self._held: list[object] = []
        self.kernels: Mapping[str, simt.Func] = {}
        """Those of the model that was compiled last."""
        self.in_kernel: Callable[[int], int] = lambda number: 0
        """What becomes of the kernel of a number, counted from the start: an error of the driver, or 0."""

    def __getitem__(self, name: str) -> int:
        return ctypes.c_int64.in_dll(self._library, f"stub_{name}").value

    def __setitem__(self, name: str, value: int) -> None:
        ctypes.c_int64.in_dll(self._library, f"stub_{name}").value = value

    def restore(self) -> None:
        """Let all settings be as they are at first."""
        for name, value in SETTINGS.items():
            self[name] = value

    def evaluate(self) -> None:
        """Let the evaluator run the kernels of models that are compiled from now on.

        Where there is a cache, a model that this process has compiled before is taken from there.
        """
        texts = code_maker.kernel_texts
        made: dict[str, Mapping[str, simt.Func]] = {}
        latest: Mapping[str, simt.Func] = {}

        def noted(module: Module) -> Mapping[str, str]:
            nonlocal latest
            latest = kernels_of(module)
            self.kernels = latest or self.kernels
            return texts(module)

        def remembered(cache: ObjectCache, key: str, artifact: Artifact) -> None:
            made[key] = latest
            remember(cache, key, artifact)

        def recalled(cache: ObjectCache, key: str) -> Kept | None:
            if key not in made:
                return None
            self.kernels = made[key] or self.kernels
            return recall(cache, key)

        def nothing(ptx: str, kind: GpuTarget, cache: object) -> bytes:
            return b""

        patch = pytest.MonkeyPatch()  # for as long as the process lives
        patch.setattr(code_maker, "kernel_texts", noted)
        patch.setattr(code_maker, "assemble_ptx", nothing)
        patch.setattr(compile, "remember", remembered)
        patch.setattr(compile, "recall", recalled)
        callback = _ON_KERNEL(self._called)
        self._held.append(callback)  # or else it is gone before the first call
        pointer = ctypes.cast(callback, ctypes.c_void_p).value
        ctypes.c_void_p.in_dll(self._library, "stub_on_kernel").value = pointer

    def _called(self, name: bytes, blocks: int, words: Sequence[int], count: int) -> int:
        try:
            status = self.in_kernel(self["launches"])
            return status or self._run(name.decode(), blocks, list(words[:count]))
        except Exception:  # noqa: BLE001  it cannot be raised through the driver
            traceback.print_exc()
            return _UNKNOWN

    def _run(self, known: str, blocks: int, given: list[int]) -> int:
        if known in self._conditions:
            reach = Reach(self._load, self._store, self._set_condition)
            self._conditions[known].run(given, reach)
            return 0
        for place, note in run_kernel(self.kernels[known], _Memory(self), blocks, given):
            ctypes.memmove(self._checked(place, len(note)), note, len(note))
        return 0

    def block(self, place: int) -> tuple[int, int]:
        """Where the block of memory around an address begins, and its bytes; 0 where there is none."""
        start = ctypes.c_void_p()
        size: int = self._library.stub_block(ctypes.c_void_p(place), ctypes.byref(start))
        return start.value or 0, size

    def _checked(self, place: int, count: int) -> int:
        start, size = self.block(place)
        assert start <= place <= start + size - count, f"{count} bytes at {place:#x} are nobody's"
        return place

    def _load(self, place: int, count: int) -> int:
        return int.from_bytes(ctypes.string_at(self._checked(place, count), count), "little")

    def _store(self, place: int, value: int, count: int) -> None:
        ctypes.memmove(self._checked(place, count), value.to_bytes(count, "little"), count)

    def _set_condition(self, condition: int, value: int) -> None:
        self._library.stub_set_condition(ctypes.c_uint64(condition), ctypes.c_uint(value))


class _Memory(AddressSpace):
    """The memory of the stub, and what the evaluator adds for a launch."""

    __slots__ = ("_known", "_stub")

    def __init__(self, stub: Stub) -> None:
        super().__init__()
        self._stub = stub
        self._known: dict[int, MemoryRange] = {}

    def at(self, op: Op, address: int, size: int) -> tuple[MemoryRange, int]:
        start, length = self._stub.block(address)
        if not length:
            return super().at(op, address, size)
        if start not in self._known:
            data = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(start))
            self._known[start] = MemoryRange("memory of the stub", data)
        if address + size > start + length:
            raise self._out_of_bounds(op, self._known[start], address - start, size)
        return self._known[start], address - start

    def at_each(
        self, op: Op, addresses: NDArray[np.int64], size: int
    ) -> Iterator[tuple[MemoryRange, NDArray[np.int64], NDArray[np.int64]]]:
        left = np.arange(len(addresses))
        while len(left):
            first = int(addresses[left[0]])
            memory, offset = self.at(op, first, size)
            offsets = addresses[left] - (first - offset)
            inside = (offsets >= 0) & (offsets <= memory.data.size - size)
            yield memory, left[inside], offsets[inside]
            left = left[~inside]
