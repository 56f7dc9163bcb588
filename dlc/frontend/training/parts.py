"""Parts of the trained module: what `freeze`, `eval` and `optimizer(PART)` of a `train` block name.

A part is written as a path of members: `backbone`, `net.0`, `decoder.blocks`, `head.w`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dlc.dialects import weight
from dlc.errors import ModelError
from dlc.frontend.elaboration.definitions import MemberNode
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.values import UNKNOWN, Datum, Items, describe
from dlc.frontend.modules.chains import Chain
from dlc.frontend.modules.instances import Core, Instance, Stack, cores_in
from dlc.frontend.modules.roots import instances_of, weights_of
from dlc.ir.core import Value
from dlc.text.model import ast

__all__ = ["Part", "in_eval_mode", "parts_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the trained module: its modules, and the symbols of all weights and states in it."""

    written: ast.Expr
    cores: tuple[Core, ...]
    symbols: tuple[str, ...]


def parts_of(ev: Evaluator, root: Instance, nodes: Sequence[ast.Expr]) -> list[Part]:
    """The parts at these paths; a tuple names several. What is wrong is recorded (D0550)."""
    parts: list[Part] = []
    for node in _flat(nodes):
        try:
            parts.append(_part(ev, root, node))
        except ModelError as error:
            ev.report(error)
        except Poisoned:
            pass
    return parts


def _flat(nodes: Sequence[ast.Expr]) -> Iterator[ast.Expr]:
    for node in nodes:
        if isinstance(node, ast.Tuple):
            yield from _flat([item.value for item in node.items])
        else:
            yield node


def _part(ev: Evaluator, root: Instance, node: ast.Expr) -> Part:
    value = _member(ev, root, node)
    if isinstance(value, Value):
        return Part(node, (), (_symbol(ev, value, node),))
    cores = _cores(value)
    instances = [core for outer in cores for core in instances_of(Instance(outer))]
    symbols = [item.symbol for item in weights_of(instances)]
    if not cores:
        message = f"{describe(value)} is not a part of {root.core.definition.name}"
        raise _refused(ev, node, message, "name a weight or a submodule")
    if _is_one_of_a_stack(value):
        raise _refused(
            ev,
            node,
            "the blocks of a stack are trained together: their weights are one tensor",
            "name the whole stack, or write the blocks as a list: [for k in [0, 1]: Block(...)]",
        )
    return Part(node, tuple(instances), tuple(dict.fromkeys(symbols)))


def _member(ev: Evaluator, root: Instance, node: ast.Expr) -> Datum:
    """The member at a path, which is evaluated as an expression of the module."""
    inner = node
    while isinstance(inner, ast.Attribute | ast.Index):
        inner = inner.value
    if not isinstance(inner, ast.Name) or inner.name not in root.core.definition.members:
        name = root.core.definition.name
        members = [n for n, m in root.core.definition.members.items() if _holds_weights(m)]
        known = f"{name} has {', '.join(members)}" if members else f"{name} has no weights"
        what = inner.name if isinstance(inner, ast.Name) else "this"
        raise _refused(ev, inner, f"{what} is not a part of {name}", known)
    with ev.at.scratch():
        value = ev.eval(node, Scope(root))
    if value is UNKNOWN:
        raise Poisoned
    return value


def _holds_weights(node: MemberNode) -> bool:
    return isinstance(node, ast.Param | ast.Use)


def _symbol(ev: Evaluator, value: Value, node: ast.Expr) -> str:
    """The symbol of a weight that is named by itself."""
    if isinstance(value.op, weight.Get):
        return value.op.symbol.name
    raise _refused(
        ev,
        node,
        "this is computed from a weight, or a part of one",
        "name the weight, or the module that it is in",
    )


def _cores(value: Datum) -> list[Core]:
    return list(dict.fromkeys(cores_in(value)))


def _is_one_of_a_stack(value: Datum) -> bool:
    match value:
        case Instance(picks=picks) | Stack(picks=picks):
            return bool(picks)
        case Chain(layers) | Items(layers):
            return any(_is_one_of_a_stack(layer) for layer in layers)
        case _:
            return False


def _refused(ev: Evaluator, node: ast.Expr, message: str, help: str | None = None) -> ModelError:
    return ev.at.fail("D0550", message, node.span, help=help)


@contextmanager
def in_eval_mode(parts: Sequence[Part]) -> Generator[None]:
    """Meanwhile `training` is false in the functions of these parts, and in all that they call."""
    cores = [core for part in parts for core in part.cores]
    for core in cores:
        core.trains = False
    try:
        yield
    finally:
        for core in cores:
            core.trains = True
