"""Entries of a `train` block that are known when the text is compiled: numbers, texts, a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dlc.errors import ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.values import describe
from dlc.frontend.modules.instances import Instance
from dlc.frontend.weights.initialisers import beside
from dlc.runtime.data.source import Setting
from dlc.text.model import ast

__all__ = ["MOST", "called", "checkpoint", "constant", "whole"]

SAFETENSORS: Final = ".safetensors"
MOST = (1 << 32) - 1
"""The largest whole number that an entry may be: more epochs, examples and seeds than anyone needs."""


def called(
    ev: Evaluator, entry: ast.Setting, known: Sequence[str], example: str
) -> tuple[str, ast.Call] | None:
    """The name of the function that an entry calls, one of those known; else None, which is recorded."""
    call = entry.value
    help = f"write {entry.name} = {example}"
    if isinstance(call, ast.Call) and isinstance(call.function, ast.Name):
        if call.function.name in known:
            return call.function.name, call
        help = did_you_mean(call.function.name, known) or help
    ev.report(
        ev.at.fail(
            "D0530",
            f"{entry.name} is none of {', '.join(known)}",
            call.span,
            help=help,
        )
    )
    return None


def constant(ev: Evaluator, root: Instance, node: ast.Expr) -> Setting:
    """The number or text that an expression is; None if it is none, which is recorded."""
    try:
        value = ev.eval(node, Scope(root))
    except ModelError as error:
        ev.report(error)
        return None
    if not isinstance(value, bool | int | float | str):
        message = f"expected a number or a text, found {describe(value)}"
        ev.report(ev.at.fail("D0534", message, node.span))
        return None
    return value


def whole(ev: Evaluator, root: Instance, entry: ast.Setting, least: int) -> int:
    """The whole number from `least` on that an entry is; `least` if it is none, which is recorded."""
    value = constant(ev, root, entry.value)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST:
        return value
    message = f"{entry.name} is a whole number from {least} to {MOST}, found {value}"
    help = f"write {entry.name} = {max(least, 1)}"
    ev.report(ev.at.fail("D0534", message, entry.value.span, help=help))
    return least


def checkpoint(ev: Evaluator, root: Instance, entry: ast.Setting) -> tuple[str, int] | None:
    """The file of `checkpoint = file(PATH, every=N)`, and how many epochs lie between two."""
    found = called(ev, entry, ("file",), 'file("model.safetensors", every=1)')
    if found is None:
        return None
    _, call = found
    named = {item.name: item.value for item in call.arguments if item.name is not None}
    positional = [item.value for item in call.arguments if item.name is None]
    every = constant(ev, root, named.pop("every")) if "every" in named else 1
    whole_number = isinstance(every, int) and not isinstance(every, bool) and every >= 1
    match positional:
        case [ast.String(value=path)] if whole_number and not named:
            assert isinstance(every, int)
            if not path.endswith(SAFETENSORS):
                message = f"a checkpoint is a file of safetensors, and {path} does not end so"
                help = 'write checkpoint = file("model.safetensors")'
                ev.report(ev.at.fail("D0534", message, call.span, help=help))
            return beside(Scope(root), path), every
        case _:
            ev.report(
                ev.at.fail(
                    "D0534",
                    "a checkpoint is a file, and perhaps how many epochs lie between two",
                    call.span,
                    help='write checkpoint = file("model.safetensors", every=1)',
                )
            )
            return None
