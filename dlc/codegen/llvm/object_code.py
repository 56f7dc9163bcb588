"""Object files and assembly for texts of LLVM IR: what calls LLVM.

Vector widths, unrolling and tiles are explicit in the text, so LLVM's optimiser only cleans up: it inlines
helper functions, promotes stack variables to registers and merges blocks. No vectoriser and no loop pass
runs. The code is position-independent; `dlc.codegen.link.image` links it.

Processes that compile in the background import this and little else (`dlc.codegen.llvm.worker`), so that
they start quickly.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import NamedTuple

import llvmlite
import llvmlite.binding as llvm

from dlc.errors import DlcError, InternalError, UsageError

LLVMLITE = "0.50"
"""The version of llvmlite whose LLVM the code is written for."""


class Machine(NamedTuple):
    """What LLVM makes code for, in its own words, and its optimization level, 0 to 3."""

    triple: str
    processor: str
    features: str
    level: int


def compile_text(text: str, machine: Machine) -> bytes:
    """The ELF object file for a module of LLVM IR.

    Raises `refusal` with the offending line if LLVM refuses the text.
    """
    generator = _generator(machine)
    module = parsed(text, machine.triple, generator, machine.level)
    with loop_passes(own_pointers=False, hoisting=CONSTANTS_STAY not in text):
        return generator.emit_object(module)


def assembly_of(text: str, machine: Machine) -> str:
    """The assembly code of the object file of `compile_text`, for people to read."""
    generator = _generator(machine)
    module = parsed(text, machine.triple, generator, machine.level)
    with loop_passes(own_pointers=False, hoisting=CONSTANTS_STAY not in text):
        return generator.emit_assembly(module)


_OPTIONS = Lock()
"""Held while LLVM runs with changed options, which are global in the process."""


CONSTANTS_STAY = '"dlc-constants"="stay"'
"""The attribute of a function whose constants are read where they are used, not kept in registers."""


@contextmanager
def loop_passes(*, own_pointers: bool, hoisting: bool) -> Generator[None]:
    """A context that enables or disables two passes of LLVM over the loops of machine code.

    Loop strength reduction adds `own_pointers` to a loop. On a CPU our loops already need the fewest
    registers: further pointers are spilled, which makes products a tenth slower, and the pass takes a third
    to a half of LLVM's time. `hoisting` keeps constants in registers across the loops around them. Those of
    gelu then spill sums of the loop before it, where the product is made: on Zen 3, 128 x 384 x 1536 takes
    1.4 times as long.
    """
    with _OPTIONS:
        for name, enabled in (("lsr", own_pointers), ("machine-licm", hoisting)):
            llvm.set_option("dlc", f"-disable-{name}={'false' if enabled else 'true'}")
        yield


@cache
def host_processor() -> str:
    """LLVM's name of the processor of this machine."""
    _initialize()
    return llvm.get_host_cpu_name()


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # without a parser, LLVM ends the process at inline assembly


@cache
def _generator(machine: Machine) -> llvm.TargetMachine:
    _initialize()
    return llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.processor,
        features=machine.features,
        opt=machine.level,
        reloc="pic",
        codemodel="small",
    )


def parsed(text: str, triple: str, machine: llvm.TargetMachine, level: int) -> llvm.ModuleRef:
    """The module of a text, verified and cleaned up. Raises `refusal` if LLVM refuses the text."""
    try:
        module = llvm.parse_assembly(text)
        module.triple = triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise refusal(_explain(str(error), text)) from error
    _tidy(module, machine, level)
    return module


def refusal(message: str) -> DlcError:
    """The error where a tool refuses our text: InternalError, or D0921 where LLVM is not the right one."""
    if has_right_version():
        return InternalError(message)
    return UsageError(
        f"llvmlite {llvmlite.__version__} is installed, and dlc is made for {LLVMLITE}: {message}",
        code="D0921",
        help=f"pip install 'llvmlite=={LLVMLITE}.*'",
    )


def has_right_version() -> bool:
    """Whether the installed llvmlite has the LLVM that the code is written for."""
    return llvmlite.__version__.startswith(f"{LLVMLITE}.")


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
