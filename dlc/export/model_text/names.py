"""Readable names for values and modules that have none."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dlc.frontend.builtins import BUILTINS, CONSTANTS
from dlc.ir.types import LANGUAGE_DTYPES
from dlc.text.model.words import EXPRESSION_WORDS, NEVER_NAMES, OPENERS

LONGEST = 24
"""Longer names are not taken over: they say where in a program something stood, not what it is."""
RESERVED = frozenset(
    (*BUILTINS, *CONSTANTS, *OPENERS, *EXPRESSION_WORDS, *NEVER_NAMES, "training")
) | {dtype.name for dtype in LANGUAGE_DTYPES}
_OUTPUT = re.compile(r"(_output)?[_:]\d+$")
"""Suffixes that exporters add to the name of a node to name its results."""


class Names:
    """Gives names, each once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*RESERVED, *taken}
        self._numbers: dict[str, int] = {}
        """By name, with what stands between both, the number to try first: smaller ones are taken."""

    def of(self, wanted: str) -> str:
        """The name itself if it is free, else one with a number behind it."""
        if wanted in self._taken:
            return self._numbered(wanted + ("_" if wanted[-1:].isdigit() else ""), 2)
        self._taken.add(wanted)
        return wanted

    def numbered(self, wanted: str) -> str:
        """`conv1`, `conv2` and so on."""
        return self._numbered(wanted, 1)

    def _numbered(self, wanted: str, first: int) -> str:
        number = max(first, self._numbers.get(wanted, 0))
        while f"{wanted}{number}" in self._taken:
            number += 1
        self._numbers[wanted] = number + 1
        self._taken.add(f"{wanted}{number}")
        return f"{wanted}{number}"


def readable(name: str | None, otherwise: str) -> str:
    """A name of another tool as one for people: its last part, if that says something.

    >>> readable("model/head/Scores:0", "h"), readable("537", "h"), readable("x.weight", "w")
    ('scores', 'h', 'weight')
    """
    last = re.split(r"[/.]", _OUTPUT.sub("", name or ""))[-1]
    text = re.sub(r"\W+", "_", last, flags=re.ASCII).strip("_")
    if text[:1].isupper():
        text = text.lower()
    if text in RESERVED or not text[:1].isalpha() or len(text) > LONGEST:
        return otherwise
    if re.fullmatch(r"[a-z]\d+(_\d+)?", text):
        return otherwise
    return text


def brief(name: str) -> str:
    """A name of another tool without most of the places that it is in.

    >>> brief("model/encoder/block_1/Conv2D/weight:0"), brief("layer.0.conv.weight")
    ('Conv2D/weight', 'layer.0.conv.weight')
    """
    parts = re.sub(r":0$", "", name).split("/")
    return "/".join(parts[-2:])


def short_name(module: str) -> str:
    """The name of a module's instances, before their number.

    >>> short_name("Conv2d"), short_name("BatchNorm"), short_name("Residual2")
    ('conv', 'norm', 'residual')
    """
    for start, name in (("ConvTranspose", "up"), ("Conv", "conv")):
        if module.startswith(start):
            return name
    if module.endswith("Norm"):
        return "norm"
    return module.rstrip("0123456789").lower()


def as_type(name: str) -> str:
    """A name for a module: `centerface` becomes `Centerface`, `my-net` `MyNet`.

    >>> as_type("light_resnet50"), as_type("7")
    ('LightResnet50', 'Model7')
    """
    parts = [part for part in re.split(r"[\W_]+", name, flags=re.ASCII) if part]
    text = "".join(part[0].upper() + part[1:] for part in parts)
    return text if text[:1].isalpha() else f"Model{text}"
