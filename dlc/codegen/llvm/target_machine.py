"""LLVM for processors: text of LLVM IR goes in, an object file or assembly comes out.

Our text says explicitly what it wants (vector widths, unrolling, tiles), so the optimiser only tidies
up: helper functions are inlined, stack variables become registers, blocks merge. No vectoriser and
no loop pass runs. Code is position-independent; `dlc.codegen.link.image` links it.
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
    """LLVM's name of a processor, which `host` is the short form of."""
    return _host_cpu() if target.name == HOST else target.name


def facts_of(target: CpuTarget) -> tuple[str, ...]:
    """What code for a processor depends on besides the kernels."""
    return target.triple, cpu_name(target), flags_of(target), "addresses as written"


def flags_of(target: CpuTarget) -> str:
    """Every feature switched on or off, as LLVM wants it: the processor's name implies nothing."""
    has = [f"+{feature}" for feature in target.features]
    lacks = [f"-{f}" for f in (*FEATURES, *UNUSED) if f not in target.features]
    return ",".join(has + lacks)


def compile_object(text: str, target: CpuTarget, level: int = 2) -> bytes:
    """The ELF object file for a module of LLVM IR.

    `level` 0 to 3 is how hard LLVM's instruction selection tries. Raises `InternalError` with the
    offending line if LLVM refuses the text.
    """
    machine = _machine(target, level)
    module = parsed(text, target.triple, machine, level)
    with own_pointers(False):
        return machine.emit_object(module)


def assembly(text: str, target: CpuTarget, level: int = 2) -> str:
    """The assembly code that `compile_object` turns into an object file, for people to read."""
    machine = _machine(target, level)
    module = parsed(text, target.triple, machine, level)
    with own_pointers(False):
        return machine.emit_assembly(module)


_OPTIONS = Lock()
"""Held while LLVM works with options, which are those of the whole process."""


@contextmanager
def own_pointers(allowed: bool) -> Generator[None]:
    """Whether LLVM may give the accesses in a loop pointers of their own (loop strength reduction).

    On a CPU our loops count with the fewest registers already: more pointers are spilled, products take a
    tenth longer, and finding them is a third to a half of the time that LLVM takes.
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
    llvm.initialize_native_asmparser()  # LLVM ends the process where inline assembly meets no parser


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
    """The text parsed, verified and tidied up. Raises InternalError if LLVM refuses it."""
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
