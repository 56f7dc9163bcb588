"""The options of passes, and their spelling in the text of a pipeline.

PIPELINE = PASS ("," PASS)*      PASS = NAME ["{" [OPTION ("," OPTION)*] "}"]
OPTION = NAME "=" VALUE          VALUE = an integer, a number, true or false
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import Parameter
from math import isfinite
from typing import TypeAlias, get_args

from dlc.errors import UsageError

OptionValue: TypeAlias = bool | int | float

_PASS = re.compile(r"\s*([^,{}\s]+)\s*(?:\{([^{}]*)\}\s*)?(?:,|$)")
_VALUES = {
    bool: "true or false",
    int: "an integer of at least 1",
    float: "a number that is not negative",
}


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter of a pass. Without a default it is what the whole compilation was told."""

    name: str
    kind: type[OptionValue]
    default: OptionValue | None

    def read(self, text: str, owner: str) -> OptionValue:
        """The value that a text spells, for the pass `owner`.

        Raises UsageError (D0902) where it is none: counts are at least 1, other numbers not negative.
        """
        value = _value(self.kind, text)
        if value is None:
            raise UsageError(
                f"option {self.name} of {owner} is {text!r}",
                code="D0902",
                help=f"give it {_VALUES[self.kind]}, as in {owner}{{{self.name}={self._example}}}",
            )
        return value

    @property
    def _example(self) -> str:
        return self.default_text or spelled(self.kind(1))

    @property
    def default_text(self) -> str:
        """The default as a text of passes has it; empty where the compilation says it."""
        return "" if self.default is None else spelled(self.default)

    def __str__(self) -> str:
        return f"{self.name}={self.default_text}" if self.default_text else self.name


def option_of(parameter: Parameter) -> Option:
    """The option that a keyword parameter of a pass's function is."""
    assert parameter.kind is Parameter.KEYWORD_ONLY, f"{parameter.name} must be given by name"
    assert parameter.default is not Parameter.empty, f"{parameter.name} needs a default"
    kinds = get_args(parameter.annotation) or (parameter.annotation,)
    (kind,) = [kind for kind in (bool, int, float) if kind in kinds]
    return Option(parameter.name, kind, parameter.default)


def spelled(value: OptionValue) -> str:
    """A value as a text of passes has it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _value(kind: type[OptionValue], text: str) -> OptionValue | None:
    if kind is bool:
        return {"true": True, "false": False}.get(text)
    try:
        value = kind(text)
    except ValueError:
        return None
    return value if isfinite(value) and value >= (1 if kind is int else 0) else None


def read_pipeline(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The passes that a text names, in order, each with its options and the texts of their values.

    Raises UsageError (D0902) for a text of another form.

    >>> list(read_pipeline("fuse{max_inputs=4},dce"))
    [('fuse', [('max_inputs', '4')]), ('dce', [])]
    """
    text = text.strip().removesuffix(",")
    start = 0
    while start < len(text):
        match = _PASS.match(text, start)
        if match is None:
            raise _bad_form(text[start:])
        name, options = match.groups()
        yield name, [_option(each, match[0]) for each in (options or "").split(",") if each.strip()]
        start = match.end()


def _option(text: str, inside: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise _bad_form(inside.strip().removesuffix(","))
    return name, value


def _bad_form(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not how passes are written",
        code="D0902",
        help="write names with commas between them, and options in braces: fuse{max_inputs=4},dce",
    )
