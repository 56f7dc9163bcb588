"""Checks of a verb's arguments before the command-line library parses them, so that errors have dlc's form.

The library's own messages change with its version; whatever passes these checks, it can parse.
"""

from __future__ import annotations

import inspect
import math
import re
from typing import Literal, cast, get_args, get_origin

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
        self._check_choices(verb, values)
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
        arguments = [each for each in self.params if isinstance(each, TyperArgument)]
        for argument in arguments:
            if argument.required and values.get(argument.name) is None:
                name = argument.name.upper()
                raise refused(f"the argument {name} is missing", f"write {self._least(verb)}")
        for option in self._options().values():
            if option.required and values.get(option.name) is None:
                raise refused(f"{option.opts[0]} is missing", f"write {self._least(verb)}")
        if rest:
            help = f"{verb} --help lists what there is"
            if "=" in rest[0] and "--input" in self._options():
                help = f"did you mean --input {rest[0]}?"
            elif rest[0].isidentifier() and "--entry" in self._options():
                help = f"an entry point is named by --entry {rest[0]}"
            raise refused(f"{rest[0]!r} is more than {verb} takes", help)

    def _least(self, verb: str) -> str:
        """The verb with all that it needs."""
        arguments = [each for each in self.params if isinstance(each, TyperArgument)]
        words = [each.name.upper() for each in arguments if each.required]
        for option in dict.fromkeys(self._options().values()):
            if option.required:
                words.append(f"{option.opts[0]} {option.metavar or option.name.upper()}")
        return " ".join([verb, *words])

    def _check_choices(self, verb: str, values: dict[str, object]) -> None:
        """Every word that is one of a few is one of them."""
        names = {each.name: each.opts[0] for each in self._options().values()}
        for name, choices in self._choices().items():
            given = values.get(name)
            if not isinstance(given, str) or given in choices:
                continue
            several = f"{', '.join(choices[:-1])} or {choices[-1]}"
            if name in names:
                found = f"{names[name]} is {given!r}, where {several} is expected"
                help = f"write {names[name]} {choices[0]}"
            else:
                found = f"{verb} has no {name} {given!r}"
                help = f"it has {', '.join(choices[:-1])} and {choices[-1]}"
            raise refused(found, did_you_mean(given, choices) or help)

    def _choices(self) -> dict[str, tuple[str, ...]]:
        """The words that an argument or option takes, where they are few."""
        assert self.callback is not None
        parameters = inspect.signature(self.callback, eval_str=True).parameters
        found = {name: _literals(each.annotation) for name, each in parameters.items()}
        return {name: choices for name, choices in found.items() if choices}

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


def _literals(annotation: object) -> tuple[str, ...]:
    """The texts of the first `Literal` in an annotation; none without one.

    >>> _literals(Literal["a", "b"] | None), _literals(int)
    (('a', 'b'), ())
    """
    parts: tuple[object, ...] = get_args(annotation)
    if get_origin(annotation) is Literal:
        return tuple([part for part in parts if isinstance(part, str)])
    found = [_literals(part) for part in parts]
    return next((choices for choices in found if choices), ())


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
