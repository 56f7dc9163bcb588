"""What a model's text promises of the compiled program, as the attribute `dlc.limits` of the module.

It stands in the module so that a graph that is compiled again, from a dump or from an artifact, keeps
what its text promised: `dlc.limits = ["exact at net.dlm:3:1-12", "memory 536870912 at net.dlm:4:1-22"]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dlc.dialects.builtin import Module
from dlc.errors import Place

__all__ = ["LIMITS", "Limit", "attach_limits", "read_limits"]

LIMITS = ("memory", "deterministic", "exact", "fast_narrow")
"""The names of the limits; `memory` has a number of bytes."""

_ATTRIBUTE = "dlc.limits"
_WRITTEN = re.compile(r"(\w+)(?: ([0-9]{1,20}))? at (.+):([0-9]{1,10}):([0-9]{1,10})-([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class Limit:
    """One promise, with its place in the text; `bytes` is 0 for all but `memory`."""

    name: str
    place: Place
    bytes: int = 0

    def __str__(self) -> str:
        number = f" {self.bytes}" if self.name == "memory" else ""
        return f"{self.name}{number} at {self.place}-{self.place.end}"


def attach_limits(module: Module, limits: Iterable[Limit]) -> None:
    """Note in the module what its text promises."""
    written = tuple([str(limit) for limit in limits])
    if written:
        module.attributes[_ATTRIBUTE] = written


def read_limits(module: Module) -> tuple[Limit, ...]:
    """What the text of a module promises. Raises ModelError for an attribute that says something else."""
    written = module.attributes.get(_ATTRIBUTE, ())
    return tuple([_read(module, text) for text in written]) if isinstance(written, tuple) else ()


def _read(module: Module, text: object) -> Limit:
    found = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[1] not in LIMITS or (found[1] == "memory") != (found[2] is not None):
        raise module.fail(
            f"{text!r} is no limit",
            help=f"write them as {_ATTRIBUTE} = ['exact at net.dlm:3:1-12']",
        )
    place = Place(found[3], *[int(number) for number in found.group(4, 5, 6)])
    return Limit(found[1], place, int(found[2] or 0))
