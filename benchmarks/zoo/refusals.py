"""What dlc says about a network that it does not take: the code, the message, and the option it names."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

ERROR = re.compile(r"error\[(D\d+)\]: (.*)")
OPTION = re.compile(r"--(fix|shape|dim)[ =]([\w.:/-]+)=([^\s,;`]+(?:,[^\s,;`]+)*)")
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


@dataclass(frozen=True, slots=True)
class Option:
    """An option that a message names, such as `--fix axes=VALUE` or `--dim samples=64`."""

    kind: str
    name: str
    value: str

    def at(self, given: Mapping[str, Array], sizes: Mapping[str, int]) -> str:
        """The option for these inputs: the value of an input, or the number of a size, is theirs."""
        value = self.value
        if self.kind == "fix" and self.name in given:
            value = str(given[self.name].tolist()).replace(" ", "")
        elif self.kind == "dim" and value.isdigit():
            value = str(sizes.get(self.name, value))
        return f"--{self.kind}={self.name}={value}"


def options_named(text: str) -> list[Option]:
    """The options that a message names, each once.

    >>> options_named("--dim N=64 lets it in, as may other numbers")
    [Option(kind='dim', name='N', value='64')]
    """
    return list(dict.fromkeys([Option(*found) for found in OPTION.findall(text)]))


def named_sizes(path: Path, given: Mapping[str, Array]) -> dict[str, int]:
    """The numbers of the sizes of an `.onnx` file for these inputs, by their names in the file; a size
    without one is called by its input and axis, as the importer does."""
    if path.suffix != ".onnx":
        return {}
    onnx: Any = importlib.import_module("onnx")
    found: dict[str, int] = {}
    for each in onnx.load(path, load_external_data=False).graph.input:
        if each.name in given:
            axes = each.type.tensor_type.shape.dim
            for k, size in enumerate(given[each.name].shape):
                found.setdefault(axes[k].dim_param or f"{each.name}_{k}", size)
    return found
