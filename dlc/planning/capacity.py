"""What no machine holds or finishes, refused with its place in the text before anything is made of it.

Artifacts are checked for the same when they are read: what passes here is not refused there.
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
from dlc.runtime.artifact.program_check import MAX_COST
from dlc.runtime.system.available_memory import ADDRESSABLE

DAY = 24 * 3600 * 10**9
"""One in nanoseconds, in which the cost of kernels is counted."""


def check_interface(module: Module) -> None:
    """Raises ModelError (D0338) for weights, inputs and results of too many axes, as a network may have.

    Raises Unsupported (D0705) for those of too many bytes.

    A named size counts with the least that it may be.
    """
    found: list[Diagnostic] = []
    for op in module.body:
        match op:
            case weight.Source(sym_name=name, type=type):
                found += _tensor(op, f"the weight {name}", type, {})
            case func.Func(function_type=types):
                least = {name: low for name, (low, _) in op.bounds.items()}
                inputs = zip(op.input_names, types.inputs, strict=False)
                named = [(f"input {name}", type) for name, type in inputs]
                named += [(f"result {number}", type) for number, type in enumerate(types.results)]
                for name, type in named:
                    found += _tensor(op, f"{op.sym_name}: {name}", type, least)
            case _:
                pass
    if deep := [each for each in found if each.code == "D0338"]:
        raise ModelError(deep)
    if found:
        raise Unsupported(found)


def check_programs(module: Module, texts: Mapping[str, str]) -> None:
    """Raises Unsupported for plans of too many bytes (D0705) or too much work (D0713).

    That is only seen where sizes are numbers; others are checked when a call knows them.
    """
    programs = [op for op in module.body if isinstance(op, mem.Program)]
    found = [each for program in programs for each in (*_memory(program), *_work(program))]
    if found:
        raise Unsupported(found, sources=texts)


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
    """A size as far as it is surely as large as this."""
    if isinstance(size, Dim):
        return max([1, *[low for name, low in least.items() if size == symbol(name)]])
    return max(1, size)


def _memory(program: mem.Program) -> Iterator[Diagnostic]:
    """What is kept during a call: each value alone, then all that are alive together."""
    alone = False
    for root in program.body:
        if isinstance(root, mem.Root) and isinstance(root.bytes, int) and root.bytes > ADDRESSABLE:
            name = next((use.result.name for use in root.result.uses if use.results), None)
            alone = True
            yield _too_large(
                root, f"{program.sym_name}: {name or 'a value in between'}", root.bytes
            )
    if not alone and program.arena is not None and program.arena > ADDRESSABLE:
        yield _too_large(program, f"{program.sym_name}: all that it keeps at once", program.arena)


def _work(program: mem.Program) -> Iterator[Diagnostic]:
    """A kernel after which the call has more to do than there is time for."""
    total = 0
    for call in program.walk():
        if not isinstance(call, mem.Call):
            continue
        if isinstance(call.tiles, int) and isinstance(call.cost, int):
            total += call.tiles * call.cost
        if total >= MAX_COST:
            yield Diagnostic(
                "D0713",
                f"{program.sym_name} would take about {total / DAY:,.0f} days up to here, and calls of "
                f"more than {MAX_COST / DAY:,.0f} are refused",
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
