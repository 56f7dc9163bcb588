"""Entries of a `train` block that are known when the text is compiled: numbers, texts, a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Literal, ParamSpec, TypeVar

from dlc.errors import ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.values import describe
from dlc.frontend.modules.instances import Instance
from dlc.frontend.weights.initialisers import beside
from dlc.runtime.artifact.manifest import Watched
from dlc.runtime.data.source import Setting
from dlc.runtime.training.checkpoint import CHECKPOINT, INDEX
from dlc.text.model import ast

__all__ = [
    "MOST", "average", "called", "checkpoint", "constant", "if_known", "measured_by", "watched",
    "whole",
]  # fmt: skip

_Given = ParamSpec("_Given")
_Read = TypeVar("_Read")

MOST = (1 << 32) - 1
"""The largest whole number that an entry may be: more epochs, examples and seeds than anyone needs."""


def called(
    ev: Evaluator, entry: ast.Setting, known: Sequence[str], example: str
) -> tuple[str, ast.Call] | None:
    """The name of the function that an entry calls, one of those known; else None, which is recorded.

    So is None for a call that has an argument twice.
    """
    call = entry.value
    help = f"write {entry.name} = {example}"
    if isinstance(call, ast.Call) and isinstance(call.function, ast.Name):
        if call.function.name in known:
            names = [item.name for item in call.arguments]
            for k, item in enumerate(call.arguments):
                if item.name is not None and item.name in names[:k]:
                    message = f"{item.name} is given twice in the call of {call.function.name}"
                    ev.report(ev.at.fail("D0208", message, item.span, help="leave one of them out"))
                    return None
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


def if_known(read: Callable[_Given, _Read | None]) -> Callable[_Given, _Read | None]:
    """Let a function return None where a constant that it reads is wrong, which is recorded."""

    @wraps(read)
    def reading(*args: _Given.args, **named: _Given.kwargs) -> _Read | None:
        try:
            return read(*args, **named)
        except Poisoned:
            return None

    return reading


def constant(ev: Evaluator, root: Instance, node: ast.Expr) -> Setting:
    """The number or text that an expression is. Raises Poisoned if it is none, which is recorded."""
    try:
        value = ev.eval(node, Scope(root))
    except ModelError as error:
        ev.report(error)
        raise Poisoned from error
    if not isinstance(value, bool | int | float | str):
        message = f"expected a number or a text, found {describe(value)}"
        ev.report(ev.at.fail("D0534", message, node.span))
        raise Poisoned
    return value


@if_known
def whole(ev: Evaluator, root: Instance, entry: ast.Setting, least: int) -> int | None:
    """The whole number from `least` on that an entry is; None if it is none, which is recorded."""
    value = constant(ev, root, entry.value)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST:
        return value
    message = f"{entry.name} is a whole number from {least} to {MOST}, found {value}"
    help = f"write {entry.name} = {max(least, 1)}"
    ev.report(ev.at.fail("D0534", message, entry.value.span, help=help))
    return None


@if_known
def average(ev: Evaluator, root: Instance, entry: ast.Setting) -> float | None:
    """The decay of `average = ema(decay=0.999)`, a number between 0 and 1; None if it is wrong."""
    found = called(ev, entry, ("ema",), "ema(decay=0.999)")
    if found is None:
        return None
    _, call = found
    match call.arguments:
        case [ast.Argument(name=None | "decay", value=node)]:
            value = constant(ev, root, node)
        case _:
            value = None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1:
        return float(value)
    message = "ema takes its decay, a number above 0 and below 1"
    help = "write average = ema(decay=0.999)"
    ev.report(ev.at.fail("D0534", message, call.span, help=help))
    return None


@if_known
def watched(
    ev: Evaluator, root: Instance, entry: ast.Setting, function: str, known: Sequence[str]
) -> Watched | None:
    """What `stop = early(accuracy, mode="max", patience=5)` or `keep = best(loss)` watches.

    `known` are the loss, its parts and the metrics. None where it is wrong, which is recorded.
    """
    patient = function == "early"
    example = f"{function}(loss{', patience=5' if patient else ''})"
    found = called(ev, entry, (function,), example)
    if found is None:
        return None
    _, call = found
    named = {item.name: item.value for item in call.arguments if item.name is not None}
    patience = constant(ev, root, named.pop("patience")) if "patience" in named and patient else 1
    measure = measured_by(ev, root, entry, call, named, known, example)
    if measure is None:
        return None
    if not isinstance(patience, int) or isinstance(patience, bool) or patience < 1:
        message = f"patience is a number of epochs from 1 on, found {patience}"
        ev.report(ev.at.fail("D0534", message, call.span, help=f"write {entry.name} = {example}"))
        return None
    return Watched(*measure, patience)


def measured_by(
    ev: Evaluator,
    root: Instance,
    entry: ast.Setting,
    call: ast.Call,
    named: Mapping[str, ast.Expr],
    known: Sequence[str],
    example: str,
) -> tuple[str, Literal["min", "max"]] | None:
    """The measure that a call watches, and whether its least or its greatest value is the best.

    `named` are the arguments with names that nothing else has taken. None where it is wrong, which is
    recorded.
    """
    function = call.function.name if isinstance(call.function, ast.Name) else ""
    rest = dict(named)
    mode = constant(ev, root, rest.pop("mode")) if "mode" in rest else None
    positional = [item.value for item in call.arguments if item.name is None]
    match positional:
        case [ast.Name(name=metric)] if not rest and metric in known:
            pass
        case _:
            message = f"{function} takes the loss or a metric: one of {', '.join(known)}"
            help = f"write {entry.name} = {example}"
            ev.report(ev.at.fail("D0534", message, call.span, help=help))
            return None
    if metric == "loss":
        mode = mode or "min"
    if mode not in ("min", "max"):
        help = (
            f'write {function}({metric}, mode="min") if the smallest {metric} is the best, '
            'mode="max" if the greatest is'
        )
        message = f"{function}({metric}) does not say which {metric} is the best"
        ev.report(ev.at.fail("D0534", message, call.span, help=help))
        return None
    return metric, "max" if mode == "max" else "min"


@if_known
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
            if not path.endswith((CHECKPOINT, INDEX)):
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
