"""LLVM's target machines for processors: from the text of LLVM IR to an object file or assembly.

Vector widths, unrolling and tiles are explicit in the text, so LLVM's optimiser only cleans up: it inlines
helper functions, promotes stack variables to registers and merges blocks. No vectoriser and no loop pass
runs. The code is position-independent; `dlc.codegen.link.image` links it.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from threading import Lock

import llvmlite.binding as llvm

from dlc.errors import InternalError
from dlc.runtime.cpu.features import FEATURES, UNUSED
from dlc.target.cpu import HOST, CpuTarget


def cpu_name(target: CpuTarget) -> str:
    """LLVM's name of the processor of a target; `host` is resolved to that of this machine."""
    return _host_cpu() if target.name == HOST else target.name


def facts_of(target: CpuTarget) -> tuple[str, ...]:
    """The facts that the code for a processor depends on besides its kernels, for cache keys."""
    return target.triple, cpu_name(target), flags_of(target), "addresses as written"


def flags_of(target: CpuTarget) -> str:
    """LLVM's feature string, which enables or disables every feature: the processor name implies none."""
    has = [f"+{feature}" for feature in target.features]
    lacks = [f"-{f}" for f in (*FEATURES, *UNUSED) if f not in target.features]
    return ",".join(has + lacks)


def compile_object(text: str, target: CpuTarget, level: int = 2) -> bytes:
    """The ELF object file for a module of LLVM IR.

    `level` is LLVM's optimization level, 0 to 3. Raises `InternalError` with the offending line if LLVM
    refuses the text.
    """
    machine = _machine(target, level)
    module = parsed(text, target.triple, machine, level)
    with own_pointers(False):
        return machine.emit_object(module)


def assembly(text: str, target: CpuTarget, level: int = 2) -> str:
    """The assembly code of the object file of `compile_object`, for people to read."""
    machine = _machine(target, level)
    module = parsed(text, target.triple, machine, level)
    with own_pointers(False):
        return machine.emit_assembly(module)


_OPTIONS = Lock()
"""Held while LLVM runs with changed options, which are global in the process."""


@contextmanager
def own_pointers(allowed: bool) -> Generator[None]:
    """A context that enables or disables LLVM's loop strength reduction, which adds pointers to a loop.

    On a CPU our loops already need the fewest registers: further pointers are spilled, which makes
    products a tenth slower, and the pass takes a third to a half of LLVM's time.
    """
    with _OPTIONS:
        llvm.set_option("dlc", f"-disable-lsr={'false' if allowed else 'true'}")
        yield


def version() -> str:
    """The version of LLVM, such as "22.1.0"; a part of every cache key."""
    return ".".join(map(str, llvm.llvm_version_info))


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # without a parser, LLVM ends the process at inline assembly


@cache
def _host_cpu() -> str:
    _initialize()
    return llvm.get_host_cpu_name()


@cache
def _machine(target: CpuTarget, level: int) -> llvm.TargetMachine:
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=cpu_name(target), features=flags_of(target), opt=level, reloc="pic", codemodel="small"
    )


def parsed(text: str, triple: str, machine: llvm.TargetMachine, level: int) -> llvm.ModuleRef:
    """The module of a text, verified and cleaned up. Raises InternalError if LLVM refuses the text."""
    try:
        module = llvm.parse_assembly(text)
        module.triple = triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise InternalError(_explain(str(error), text)) from error
    _tidy(module, machine, level)
    return module


def _tidy(module: llvm.ModuleRef, machine: llvm.TargetMachine, level: int) -> None:
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    if level > 0:
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.add_dead_code_elimination_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=0)
    passes.run(module, llvm.create_pass_builder(machine, options))


def _explain(report: str, text: str) -> str:
    """LLVM's report as one sentence, with the line of our text if the report names one."""
    found = re.search(r"<string>:(\d+):\d+: error: (.*)", report)
    if found is None:
        return f"LLVM refuses our text: {' '.join(report.split())}"
    line = text.split("\n")[int(found[1]) - 1].strip()
    return f"LLVM refuses line {found[1]} of our text: {found[2]}: {line}"
