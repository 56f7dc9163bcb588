"""Checks that values fit into an address space and that calls end, with the location in the text.

Artifacts are checked for the same when they are read: whatever passes here is accepted there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from dlc.dialects import func, mem, weight
from dlc.dialects.builtin import Module
from dlc.errors import Diagnostic, ModelError, Unsupported
from dlc.ir.core import Op
from dlc.ir.dims import Dim, Size, symbol
from dlc.ir.types import TensorType, Type
from dlc.runtime.arrays.dtypes import MAX_RANK
from dlc.runtime.artifact.manifest import function_of
from dlc.runtime.artifact.program_check import MAX_COST
from dlc.runtime.system.available_memory import ADDRESSABLE

DAY = 24 * 3600 * 10**9
"""A day in nanoseconds, the unit of costs of kernels."""


def check_interface(module: Module) -> None:
    """Check the rank and size of weights, inputs and results; named sizes count at their lower bounds.

    Raises ModelError (D0338) for too many axes, Unsupported (D0705) for too many bytes.
    """
    diagnostics: list[Diagnostic] = []
    for op in module.body:
        match op:
            case weight.Source(sym_name=name, type=type):
                diagnostics += _tensor(op, f"the weight {name}", type, {})
            case func.Func(function_type=types):
                least = {name: low for name, (low, _) in op.bounds.items()}
                inputs = zip(op.input_names, types.inputs, strict=False)
                named = [(f"input {name}", type) for name, type in inputs]
                named += [(f"result {number}", type) for number, type in enumerate(types.results)]
                for name, type in named:
                    diagnostics += _tensor(op, f"{function_of(op.sym_name)}: {name}", type, least)
            case _:
                pass
    if too_many_axes := [each for each in diagnostics if each.code == "D0338"]:
        raise ModelError(too_many_axes)
    if diagnostics:
        raise Unsupported(diagnostics)


def check_programs(module: Module, texts: Mapping[str, str]) -> None:
    """Raises Unsupported for plans of too many bytes (D0705) or too much work (D0713).

    Only static sizes are checked; symbolic ones are checked in calls.
    """
    programs = [op for op in module.body if isinstance(op, mem.Program)]
    diagnostics = [each for program in programs for each in (*_memory(program), *_work(program))]
    if diagnostics:
        raise Unsupported(diagnostics, sources=texts)


def _tensor(op: Op, name: str, type: Type, least: Mapping[str, int]) -> Iterator[Diagnostic]:
    if not isinstance(type, TensorType):
        return
    if type.rank > MAX_RANK:
        yield Diagnostic(
            "D0338",
            f"{name} has {type.rank} axes where at most {MAX_RANK} are expected",
            op.location.place,
            help="make several axes one",
        )
        return
    # Empty arrays count too: steps through them are computed all the same.
    needed = prod(_least(size, least) for size in type.shape) * type.dtype.bytes
    if needed > ADDRESSABLE:
        yield _too_large(op, f"{name}, which is {type.text},", needed)


def _least(size: Size, least: Mapping[str, int]) -> int:
    """A lower bound on a size."""
    if isinstance(size, Dim):
        return max([1, *[low for name, low in least.items() if size == symbol(name)]])
    return max(1, size)


def _memory(program: mem.Program) -> Iterator[Diagnostic]:
    """Diagnostics for the memory of a call: for single values, otherwise for the whole arena."""
    single_value_too_large = False
    function = function_of(program.sym_name)
    for root in program.body:
        if isinstance(root, mem.Root) and isinstance(root.bytes, int) and root.bytes > ADDRESSABLE:
            name = next((use.result.name for use in root.result.uses if use.results), None)
            single_value_too_large = True
            yield _too_large(root, f"{function}: {name or 'a value in between'}", root.bytes)
    if not single_value_too_large and program.arena is not None and program.arena > ADDRESSABLE:
        yield _too_large(program, f"{function}: all that it keeps at once", program.arena)


def _work(program: mem.Program) -> Iterator[Diagnostic]:
    """A diagnostic for the kernel at which the work of a call exceeds the limit."""
    total = 0
    for call in program.walk():
        if not isinstance(call, mem.Call):
            continue
        if isinstance(call.tiles, int) and isinstance(call.cost, int):
            total += call.tiles * call.cost
        if total >= MAX_COST:
            yield Diagnostic(
                "D0713",
                f"{function_of(program.sym_name)} would take about {total / DAY:,.0f} days up to here, "
                f"and calls of more than {MAX_COST / DAY:,.0f} are refused",
                call.location.place,
                help="use smaller sizes",
            )
            return


def _too_large(op: Op, name: str, needed: int) -> Diagnostic:
    return Diagnostic(
        "D0705",
        f"{name} needs {needed:,} bytes, and no machine addresses more than {ADDRESSABLE:,}",
        op.location.place,
        help="use smaller sizes",
    )
