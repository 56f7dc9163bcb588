"""Weight folding: values computed from weights and constants alone are computed once, at load time.

The last such values become derived weights. A broadcast stays where it is: it is free in the kernel that
reads it, and would only make the weight larger. So does a cast from i16 to floats: products read integers
as they are stored (`dlc.passes.kernel.fold_operands`). On a CPU so does a cast of the right factor of
products from 16-bit floats, which are widened in registers (`dlc.passes.kernel.pack`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeGuard

from dlc.dialects import array, flow, kernel, weight
from dlc.dialects.builtin import Module
from dlc.dialects.measured import dims_of
from dlc.ir.attributes import Symbol
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.fingerprint import fingerprint
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Gone
from dlc.ir.types import BF16, F16, F32, I16, DType, TensorType
from dlc.passes.graph.canonicalize import graph_blocks
from dlc.target import cpu_of


@define_pass("fold_weights")
def fold_weights(module: Op, context: Context, *, products_widen: bool = False) -> None:
    """Turn values computed from weights alone into derived weights.

    With `products_widen` casts of their factors are left to products.
    """
    assert isinstance(module, Module)
    for op in [op for op in module.walk() if isinstance(op, flow.If)]:
        _get_inside(op, context)
    widened = widened_by_products(context) if products_widen else ()
    folding = _Folding(module, context, widened)
    for block in graph_blocks(module):
        if not isinstance(block.parent, kernel.Kernel | weight.Derived):
            folding.block(block)


def _get_inside(choice: flow.If, context: Context) -> None:
    """Get the weights that a choice is given in its branches, whose values from weights are folded, too."""
    branches = choice.then, choice.otherwise
    kept = list(choice.inputs)
    for number, value in reversed(list(enumerate(choice.inputs))):
        if not isinstance(value.op, weight.Get):
            continue
        for branch in branches:
            argument = branch.arguments[number]
            emit = Builder(branch, choice.location, branch.first)
            own = emit(weight.Get(value.op.symbol, value.op.type), argument.name)
            context.values.replaced(argument, own, EQUAL)
            argument.replace_by(own)
            branch.remove_argument(number)
        del kept[number]
    choice.set_operands([choice.condition, *kept])


def loop_weights(module: Op) -> set[Value]:
    """What loops are given of weights: arguments of their bodies, slices and constants."""
    given: set[Value] = set()
    known: dict[Block, set[Value]] = {}
    for loop in [op for op in module.walk() if isinstance(op, flow.Scan)]:
        assert loop.parent is not None
        if loop.parent not in known:
            from_weights = values_from_weights(loop.parent, given)
            known[loop.parent] = given.union(from_weights)
        inside, outside = (*loop.slices, *loop.invariants), (*loop.xs, *loop.constants)
        for argument, value in zip(inside, outside, strict=True):
            if value in known[loop.parent]:
                given.add(argument)
    return given


def values_from_weights(block: Block, given: Collection[Value] = ()) -> dict[Value, None]:
    """The values of a block that depend on weights and constants only, in order.

    Each depends on at least one weight, one of the arguments `given`, or a constant of several numbers:
    imported networks keep small weights in such constants.
    """
    weights: dict[Value, None] = {value: None for value in block.arguments if value in given}
    constant: set[Value] = set(weights)
    for op in block:
        if isinstance(op, weight.Get) or _is_table(op):
            constant.update(op.results)
            weights.update(dict.fromkeys(op.results))
        elif all(value in constant for value in op.operands) and _computes_now(op):
            constant.update(op.results)
            if any(value in weights for value in op.operands):
                weights.update(dict.fromkeys(op.results))
    return weights


def _computes_now(op: Op) -> bool:
    """Whether an operation may be computed when weights are loaded: sizes are known in calls only."""
    inside = [inner for inner in op.walk() if not inner.terminator]
    return not dims_of(op) and all(
        inner.pure and (isinstance(inner, flow.Scan) or not inner.regions) for inner in inside
    )


def _is_table(op: Op) -> bool:
    """Whether an operation is a constant of several numbers."""
    return isinstance(op, array.Constant) and not op.value.is_splat


class _Folding:
    def __init__(self, module: Module, context: Context, widened: Collection[DType]) -> None:
        self.module = module
        self.context = context
        self.widened = widened
        self.derived: dict[tuple[object, ...], weight.Derived] = {}
        self.names = {name for name, _ in module.symbols()}

    def block(self, block: Block) -> None:
        for op in list(block):
            _cast_after_move(op)
        from_weights = values_from_weights(block)
        for value in list(roots(from_weights, self.widened)):
            if value.op is None or _is_view(value):
                continue
            derived = self._derive(value)
            emit = Builder.before_op(value.op)
            new = emit(weight.Get(Symbol(derived.sym_name), derived.type), value.name)
            self.context.log.did("compute when weights are loaded", value)
            loaded = Gone("computed when weights are loaded")
            self.context.values.replaced(value, None, loaded)
            value.replace_by(new)
            self.context.values.unread(value, loaded)

    def _derive(self, value: Value) -> weight.Derived:
        """The derived weight with this value."""
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
            regions = [clone_block(region) for region in op.regions]
            copy = emit.at(op.location).place(clone(op, [copies[v] for v in op.operands], regions))
            copies.update(zip(op.results, copy.results, strict=True))
        emit.place(weight.Yield([copies[value]]))
        assert isinstance(value.type, TensorType)
        sources = tuple([Symbol(name) for name in symbols])
        derived = weight.Derived(body, self._name(symbols), value.type, sources)
        key = (fingerprint(derived), sources)
        if key not in self.derived:
            self.derived[key] = derived
            emit = Builder(self.module.body, emit.location)
            emit.place(derived)
            self.names.add(derived.sym_name)
        return self.derived[key]

    def _name(self, symbols: Iterable[str]) -> str:
        """An unused name, after the first weight that it is computed from."""
        first = next(iter(symbols), "constant")
        number = len(self.derived)
        while f"{first}.derived{number}" in self.names:
            number += 1
        return f"{first}.derived{number}"


def _is_view(value: Value) -> bool:
    """Whether a value is an argument, a weight or a constant, perhaps in another shape."""
    while isinstance(value.op, array.Reshape):
        value = value.op.source
    return value.op is None or isinstance(value.op, weight.Get | array.Constant)


def roots(from_weights: dict[Value, None], widened: Collection[DType] = ()) -> Iterable[Value]:
    """The values from weights alone that other operations read, before broadcasts and casts that stay.

    These are casts from i16, and those from `widened` that products read as their right factors.
    """
    roots: dict[Value, None] = {}
    for value in from_weights:
        if all(result in from_weights for user in value.uses for result in user.results) and all(
            user.results for user in value.uses
        ):
            continue
        while isinstance(value.op, array.Broadcast) or _stays(value.op, widened):
            (value,) = value.op.operands
        roots[value] = None
    return roots


def _cast_after_move(op: Op) -> None:
    """Let numbers of 16 bits be moved before they are cast to floats, not after."""
    if not isinstance(op, array.Transpose | array.Reshape) or not _is_widening(op.source.op):
        return
    emit, cast = Builder.before_op(op), op.source.op
    moved = emit(clone(op, [cast.source]))
    op.result.replace_by(emit(array.Cast(moved, cast.dtype), op.result.name))
    op.erase()


def _is_widening(op: Op | None) -> TypeGuard[array.Cast]:
    """Whether an operation casts numbers of 16 bits to floats."""
    return (
        isinstance(op, array.Cast)
        and op.dtype.is_float
        and array.tensor_type(op.source).dtype in (I16, F16, BF16)
    )


def _stays(op: Op | None, widened: Collection[DType]) -> TypeGuard[array.Cast]:
    """Whether products do a cast as they read its source."""
    if not _is_widening(op):
        return False
    dtype = array.tensor_type(op.source).dtype
    factors = [isinstance(use, array.MatMul) and use.lhs is not op.result for use in op.result.uses]
    return dtype is I16 or (dtype in widened and op.dtype is F32 and all(factors))


def widened_by_products(context: Context) -> tuple[DType, ...]:
    """The dtypes that a product of f32 on a CPU widens as it reads its right factor."""
    return (BF16, F16) if cpu_of(context.options).converts_half else (BF16,)


def _cone(value: Value) -> list[Op]:
    """The operations that a value depends on, in topological order."""
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
