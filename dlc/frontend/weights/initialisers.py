"""Initial values of a weight: an initialiser, which stays a text, or a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from dlc.errors.suggest import suggest
from dlc.frontend.elaboration.calls import arguments_of, bind
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.literals import literal
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.values import describe
from dlc.frontend.elaboration.weight import Origin
from dlc.ir.types import DType
from dlc.text.model import ast
from dlc.text.source import Span

__all__ = ["INITIALISERS", "origin_of"]

INITIALISERS: Final[Mapping[str, tuple[tuple[str, float | None], ...]]] = {
    "zeros": (),
    "ones": (),
    "constant": (("value", None),),
    "normal": (("scale", 1.0),),
    "uniform": (("low", 0.0), ("high", 1.0)),
    "glorot_uniform": (),
    "glorot_normal": (),
    "he_uniform": (),
    "he_normal": (),
    "orthogonal": (("gain", 1.0),),
}
"""The parameters of each initialiser with their defaults; None for one that must be given."""

FILES: Final = ("file", "npz")


def origin_of(
    ev: Evaluator, node: ast.Expr | None, scope: Scope, dtype: DType | None = None
) -> Origin:
    """The initial value after the `=` of a `param` or `state` of that dtype, or of a tensor in a file."""
    if node is None:
        return Origin()
    if isinstance(node, ast.Call) and isinstance(node.function, ast.Name):
        name = node.function.name
        if name in INITIALISERS:
            return Origin(init=_text(ev, name, node, scope, dtype))
        if name in FILES:
            return _file(ev, name, node, scope)
    value = ev.eval(node, scope) if isinstance(node, ast.Number | ast.Unary | ast.Name) else None
    if isinstance(value, int | float):
        return Origin(init=f"constant({_constant(ev, value, node.span, dtype)!r})")
    raise _no_initialiser(ev, node)


def _constant(ev: Evaluator, value: float, span: Span, dtype: DType | None) -> float:
    """The number that a weight of that dtype starts with."""
    ev.at.stand(span)
    return float(value if dtype is None else literal(ev.at, value, dtype))


def _no_initialiser(ev: Evaluator, node: ast.Expr) -> Exception:
    name = None
    if isinstance(node, ast.Call) and isinstance(node.function, ast.Name):
        name = node.function.name
    elif isinstance(node, ast.Name):
        name = node.name
    near = None if name is None else suggest(name, [*INITIALISERS, *FILES])
    help = f"it may be a number, {', '.join(INITIALISERS)}, or file(...)"
    if name in INITIALISERS:
        help = f"write {name}()"
    elif near is not None:
        help = f"did you mean {near}(...)?"
    return ev.at.fail("D0220", "this does not say how a weight starts", node.span, help=help)


def _text(ev: Evaluator, name: str, node: ast.Call, scope: Scope, dtype: DType | None) -> str:
    """An initialiser with its numbers, in order: `normal(0.02)`."""
    parameters = INITIALISERS[name]
    given = arguments_of(ev, node, scope)
    bound = bind(ev, name, [(p, default is None) for p, default in parameters], given)
    numbers: list[float] = []
    for parameter, default in parameters:
        argument = bound.get(parameter)
        if argument is None:
            assert default is not None
            numbers.append(default)
            continue
        value = argument.value
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ev.at.fail(
                "D0320",
                f"{parameter} of {name} is a number, found {describe(value)}",
                argument.span,
            )
        if name == "constant":
            value = _constant(ev, value, argument.span, dtype)
        numbers.append(float(value))
    if not bound:
        numbers = []
    return f"{name}({', '.join(map(repr, numbers))})"


def _file(ev: Evaluator, name: str, node: ast.Call, scope: Scope) -> Origin:
    """`file("w.safetensors", "fc.weight")`, `npz("w.npz", "w")`."""
    given = arguments_of(ev, node, scope)
    bound = bind(ev, name, [("path", True), ("key", False)], given)
    texts: list[str | None] = []
    for parameter in ("path", "key"):
        argument = bound.get(parameter)
        if argument is not None and not isinstance(argument.value, str):
            raise ev.not_known(argument.value, "a text in quotes", argument.span)
        texts.append(None if argument is None else str(argument.value))
    path, key = texts
    assert path is not None
    return Origin(file=beside(scope, path), key=key)


def beside(scope: Scope, path: str) -> str:
    """A path that a text names, from the folder of the root text."""
    return str(PurePosixPath(scope.home.source.name).parent / path)
