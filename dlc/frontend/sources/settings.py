"""Settings from outside, `--set hidden=256`, as values for the parameters of the root module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from dlc.errors import Diagnostic, ModelError, UsageError
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.values import Datum, Items
from dlc.frontend.sources.files import File
from dlc.text.model import ast
from dlc.text.model.parser import parse
from dlc.text.source import Source

__all__ = ["blaming_settings", "setting_value"]


def setting_value(
    ev: Evaluator, file: File, module: str, parameter: ast.Parameter, setting: object
) -> Datum:
    """A setting as a value: a number, or a text that is read as an expression.

    Where the default is a text, so is the setting, with or without quotes. Raises UsageError for what is
    no value, and for one of another kind than the default.
    """
    default = _default(ev, file, parameter)
    if isinstance(setting, str):
        if isinstance(default, str) and not setting.startswith('"'):
            return setting
        value = _read(ev, file, parameter.name, setting)
    else:
        assert isinstance(setting, bool | int | float | Items)
        value = setting
    if not _is_alike(value, default):
        raise UsageError(
            f"{parameter.name} of {module} is {_kind(default)}, it cannot be set to {_kind(value)}"
        )
    return value


def _default(ev: Evaluator, file: File, parameter: ast.Parameter) -> Datum:
    """The default of the parameter; None where it depends on other parameters."""
    if parameter.default is None:
        return None
    try:
        with ev.at.discarded():
            return ev.eval(parameter.default, Scope(file))
    except (ModelError, Poisoned):
        return None


def _read(ev: Evaluator, file: File, name: str, setting: str) -> Datum:
    source = Source(f"--set {name}", f"dlc 1\nconst value = {setting}")
    parsed = parse(source)
    items = parsed.file.items
    if parsed.errors or len(items) != 1 or not isinstance(items[0], ast.Const):
        raise UsageError(f"{name} is set to {setting!r}, which is not a value")
    try:
        with ev.elsewhere(source):
            return ev.eval(items[0].value, Scope(file))
    except ModelError as error:
        first = error.diagnostics[0]
        raise UsageError(f"{name} is set to {setting}: {first.message}", help=first.help) from None


def _is_alike(value: Datum, default: Datum) -> bool:
    """Whether a value may replace the default."""
    if default is None or type(value) is type(default):
        return True
    if isinstance(default, float) and type(value) is int:
        return True
    plain = (bool, int, float, str, Items)
    return not isinstance(default, plain) and not isinstance(value, plain)


def _kind(value: Datum) -> str:
    match value:
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "a text"
        case Items():
            return "a list"
        case _:
            return "a function or a dtype"


def blaming_settings(diagnostic: Diagnostic, settings: Mapping[str, object]) -> Diagnostic:
    """The error, with a word about the setting that has the number which it complains of."""
    for name, value in settings.items():
        number = rf"(?<![\w.]){re.escape(str(value))}(?![\w.])"
        if diagnostic.help is None and re.search(number, diagnostic.message):
            return replace(diagnostic, help=f"{name} is set to {value}: give another value")
    return diagnostic
