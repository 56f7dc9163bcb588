"""Descriptions of processors for LLVM, and the code that LLVM makes for them."""

from __future__ import annotations

import llvmlite.binding as llvm

from dlc.codegen.llvm.object_code import Machine, assembly_of, compile_text, host_processor
from dlc.runtime.cpu.features import FEATURES, UNUSED
from dlc.target.cpu import HOST, CpuTarget


def cpu_name(target: CpuTarget) -> str:
    """LLVM's name of the processor of a target; `host` is resolved to that of this machine."""
    return host_processor() if target.name == HOST else target.name


def facts_of(target: CpuTarget) -> tuple[str, ...]:
    """The facts that the code for a processor depends on besides its kernels, for cache keys."""
    return target.triple, cpu_name(target), flags_of(target), "addresses as written"


def flags_of(target: CpuTarget) -> str:
    """LLVM's feature string, which enables or disables every feature: the processor name implies none."""
    has = [f"+{feature}" for feature in target.features]
    lacks = [f"-{f}" for f in (*FEATURES, *UNUSED) if f not in target.features]
    return ",".join(has + lacks)


def machine_of(target: CpuTarget, level: int = 2) -> Machine:
    """A processor, and LLVM's optimization level, 0 to 3."""
    return Machine(target.triple, cpu_name(target), flags_of(target), level)


def compile_object(text: str, target: CpuTarget, level: int = 2) -> bytes:
    """The ELF object file for a module of LLVM IR.

    `level` is LLVM's optimization level, 0 to 3. Raises `InternalError` with the offending line if LLVM
    refuses the text.
    """
    return compile_text(text, machine_of(target, level))


def assembly(text: str, target: CpuTarget, level: int = 2) -> str:
    """The assembly code of the object file of `compile_object`, for people to read."""
    return assembly_of(text, machine_of(target, level))


def version() -> str:
    """The version of LLVM, such as "22.1.0"; a part of every cache key."""
    return ".".join(map(str, llvm.llvm_version_info))
