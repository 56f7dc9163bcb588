"""Whatever is computed from weights and constants alone is computed once, when the weights are loaded.

The largest such values become derived weights. Repeating along an axis stays where it is: it is free in
the kernel that reads it and would only make the weight larger.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc.dialects import array, kernel, weight
from dlc.dialects.builtin import Module
from dlc.dialects.measured import dims_of
from dlc.ir.attributes import Symbol
from dlc.ir.clone import clone
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.fingerprint import fingerprint
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import Gone
from dlc.ir.types import TensorType
from dlc.passes.graph.canonicalize import graph_blocks


@define_pass("fold_weights")
def fold_weights(module: Op, context: Context) -> None:
    """Turn what is computed from weights alone into derived weights."""
    assert isinstance(module, Module)
    folding = _Folding(module, context)
    for block in graph_blocks(module):
        if not isinstance(block.parent, kernel.Kernel | weight.Derived):
            folding.block(block)


def constant_values(block: Block) -> dict[Value, None]:
    """The values of a block that depend on weights and constants only, in order.

    Some weight must have a part in each, or a constant of several numbers: networks keep their small
    weights in such.
    """
    known: set[Value] = set()
    weights: dict[Value, None] = {}
    for op in block:
        if isinstance(op, weight.Get) or _is_table(op):
            known.update(op.results)
            weights.update(dict.fromkeys(op.results))
        elif op.pure and not op.regions and all(value in known for value in op.operands):
            # Weights are loaded before any call tells a size, also one that is an element.
            if dims_of(op):
                continue
            known.update(op.results)
            if any(value in weights for value in op.operands):
                weights.update(dict.fromkeys(op.results))
    return weights


def _is_table(op: Op) -> bool:
    """Whether an operation is a constant of several numbers."""
    return isinstance(op, array.Constant) and not op.value.is_splat


class _Folding:
    def __init__(self, module: Module, context: Context) -> None:
        self.module = module
        self.context = context
        self.known: dict[tuple[object, ...], weight.Derived] = {}

    def block(self, block: Block) -> None:
        constant = constant_values(block)
        for value in list(_largest(constant)):
            if isinstance(value.op, weight.Get | array.Constant) or value.op is None:
                continue
            derived = self._derive(value)
            emit = Builder.before_op(value.op)
            new = emit(weight.Get(Symbol(derived.sym_name), derived.type), value.name)
            self.context.log.did("compute when weights are loaded", value)
            self.context.values.replaced(value, None, Gone("computed when weights are loaded"))
            value.replace_by(new)

    def _derive(self, value: Value) -> weight.Derived:
        """The derived weight that is this value."""
        cone = _cone(value)
        symbols: dict[str, Value] = {}
        body = Block()
        emit = Builder(body, value.op.location if value.op else self.module.location)
        copies: dict[Value, Value] = {}
        for op in cone:
            if isinstance(op, weight.Get):
                name = op.symbol.name
                if name not in symbols:
                    symbols[name] = body.add_argument(op.type, op.result.name)
                copies[op.result] = symbols[name]
                continue
            copy = emit.at(op.location).place(clone(op, [copies[v] for v in op.operands]))
            copies.update(zip(op.results, copy.results, strict=True))
        emit.place(weight.Yield([copies[value]]))
        assert isinstance(value.type, TensorType)
        sources = tuple([Symbol(name) for name in symbols])
        made = weight.Derived(body, self._name(symbols), value.type, sources)
        key = (fingerprint(made), sources)
        if key not in self.known:
            self.known[key] = made
            emit = Builder(self.module.body, emit.location)
            emit.place(made)
        return self.known[key]

    def _name(self, symbols: Iterable[str]) -> str:
        """A name after the first weight that it is made of."""
        first = next(iter(symbols), "constant")
        number = len(self.known)
        while self.module.symbol(f"{first}.derived{number}") is not None:
            number += 1
        return f"{first}.derived{number}"


def _largest(constant: dict[Value, None]) -> Iterable[Value]:
    """The values from weights alone that something else needs; behind repetitions, what is repeated."""
    found: dict[Value, None] = {}
    for value in constant:
        if all(result in constant for user in value.uses for result in user.results) and all(
            user.results for user in value.uses
        ):
            continue
        while isinstance(value.op, array.Broadcast):
            value = value.op.source
        found[value] = None
    return found


def _cone(value: Value) -> list[Op]:
    """The operations that a value depends on, each after those that it needs."""
    order: dict[Op, None] = {}
    pending = [value]
    while pending:
        op = pending[-1].op
        assert op is not None
        missing = [v for v in op.operands if v.op not in order]
        if missing and op not in order:
            pending.extend(missing)
            continue
        order.setdefault(op)
        pending.pop()
    return list(order)
