"""What dlc says about a network that it does not take: the code, the message, and the option it names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

ERROR = re.compile(r"error\[(D\d+)\]: (.*)")
OPTION = re.compile(r"--(fix|shape|dim)[ =]([^\s=]+=[^\s,;`]+(?:,[^\s;`]+)*)")
PLACE = "VALUE"
"""What stands in a message for the value of an input."""
NO_CODE = "crash"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a network is not in; `code` is `crash`, `time` or `memory` if dlc gave none."""

    code: str
    message: str
    text: str = ""

    @property
    def kind(self) -> str:
        """The message without the names and numbers of this network."""
        short = re.sub(r"^[^:]*?\.(onnx|pt2|mlir)[^:]*: ", "", self.message)
        short = re.sub(r"(?<![\w.])[/\w.:-]*(?:[/_.]\w*)+(?![\w.])", "…", short)
        return re.sub(r"\d+", "N", short)[:160]


def refusal(said: str, status: int | None) -> Refusal:
    """What a process that failed said."""
    found = ERROR.search(said)
    if found:
        return Refusal(found[1], found[2], said)
    lines = [line.strip() for line in said.splitlines() if line.strip()] or [""]
    if status is None:
        return Refusal("time", "no end within the limit of time", said)
    if "MemoryError" in said:
        return Refusal("memory", lines[-1], said)
    return Refusal(NO_CODE, lines[-1] if status >= 0 else f"signal {-status}", said)


def options_named(text: str, given: Sequence[Mapping[str, Array]]) -> list[str]:
    """The options that a message names, with the value of an input where it says VALUE.

    An input that has another value at another size cannot be fixed, and its option is left out.
    """
    found: list[str] = []
    for kind, what in OPTION.findall(text):
        name, value = what.split("=", 1)
        if value == PLACE:
            values = [each[name] for each in given if name in each]
            if not values or any(not np.array_equal(values[0], each) for each in values[1:]):
                continue
            value = str(values[0].tolist()).replace(" ", "")
        found.append(f"--{kind}={name}={value}")
    return list(dict.fromkeys(found))
