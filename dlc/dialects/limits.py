"""The `limit` statements of a model's text, as the attribute `dlc.limits` of the module.

The module carries them so that a graph that is compiled again, from a dump or from an artifact, keeps to
them: `dlc.limits = ["exact at net.dlm:3:1-12", "memory 536870912 at net.dlm:4:1-22"]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dlc.dialects.builtin import Module
from dlc.errors import SourceLocation

__all__ = ["LIMITS", "Limit", "attach_limits", "read_limits"]

LIMITS = ("memory", "deterministic", "exact", "fast_narrow")
"""The names of the limits; only `memory` takes a number, of bytes."""

_ATTRIBUTE = "dlc.limits"
_WRITTEN = re.compile(r"(\w+)(?: ([0-9]{1,20}))? at (.*):([0-9]{1,10}):([0-9]{1,10})-([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit, with its place in the text; `bytes` is 0 for all but `memory`."""

    name: str
    place: SourceLocation
    bytes: int = 0

    def __str__(self) -> str:
        number = f" {self.bytes}" if self.name == "memory" else ""
        return f"{self.name}{number} at {self.place}-{self.place.end}"


def attach_limits(module: Module, limits: Iterable[Limit]) -> None:
    """Set the attribute of a module; none for no limits."""
    written = tuple([str(limit) for limit in limits])
    if written:
        module.attributes[_ATTRIBUTE] = written


def read_limits(module: Module) -> tuple[Limit, ...]:
    """The limits that a module carries. Raises ModelError for an attribute that is malformed."""
    written = module.attributes.get(_ATTRIBUTE, ())
    return tuple([_read(module, text) for text in written]) if isinstance(written, tuple) else ()


def _read(module: Module, text: object) -> Limit:
    match = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[1] not in LIMITS or (match[1] == "memory") != (match[2] is not None):
        raise module.fail(
            f"{text!r} is not a limit",
            help=f"write them as {_ATTRIBUTE} = ['exact at net.dlm:3:1-12']",
        )
    place = SourceLocation(match[3], *[int(number) for number in match.group(4, 5, 6)])
    return Limit(match[1], place, int(match[2] or 0))
