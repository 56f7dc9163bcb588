"""The ranges of what an optimizer and a schedule are called with, as far as the text has numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from dlc.errors import ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.calls import Function
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.values import Arguments, Callee, Datum, Partial, describe
from dlc.frontend.modules.instances import Core
from dlc.text.source import Span

__all__ = ["check_optimizer"]


class _Range(NamedTuple):
    """Numbers from `low` on, below `high`; `open` leaves out `low` itself."""

    low: float
    high: float = math.inf
    open: bool = False

    def holds(self, value: float) -> bool:
        return self.low <= value < self.high and not (self.open and value == self.low)

    @property
    def told(self) -> str:
        if self.high < math.inf:
            return f"from {self.low:g} to less than {self.high:g}"
        return f"above {self.low:g}" if self.open else f"from {self.low:g} on"


_POSITIVE, _RATE, _MEAN = _Range(0, open=True), _Range(0), _Range(0, 1)
_EVERYWHERE: Final = {"lr": _RATE, "clip_norm": _POSITIVE, "clip_value": _POSITIVE}
_LIBRARY: Final = {
    **_EVERYWHERE,
    **dict.fromkeys(("momentum", "beta1", "beta2", "decay"), _MEAN),
    **dict.fromkeys(("eps", "weight_decay"), _RATE),
}
_SCHEDULE: Final = {
    **dict.fromkeys(("steps", "every"), _Range(1)),
    **dict.fromkeys(("warmup", "peak", "start", "floor", "factor"), _RATE),
}
_EXAMPLES: Final = {"lr": "lr=1e-3, or a schedule: lr=cosine(peak=1e-3)"}


def check_optimizer(ev: Evaluator, core: Core, span: Span, *, library: bool) -> None:
    """Refuse numbers that no training uses; an optimizer of the user's own may use its names as it likes.

    Raises ModelError (D0534) with the name, what it may be, and what it is.
    """
    ranges = (
        _LIBRARY if library else {name: _EVERYWHERE[name] for name in ("clip_norm", "clip_value")}
    )
    for name, range in ranges.items():
        value = core.arguments.get(name)
        if name in core.arguments and not (name == "lr" and isinstance(value, Callee)):
            _check(ev, name, value, range, span)
    schedule = core.arguments.get("lr")
    if isinstance(schedule, Partial) and isinstance(schedule.function, Function):
        _check_arguments(ev, schedule.function, schedule.arguments)
        if library:
            _check_schedule(ev, schedule.function, schedule.arguments, span)


def _check_arguments(ev: Evaluator, function: Function, arguments: Arguments) -> None:
    """Refuse at the call what would be refused where the optimizer calls the schedule with a step."""
    step, *parameters = function.declaration.parameters
    names = [parameter.name for parameter in parameters]
    name = function.declaration.name
    told = f"it is {name}({', '.join(names)}), a function of the {step.name} besides"
    for given, argument in arguments.named.items():
        if given not in names:
            help = did_you_mean(given, names) or told
            raise ev.at.fail("D0208", f"{name} has no parameter {given}", argument.span, help=help)
    rest = parameters[len(arguments.positional) :]
    for parameter in rest:
        if parameter.default is None and parameter.name not in arguments.named:
            message = f"{name} needs {parameter.name}"
            raise ev.at.fail("D0208", message, arguments.span, help=told)


def _check_schedule(ev: Evaluator, function: Function, arguments: Arguments, span: Span) -> None:
    """Refuse numbers of a schedule of the library with which it has no course."""
    if function.declaration.name not in ("constant", "cosine", "slope", "staircase"):
        return
    given: dict[str, Datum] = {name: item.value for name, item in arguments.named.items()}
    for name, range in _SCHEDULE.items():
        if name in given:
            _check(ev, name, given[name], range, span)
    _check_course(ev, given, span)


def _check_course(ev: Evaluator, given: Mapping[str, Datum], span: Span) -> None:
    steps, warmup = given.get("steps"), given.get("warmup")
    if isinstance(steps, int) and isinstance(warmup, int) and warmup >= steps:
        raise ev.at.fail(
            "D0534",
            f"the schedule ends at step {steps:,} and rises up to step {warmup:,}",
            span,
            help="take a warmup that is shorter than steps",
        )


def _check(ev: Evaluator, name: str, value: Datum, range: _Range, span: Span) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if range.holds(value):
            return
    elif not isinstance(value, str | bool):
        return  # none, or a value that only a step knows
    raise _refused(ev, name, value, range, span)


def _refused(ev: Evaluator, name: str, value: Datum, range: _Range, span: Span) -> ModelError:
    found = f"{value:g}" if isinstance(value, int | float) else describe(value)
    return ev.at.fail(
        "D0534",
        f"{name} is a number {range.told}, found {found}",
        span,
        help=f"write {_EXAMPLES.get(name, f'{name}={_usual(range)}')}",
    )


def _usual(range: _Range) -> str:
    return "0.9" if range.high < math.inf else "1" if range.open or range.low else "0"
