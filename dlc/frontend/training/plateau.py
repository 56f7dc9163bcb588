"""`rate = plateau(loss, factor=0.5, patience=3)`: the step of a training with such rates.

The trainer knows the measures, so each step is passed what part of the rates is left (`$rate`). Whatever an
optimizer calls `lr`, a number or a schedule, is multiplied by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dlc.dialects import array
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.tensors import as_tensor, convert
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Builtin, Callee, Datum, Parameter
from dlc.frontend.modules.instances import Core, Instance
from dlc.frontend.training.entries import called, constant, if_known, measured_by
from dlc.ir.core import Value
from dlc.ir.types import F32
from dlc.runtime.artifact.manifest import Plateau
from dlc.runtime.data.source import Setting
from dlc.text.model import ast

__all__ = ["lower_rates", "plateau"]

_EXAMPLE: Final = "plateau(loss, factor=0.5, patience=3)"
_RATES: Final = ("lr", "other_lr")
"""Parameters of optimizers that are learning rates."""
_DEFAULTS: Final[Mapping[str, Setting]] = {
    "factor": 0.1,
    "patience": 10,
    "threshold": 1e-4,
    "threshold_mode": "rel",
    "cooldown": 0,
    "least": 0.0,
}
"""Those of PyTorch's ReduceLROnPlateau."""


@if_known
def plateau(
    ev: Evaluator, root: Instance, entry: ast.Setting, known: Sequence[str]
) -> Plateau | None:
    """What `rate = plateau(...)` says; `known` are the loss, its parts and the metrics.

    None where it is wrong, which is recorded.
    """
    found = called(ev, entry, ("plateau",), _EXAMPLE)
    if found is None:
        return None
    _, call = found
    named = {item.name: item.value for item in call.arguments if item.name is not None}
    given: dict[str, Setting] = dict(_DEFAULTS)
    for name in _DEFAULTS:
        if name in named:
            given[name] = constant(ev, root, named.pop(name))
    measure = measured_by(ev, root, entry, call, named, known, _EXAMPLE)
    wrong = next((name for name, value in given.items() if not _is_right(name, value)), None)
    if wrong is not None:
        message = f"{wrong} of a plateau is {_RANGES[wrong]}, found {given[wrong]}"
        ev.report(ev.at.fail("D0534", message, call.span, help=f"write rate = {_EXAMPLE}"))
    if measure is None or wrong is not None:
        return None
    return Plateau(
        *measure,
        factor=str(given["factor"]),
        patience=int(str(given["patience"])),
        threshold=str(given["threshold"]),
        threshold_mode="abs" if given["threshold_mode"] == "abs" else "rel",
        cooldown=int(str(given["cooldown"])),
        least=str(given["least"]),
    )


_RANGES: Final = {
    "factor": "a number above 0 and below 1",
    "patience": "a whole number of epochs from 0 on",
    "threshold": "a number from 0 on",
    "threshold_mode": '"rel" or "abs"',
    "cooldown": "a whole number of epochs from 0 on",
    "least": "a number from 0 to 1",
}


def _is_right(name: str, value: Setting) -> bool:
    match name, value:
        case _, bool():
            return False
        case "patience" | "cooldown", int():
            return 0 <= value < 1 << 31
        case "threshold_mode", str():
            return value in ("rel", "abs")
        case "factor", int() | float():
            return 0 < value < 1
        case "threshold", int() | float():
            return 0 <= value < float("inf")
        case "least", int() | float():
            return 0 <= value <= 1
        case _:
            return False


def lower_rates(ev: Evaluator, core: Core) -> None:
    """Multiply the learning rates of an optimizer by the part that is left of them."""
    for name in _RATES:
        if name in core.arguments:
            core.arguments[name] = _lowered(ev, name, core.arguments[name])


def _lowered(ev: Evaluator, name: str, given: Datum) -> Builtin:
    """A schedule: the learning rate that was given, a number or a schedule, times what is left of it."""

    def run(at: Trace, step: Value) -> Value:
        rate = ev.apply(given, (step,)) if isinstance(given, Callee) else given
        assert at.rate is not None
        return at(array.Multiply(convert(at, as_tensor(at, rate, F32), F32), at.rate))

    parameters = (Parameter("step", "any"),)
    doc = "The learning rate at a step, as far as a plateau has left it."
    return Builtin(name, parameters, run, f"{name}(step: any)", doc, "", "", "", True)
