"""The entry points of a model that was read, at any level, and which one the user means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc.dialects import func, mem, weight
from dlc.dialects.builtin import Module
from dlc.dialects.measured import measuring, upper_bounds
from dlc.driver.compile.build_artifact import EntryPoint, interface_of
from dlc.driver.entry_choice import choose
from dlc.errors import UsageError
from dlc.ir.attributes import Attribute, Symbol
from dlc.ir.core import Op
from dlc.lowering.graph_to_kernel.call_conditions import check_counted, note_needs
from dlc.passes.kernel.prepare import NAME as PREPARE
from dlc.planning.return_counts import return_counts
from dlc.runtime.artifact import manifest


def entry_points(module: Module) -> list[EntryPoint]:
    """Every function or plan that is an entry point, in order of the text."""
    return [
        op
        for op in module.body
        if isinstance(op, func.Func | mem.Program) and op.sym_visibility != "private"
    ]


def entry_functions(module: Module) -> list[func.Func]:
    """The entry points that are functions: those that have no plan yet."""
    return [op for op in entry_points(module) if isinstance(op, func.Func)]


def settle_interfaces(module: Module) -> None:
    """Let every entry point without a plan be as its callers see it.

    It returns the sizes that its results mention and it measures, and says which sizes a call must look
    at. Raises Unsupported (D0701) and ModelError (D0715) for counted sizes that there is no memory for.
    """
    for function in entry_functions(module):
        return_counts(function)
        limits = upper_bounds(measuring(function))
        check_counted(function, limits)
        note_needs(function, limits)


def interfaces(module: Module) -> list[manifest.Entry]:
    """The interface of each entry point."""
    return [interface_of(entry) for entry in entry_points(module)]


def find_entry(module: Module, name: str | None) -> EntryPoint:
    """The entry point of that name, or the only one. Raises UsageError (D0904) if it is not clear."""
    return _chosen(entry_points(module), name)


def find_function(module: Module, name: str | None) -> func.Func:
    """The same where it must be a function. Raises UsageError (D0905) for one that has a plan."""
    found = find_entry(module, name)
    if isinstance(found, mem.Program):
        raise UsageError(
            f"{found.sym_name} is a plan already, and only of functions this can be had",
            code="D0905",
            help="start from the model's text, or its graph",
        )
    return found


def _chosen(entries: Sequence[EntryPoint], name: str | None) -> EntryPoint:
    named = {entry.sym_name: entry for entry in entries}
    return named[choose(named, name)]


def parts_of(module: Module, *names: str) -> list[Op]:
    """Entry points and all that they refer to, which is a module of its own: in order of the text.

    With derived weights comes what computes them when weights are loaded: those of all entry points.
    """
    table = dict(module.symbols())
    needed: set[str] = set()
    pending = list(names)
    while pending:
        op = table.get(pending.pop())
        if op is not None and _name(op) not in needed:
            needed.add(_name(op))
            pending += _references(op)
            if isinstance(op, weight.Derived):
                pending.append(PREPARE)
    return [op for op in module.body if _name(op) in needed]


def keep_entry(module: Module, *names: str) -> None:
    """Leave an entry point, or several, and all that they refer to, and nothing else."""
    kept = set(parts_of(module, *names))
    for op in list(module.body):
        if op not in kept:
            op.erase()


def _name(op: Op) -> str:
    return str(op.attributes.get("sym_name", ""))


def _references(op: Op) -> Iterator[str]:
    """The symbols that an operation, or one in it, refers to."""
    pending: list[Attribute] = [value for inner in op.walk() for value in inner.attributes.values()]
    while pending:
        match pending.pop():
            case Symbol(name):
                yield name
            case tuple() as items:
                pending.extend(items)
            case _:
                pass
