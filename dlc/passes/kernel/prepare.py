"""The function that computes all derived weights from the stored ones, compiled like any other."""

from __future__ import annotations

from dlc.dialects import func, weight
from dlc.dialects.builtin import Module
from dlc.ir.attributes import Symbol
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.passes import Context, define_pass

NAME = "dlc.prepare"
"""The symbol of the function: no entry point can be called so, because of the dot."""


@define_pass("make_prepare", required=True)
def make_prepare(module: Op, context: Context) -> None:
    """Collect the regions of derived weights into one private function that returns them all."""
    assert isinstance(module, Module)
    direct = {op.symbol.name for op in module.walk() if isinstance(op, weight.Get)}
    needed = _needed(module, direct)
    derived = [op for op in module.body if isinstance(op, weight.Derived) and op.sym_name in needed]
    if not derived or module.symbol(NAME) is not None:
        return
    body = Block()
    emit = Builder(body, module.location)
    values: dict[str, Value] = {}
    for op in derived:
        sources = [_value(module, symbol.name, emit, values) for symbol in op.sources]
        (value,) = clone_into(op.body, emit.at(op.location), sources)
        values[op.sym_name] = value
    names = [op.sym_name for op in derived if op.sym_name in direct]
    results = [values[name] for name in names]
    emit.place(func.Return(results))
    prepare = func.Func(body, NAME, func.signature(body, results), "private")
    prepare.attributes["dlc.results"] = tuple(names)
    Builder(module.body, module.location).place(prepare)


def _value(module: Module, name: str, emit: Builder, values: dict[str, Value]) -> Value:
    if name not in values:
        source = module.symbol(name)
        assert isinstance(source, weight.Source), f"@{name} is used before it is derived"
        values[name] = emit(weight.Get(Symbol(name), source.type))
    return values[name]


def _needed(module: Module, direct: set[str]) -> set[str]:
    """The weights that functions read, and those that these are derived from."""
    needed = set(direct)
    for op in reversed(list(module.body)):
        if isinstance(op, weight.Derived) and op.sym_name in needed:
            needed |= {symbol.name for symbol in op.sources}
    return needed
