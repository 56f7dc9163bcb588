"""Machine code of GPU kernels as `nvdisasm` writes it: how many instructions a loop runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_BRANCH = re.compile(r"^(@!?U?P\d+ +)?BRA +`\((\.L_x_\d+)\)")


def nvdisasm() -> str | None:
    """The disassembler: of its wheel, or of a toolkit; None where there is none."""
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in sorted(Path(folder).glob("*/bin/nvdisasm")):
            return str(path)
    return shutil.which("nvdisasm")


@dataclass(frozen=True, slots=True)
class Loop:
    """Instructions of a loop, without those that a branch forward usually leaves out."""

    instructions: Sequence[str]

    def count(self, name: str) -> int:
        """How many are of a name, such as `HMMA`."""
        return sum(name in each for each in self.instructions)


def loops(cubin: bytes) -> list[Loop]:
    """The innermost loops of a kernel, in order, as a tile within bounds runs them.

    Such a tile takes the branches forward, which skip what is done at the edges. Those that skip copies to
    shared memory it does not take: copies end a few k-tiles before the loop does.
    """
    return loops_of(disassembled(cubin))


def disassembled(cubin: bytes) -> str:
    """Machine code as text."""
    program = nvdisasm()
    assert program is not None, "there is no nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [program, "-c", file.name], check=True, capture_output=True, text=True
        )
    return text.stdout


def instructions_of(text: str) -> list[str]:
    """The instructions of a kernel that `nvdisasm` has written, in order."""
    return [found[1] for line in text.splitlines() if (found := _INSTRUCTION.match(line))]


def loops_of(text: str) -> list[Loop]:
    """The same from what the disassembler writes."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif instruction := _INSTRUCTION.match(line):
            instructions.append(instruction[1])
    branches = {
        place: labels[found[2]]
        for place, instruction in enumerate(instructions)
        if (found := _BRANCH.match(instruction)) is not None
    }
    backward = sorted((target, place) for place, target in branches.items() if target < place)
    inner = [
        (first, last)
        for first, last in backward
        if not any(first <= begin and end < last for begin, end in backward)
    ]
    return [Loop(_run(instructions, branches, first, last)) for first, last in inner]


def _run(
    instructions: Sequence[str], branches: dict[int, int], first: int, last: int
) -> Sequence[str]:
    found: list[str] = []
    place = first
    while place <= last:
        found.append(instructions[place])
        target = branches.get(place, 0)
        skipped = instructions[place + 1 : target]
        jumps = place < target <= last and not any("LDGSTS" in each for each in skipped)
        place = target if jumps else place + 1
    return found
