"""Lowers each kernel of a plan to a function and a call of it, by the lowerings of the target.

Functions take their sizes as arguments, so kernels that differ in sizes only are one function: it is tidied
the first time that it is written. Kernels that differ in nothing but where their arrays are, of which large
networks have many, are written once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from dlc.dialects import kernel, loop, mem, simt
from dlc.dialects.builtin import Module
from dlc.dialects.measured import upper_bound
from dlc.ir.attributes import Symbol, exact_items
from dlc.ir.core import Builder, Op, Value
from dlc.ir.fingerprint import fingerprint
from dlc.ir.passes import Context
from dlc.lowering.kernel_code.alignment import start_of
from dlc.lowering.kernel_code.expand import expand, expansions_for
from dlc.lowering.kernel_code.labels import label, whole_location
from dlc.lowering.kernel_code.tidy import tidy
from dlc.lowering.kernel_code.tolerance import tolerates_approximations
from dlc.lowering.kernel_code.writer import Function, Lowered
from dlc.lowering.math import Expansion
from dlc.lowering.math.special_functions import with_approximations
from dlc.planning.overwriting import in_place_operands
from dlc.target import cpu_of
from dlc.target.amounts import bytes_moved, operations
from dlc.target.gpu import THREAD
from dlc.target.table import ElementCosts

Lowering: TypeAlias = Callable[[Any, Context], Lowered]
"""Writes the function of a kernel, of the class that it is entered for, in destination form."""


def lower_kernels(
    module: Op, context: Context, lowering_of: Callable[[type[Op]], Lowering]
) -> None:
    """Turn every kernel of a module into a function, by the lowering of its class, and a call of it."""
    assert isinstance(module, Module)
    functions = _Functions(module, context)
    costs = cpu_of(context.options).costs
    written: dict[tuple[object, ...], tuple[Lowered, str]] = {}
    for wave in [op for op in module.walk() if isinstance(op, mem.Wave)]:
        for op in wave.body:
            if not isinstance(op, kernel.Kernel):
                continue
            said = _all_said(op)
            if said not in written:
                lowered = lowering_of(type(op))(op, context)
                written[said] = lowered, functions.name_of(lowered.function, op)
            _call(op, *written[said], costs)


class _Functions:
    """The functions of a module, each of which is there once."""

    def __init__(self, module: Module, context: Context) -> None:
        self._module = module
        self._tell = context.kernel_lowered
        self._tables: dict[type[Op], dict[type[Op], Expansion]] = {
            loop.Func: expansions_for(cpu_of(context.options)),
            simt.Func: expansions_for(THREAD),
        }
        self._approximate = with_approximations(self._tables[simt.Func])
        self._options = context.options
        self._as_written: dict[tuple[object, ...], str] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def name_of(self, function: Function, op: kernel.Kernel) -> str:
        """The name of the function of the module that is this one, which was just written for a kernel."""
        written = fingerprint(function)
        if written not in self._as_written:
            self._as_written[written] = self._tidied(function, op)
        return self._as_written[written]

    def _tidied(self, function: Function, op: kernel.Kernel) -> str:
        """The same for one that was never written this way; tidied, it may still be another's equal."""
        if isinstance(function, loop.Func):
            tidy(function)  # what is for a GPU was, before its registers were aligned
        key = fingerprint(function)
        if key not in self._names:
            name = f"{op.name.partition('.')[2]}_{len(self._names)}"
            self._names[key] = name
            _finish(function, name, self._table(function, op))
            Builder(self._module.body, op.location).place(function)
            if self._tell is not None:
                self._tell(function)
        return self._names[key]

    def _table(self, function: Function, op: kernel.Kernel) -> dict[type[Op], Expansion]:
        """The formulas for the function of a kernel; on a GPU approximations where they are allowed."""
        options = self._options
        if isinstance(function, simt.Func) and (
            options.accuracy == "fast" or (options.level >= 2 and tolerates_approximations(op))
        ):
            return self._approximate
        return self._tables[type(function)]


def _all_said(op: kernel.Kernel) -> tuple[object, ...]:
    """All that the function of a kernel can depend on."""
    views, outs = op.operands, op.targets
    return (
        id(mem.program_of(op)),
        exact_items(op.attributes),
        fingerprint(op),
        tuple([(view.type, _device(view), start_of(view)) for view in views]),
        # What is computed in place is not copied first.
        tuple([mem.same_place(view, out) for view in views for out in outs]),
    )


def _device(view: Value) -> str | None:
    root = view.op.root.op if isinstance(view.op, mem.View) else None
    return root.device if isinstance(root, mem.Root) else None


def _finish(function: Function, name: str, table: dict[type[Op], Expansion]) -> None:
    """Give a function its name, and formulas for what the target has no instruction for."""
    function.attributes["sym_name"] = name
    if expand(function, table):
        tidy(function)


def _call(op: kernel.Kernel, lowered: Lowered, name: str, costs: ElementCosts) -> None:
    """Call a function in the place of its kernel."""
    program = mem.program_of(op)
    limits = {} if program is None else program.limit_of
    facts = (lowered.tiles, lowered.cost, lowered.scratch, operations(op, costs), bytes_moved(op))
    *laid_out, computed, moved = [upper_bound(size, limits) for size in facts]
    call = mem.Call(
        op.operands,
        Symbol(name),
        lowered.sizes,
        *laid_out,
        over=tuple(in_place_operands(op)),
        writes=len(op.targets),
        label=label(op),
        operations=computed,
        bytes=moved,
    )
    Builder.before_op(op, whole_location(op)).place(call)
    op.erase()
