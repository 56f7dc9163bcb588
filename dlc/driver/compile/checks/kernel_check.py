"""Checks of a user's kernels: each replaces a generated kernel only if it computes the same results.

Each is compiled and run in every call of the plan that it replaces, at two sizes and on random inputs, on
copies of the memory that the plan gives it; around each copy lie bytes that must stay as they are. What the
kernel level says must be in its results then is computed with NumPy.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlc.codegen.kernels import Processor, compile_kernels
from dlc.codegen.llvm.loop import function_text
from dlc.dialects import kernel, loop, mem
from dlc.dialects.loop.memory import MemoryRange
from dlc.driver.compile.checks.own_kernels import OwnKernel
from dlc.driver.compile.checks.random_calls import RandomArrays
from dlc.driver.compile.checks.verify_each import KERNEL_TOLERANCE, distance
from dlc.driver.source.open import read_ir
from dlc.errors import InternalError, ModelError, NumbersDiffer, Unsupported, UsageError
from dlc.errors.suggest import did_you_mean
from dlc.evaluation.compare_levels import planned_copy
from dlc.evaluation.plan import PlanRun
from dlc.ir.core import Array, Evaluation, Op
from dlc.ir.types import ViewType
from dlc.runtime.abi import FaultWord, Status
from dlc.runtime.calling.probes import KERNEL
from dlc.runtime.cpu.executable_memory import LoadedImage, load_image
from dlc.target.gpu import GpuTarget

SIZES = (3, 37)
"""What named sizes are in the calls that are compared, as far as their bounds allow: less than a register,
and some registers with a remainder."""
GUARD = 4096
"""Bytes before and behind a copy of memory that a kernel must not change."""
FILL = 0xA5
SCRATCH = 1 << 16
"""Bytes of scratch besides what a call asks for."""
FUNCTIONS = re.compile(r"^define [^\n]*?@\"?([\w.]+)\"?\(.*?^}\n?", re.DOTALL | re.MULTILINE)
"""The functions of an LLVM text, by name."""
DECLARATIONS = re.compile(r"^(?:declare|attributes|[@!])[^\n]*", re.MULTILINE)
"""The lines outside of functions: those of two kernels that say the same are one."""


def own_texts(kernels: Sequence[OwnKernel], module: Op) -> dict[str, str]:
    """The LLVM text of each kernel of a user, by name.

    Raises UsageError (D0902) for the name of no kernel, ModelError (D0165) for a file without that kernel.
    """
    known = [op.sym_name for op in module.regions[0] if isinstance(op, loop.Func)]
    return {own.name: _text_of(own, known) for own in kernels}


def _text_of(own: OwnKernel, known: Sequence[str]) -> str:
    if own.name not in known:
        raise UsageError(
            f"the model has no kernel {own.name}",
            code="D0902",
            help=did_you_mean(own.name, known) or f"it has {', '.join(known) or 'none'}",
        )
    if own.path.endswith(".ll"):
        if own.name in FUNCTIONS.findall(own.text):
            return _alone(own.text, own.name)
    else:
        found = read_ir(own.text, own.path).symbol(own.name)
        if isinstance(found, loop.Func):
            return function_text(found, own.name)
    raise ModelError(
        f"{own.path} has no function {own.name}",
        code="D0165",
        help="begin with the kernel that dlc makes: dlc show --stage llvm, or --stage loop",
    )


def _alone(text: str, name: str) -> str:
    """One function of a listing of kernels, each of which declares for itself what it calls.

    Lines keep their numbers, by which LLVM tells what it refuses.
    """
    text = FUNCTIONS.sub(lambda one: one[0] if one[1] == name else "\n" * one[0].count("\n"), text)
    declared: set[str] = set()

    def once(line: re.Match[str]) -> str:
        if line[0] in declared:
            return ""
        declared.add(line[0])
        return line[0]

    return DECLARATIONS.sub(once, text)


def plans_of(module: Op) -> dict[str, mem.Program]:
    """Copies of the plans of a module, to compare with kernels afterwards."""
    programs = [op for op in module.regions[0] if isinstance(op, mem.Program)]
    return {program.sym_name: planned_copy(program) for program in programs}


def check_kernels(
    texts: Mapping[str, str],
    plans: Mapping[str, mem.Program],
    module: Op,
    processor: Processor,
    level: int,
) -> None:
    """Compare kernels with what the plan says that they compute.

    Raises ModelError (D0165) for one that LLVM refuses, NumbersDiffer (D0951) for one that computes
    something else, or writes what is not its own, Unsupported (D0730) for kernels of a GPU.
    """
    if isinstance(processor, GpuTarget):
        raise Unsupported(
            "kernels of a GPU cannot be replaced",
            code="D0730",
            help="leave --kernel out, or compile for a processor",
        )
    try:
        image = compile_kernels(texts, processor, level)
    except InternalError as error:  # of generated code it would be our mistake
        reason = error.diagnostics[0].message.replace("of our text", "of its file")
        raise ModelError(
            f"--kernel {' and '.join(texts)}: {reason}",
            code="D0165",
            help="begin with the kernel that dlc makes: dlc show --stage llvm, or --stage loop",
        ) from None
    code = load_image(image.code, hashlib.sha256(image.code).digest(), image.imports)
    native = _Native(code, image.entries)
    for op in module.regions[0]:
        if isinstance(op, mem.Program) and op.sym_name in plans:
            for size in SIZES:
                _compare(plans[op.sym_name], op, module, native, size)


@dataclass(frozen=True, slots=True)
class _Native:
    """Machine code of kernels by name."""

    code: LoadedImage
    entries: Mapping[str, int]

    def run(
        self,
        name: str,
        views: Sequence[MemoryRange],
        sizes: Sequence[int],
        tiles: int,
        scratch: int,
    ) -> None:
        """Run all tiles of a kernel. Raises CallError as the engine does."""
        work = np.zeros(scratch + SCRATCH, np.uint8)
        words = [view.data.ctypes.data for view in views] + [*sizes]
        words += [work.ctypes.data] if scratch else []
        arguments = (ctypes.c_int64 * max(1, len(words)))(*words)
        fault = (ctypes.c_int64 * FaultWord.COUNT)()
        KERNEL(self.code.base + self.entries[name])(arguments, 0, tiles, fault)
        if fault[FaultWord.STATUS] != Status.OK:
            raise NumbersDiffer(
                f"the kernel {name} fails where it should compute", code="D0951", help=HELP
            )


HELP = "fix the kernel, or leave --kernel out"


def _compare(
    planned: mem.Program, program: mem.Program, module: Op, native: _Native, size: int
) -> None:
    at, inputs = RandomArrays().call(program, module, size)
    kernels = [
        op
        for op in planned.walk()
        if isinstance(op, kernel.Kernel) and isinstance(_around(op), mem.Wave)
    ]
    calls = [op for op in program.walk() if isinstance(op, mem.Call)]
    replaced = {
        op: call
        for op, call in zip(kernels, calls, strict=True)
        if call.kernel.name in native.entries
    }
    if replaced:
        with np.errstate(all="ignore"):
            _Compared(planned, inputs, at, replaced, native).run()


def _around(op: Op) -> Op | None:
    return op.parent.parent if op.parent is not None else None


class _Compared(PlanRun):
    """A plan that is evaluated with NumPy; kernels that are replaced also run as machine code."""

    def __init__(
        self,
        planned: mem.Program,
        inputs: Sequence[Array],
        at: Evaluation,
        replaced: Mapping[kernel.Kernel, mem.Call],
        native: _Native,
    ) -> None:
        super().__init__(planned, inputs, at)
        self._replaced = replaced
        self._native = native

    def wave(self, wave: mem.Wave) -> None:
        self.measure()
        for op in wave.body:
            if isinstance(op, kernel.Kernel) and op in self._replaced:
                self._compare(op, self._replaced[op])
        super().wave(wave)

    def _compare(self, op: kernel.Kernel, call: mem.Call) -> None:
        name, results = call.kernel.name, self.results(op)
        ranges = [self.memory_range(view) for view in op.operands]
        with _guarded(ranges, name) as copies:
            sizes, tiles = self.at.shape(call.sizes), self.at.size(call.tiles)
            self._native.run(name, copies, sizes, tiles, self.at.size(call.scratch))
        for target, result, memory in zip(
            op.targets, results, copies[len(op.operands) - len(op.targets) :], strict=True
        ):
            type = target.type
            assert isinstance(type, ViewType)
            if not result.size:
                continue
            steps = tuple([s * type.dtype.bytes for s in self.at.shape(type.strides)])
            found = np.ndarray(result.shape, type.dtype.numpy, memory.data.data, 0, steps)
            apart = distance(result, found, type.dtype)
            if apart > KERNEL_TOLERANCE.get(type.dtype.name, 0.0):
                raise NumbersDiffer(
                    f"the kernel {name} is off by {apart:.3g} of its largest element",
                    code="D0951",
                    place=op.location.place,
                    help=HELP,
                )


@contextmanager
def _guarded(ranges: Sequence[MemoryRange], name: str) -> Generator[list[MemoryRange]]:
    """Copies of memory with bytes around each that must not change, in one block for each.

    Views of the same bytes are the same bytes in the copies, too. Raises NumbersDiffer (D0951).
    """
    blocks: dict[tuple[int, int], NDArray[np.uint8]] = {}
    copies: list[MemoryRange] = []
    for each in ranges:
        key = each.data.ctypes.data, each.data.size
        if key not in blocks:
            block = np.full(each.data.size + 2 * GUARD, FILL, np.uint8)
            block[GUARD : GUARD + each.data.size] = each.data
            blocks[key] = block
        copies.append(
            MemoryRange(each.name, blocks[key][GUARD : GUARD + each.data.size], each.writable)
        )
    yield copies
    for block in blocks.values():
        if (block[:GUARD] != FILL).any() or (block[-GUARD:] != FILL).any():
            raise NumbersDiffer(
                f"the kernel {name} writes outside the memory of its views",
                code="D0951",
                help=HELP,
            )
