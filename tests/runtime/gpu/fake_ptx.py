"""Runs the PTX that sets conditions of graphs (`dlc.runtime.gpu.conditions`): the text itself, one thread.

There is as much of PTX as that text has, and what else stands in a text is refused.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

BITS = {"u8": 8, "u32": 32, "b32": 32, "u64": 64, "b64": 64, "s64": 64}
_ENTRY = re.compile(r"\.visible \.entry (\w+) \(([^)]*)\)\s*\.maxntid (\d+)\s*\{([^}]*)\}")
_STATEMENT = re.compile(r"\s*(?:(\w+):|([^;]+);)")
_PLACE = re.compile(r"\[(%?\w+)(?: \+ (\d+))?\]")
_COMPARED = {"eq": operator.eq, "ne": operator.ne, "ge": operator.ge, "lt": operator.lt}


class Reach(NamedTuple):
    """What a thread reaches: numbers in memory by their places and bytes, and conditions."""

    load: Callable[[int, int], int]
    store: Callable[[int, int, int], None]
    set_condition: Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class PtxKernel:
    """A kernel of a text."""

    sym_name: str
    threads: int
    parameters: Sequence[str]
    statements: Sequence[str]
    labels: Mapping[str, int]

    def run(self, words: Sequence[int], reach: Reach) -> None:
        """Let one thread do it."""
        given = dict(zip(self.parameters, words, strict=True))
        registers: dict[str, int] = {}
        place = 0
        while (statement := self.statements[place]) != "ret":
            place += 1
            if statement.startswith("@"):
                if not registers["%is"]:
                    continue
                statement = statement.removeprefix("@%is ")
            name, _, rest = statement.partition(" ")
            if name == "bra":
                place = self.labels[rest]
            else:
                _do(name, re.split(r", (?![^(]*\))", rest), given, registers, reach)


def kernels_of_ptx(text: str) -> dict[str, PtxKernel]:
    """The kernels of a text."""
    found: dict[str, PtxKernel] = {}
    for name, parameters, threads, body in _ENTRY.findall(re.sub(r"//.*", "", text)):
        statements: list[str] = []
        labels: dict[str, int] = {}
        for label, statement in _STATEMENT.findall(body):
            said = " ".join(statement.split())
            if label:
                labels[label] = len(statements)
            elif not said.startswith("."):
                statements.append(said)
        names = re.findall(r"\.param \.u64 (\w+)", parameters)
        found[name] = PtxKernel(name, int(threads), names, statements, labels)
    return found


def _do(
    name: str, operands: list[str], given: dict[str, int], registers: dict[str, int], reach: Reach
) -> None:
    """Do a statement; parameters and what calls are given are in `given`."""

    def value(operand: str) -> int:
        return registers[operand] if operand.startswith("%") else int(operand)

    def at(operand: str) -> int:
        found = _PLACE.fullmatch(operand)
        assert found is not None, operand
        return registers[found[1]] + int(found[2] or 0)

    what, *kinds = name.split(".")
    bits = BITS.get(kinds[-1] if kinds else "", 0)
    target, *sources = operands
    match what, *kinds[:-1]:
        case ["ld", "param"]:
            registers[target] = given[sources[0][1:-1]]
        case ["st", "param"]:
            given[target[1:-1]] = value(sources[0])
        case ["ld"] | ["ld", "volatile"]:
            registers[target] = reach.load(at(sources[0]), bits // 8)
        case ["st"]:
            reach.store(at(target), value(sources[0]), bits // 8)
        case ["mov"]:
            registers[target] = value(sources[0])
        case ["add"]:
            registers[target] = value(sources[0]) + value(sources[1])
        case ["min"]:
            registers[target] = min(value(sources[0]), value(sources[1]))
        case ["mad", "lo"]:
            first, second, third = map(value, sources)
            registers[target] = first * second + third
        case ["setp", comparison]:
            registers[target] = int(_COMPARED[comparison](*map(value, sources)))
        case ["selp"]:
            registers[target] = value(sources[0] if value(sources[2]) else sources[1])
        case ["call"]:
            condition, chosen = (given[word] for word in sources[0].strip("()").split(", "))
            assert target == "cudaGraphSetConditional"
            reach.set_condition(condition, chosen)
        case _:
            raise AssertionError(f"there is no {name} here")
