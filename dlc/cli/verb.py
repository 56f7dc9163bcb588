"""The words of a verb, looked at before the library reads them, so that what is wrong is said in our form.

The library has sentences of its own, which change with its version; what passes here it can read.
"""

from __future__ import annotations

import inspect
import math
import re
from typing import cast, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.models import OptionInfo

from dlc.errors import UsageError
from dlc.errors.suggest import did_you_mean

__all__ = ["UNREADABLE", "Verb", "misread", "refused"]

UNREADABLE = cast("type[Exception]", typer.BadParameter.__base__)
"""The exception that typer raises for a command line that it cannot read."""

_WHOLE = re.compile(r"-?[0-9]{1,4000}")
"""Python reads no longer ones."""


def refused(message: str, help: str) -> UsageError:
    """The error for a command line that cannot be read."""
    return UsageError(message, code="D0901", help=help)


class Verb(TyperCommand):
    """A verb that takes each option once, but for those that list several values."""

    def parse_args(  # pyright: ignore[reportIncompatibleMethodOverride] - its own type is private
        self, ctx: typer.Context, args: list[str]
    ) -> list[str]:
        """The arguments that are left. Raises UsageError (D0901) for those that the verb does not take."""
        if not ctx.resilient_parsing:
            self._check(ctx, args)
        return super().parse_args(ctx, args)

    def _check(self, ctx: typer.Context, args: list[str]) -> None:
        verb = ctx.command_path
        try:
            values, rest, options = self.make_parser(ctx).parse_args(args=list(args))
        except UNREADABLE as error:
            raise misread(verb, self._options(), error) from None
        if values.get("help"):
            return
        self._check_arguments(verb, values, rest)
        numbers = self._numbers()
        for option in options:
            if not isinstance(option, TyperOption) or option.is_flag:
                continue
            name = option.opts[-1]
            if options.count(option) > 1 and not option.multiple:
                raise refused(f"{name} is given twice", f"write {name} once")
            if option.name in numbers:
                _check_number(name, str(values[option.name]), *numbers[option.name])

    def _options(self) -> dict[str, TyperOption]:
        options = [each for each in self.params if isinstance(each, TyperOption)]
        return {name: option for option in options for name in option.opts}

    def _check_arguments(self, verb: str, values: dict[str, object], rest: list[str]) -> None:
        """Every argument is there, and no word beside them."""
        for argument in self.params:
            if isinstance(argument, TyperArgument) and argument.required:
                name = argument.name.upper()
                if values.get(argument.name) is None:
                    raise refused(f"the argument {name} is missing", f"write {verb} {name}")
        if rest:
            help = f"{verb} --help lists what there is"
            if "=" in rest[0] and "--input" in self._options():
                help = f"did you mean --input {rest[0]}?"
            elif rest[0].isidentifier() and "--entry" in self._options():
                help = f"an entry point is named by --entry {rest[0]}"
            raise refused(f"{rest[0]!r} is more than {verb} takes", help)

    def _numbers(self) -> dict[str, tuple[type[int | float], OptionInfo]]:
        """The options that are numbers, each with its bounds."""
        assert self.callback is not None
        found: dict[str, tuple[type[int | float], OptionInfo]] = {}
        for name, parameter in inspect.signature(self.callback, eval_str=True).parameters.items():
            type, *facts = get_args(parameter.annotation) or (None,)
            for kind in (int, float):
                if kind in (type, *get_args(type)) and isinstance(facts[0], OptionInfo):
                    found[name] = (kind, facts[0])
        return found


def _check_number(name: str, text: str, kind: type[int | float], bounds: OptionInfo) -> None:
    number = _number(text, kind)
    if number is None:
        what = "whole number" if kind is int else "number"
        raise refused(f"{name} {text!r} is not a {what}", f"write {name} {bounds.min or 1:g}")
    low, high = bounds.min, bounds.max
    if (low is not None and number < low) or (high is not None and number > high):
        limits = f"{low:g} or more" if high is None else f"{low:g} to {high:g}"
        raise refused(f"{name} is {text}, where {limits} is expected", f"write {name} {low:g}")


def _number(text: str, kind: type[int | float]) -> int | float | None:
    if kind is int:
        return int(text) if _WHOLE.fullmatch(text) else None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def misread(verb: str, options: dict[str, TyperOption], error: Exception) -> UsageError:
    """The library's complaint in our form: with the option that it is about, and a way out."""
    lists = f"{verb} --help lists what there is"
    name: object = getattr(error, "option_name", None)
    if not isinstance(name, str):
        describe = getattr(error, "format_message", error.__str__)
        message = str(describe()).rstrip(".")
        return refused(message[:1].lower() + message[1:], lists)
    option = options.get(name)
    if option is None:
        return refused(f"{verb} has no option {name}", did_you_mean(name, options) or lists)
    if option.is_flag:
        return refused(f"{name} takes no value", f"write {name} alone")
    value = (option.metavar or option.name).upper()
    return refused(f"{name} has no value", f"write {name} {value}")
