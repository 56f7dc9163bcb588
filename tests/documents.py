"""The fenced blocks of a page, and what each kind of them must do.

| block | what is tested |
| --- | --- |
| `dlm` | a whole model text: it elaborates without a remark |
| `console` | commands behind `$`, each followed by exactly what it prints |
| `python` | a program; the blocks of a page run one after the other in one process |
| `text` behind `python` | exactly what the program up to there has printed since the last one |

In what is printed `...` stands for anything, and nothing is said about commands without output.
"""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?:\]\(|src=\"|href=\")([^)\"\s]+)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the page, the line it begins at, its kind and its text."""

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a `console` block and what it is said to print."""

    words: tuple[str, ...]
    prints: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, which is named from the root of the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a `console` block; a backslash at the end of a line goes on in the next."""
    assert block.text.startswith("$ "), block
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        line, _, prints = part.replace("\\\n", " ").partition("\n")
        yield Command(tuple(shlex.split(line)), prints)


def programs(found: Sequence[Block]) -> str:
    """The `python` blocks of a page as one program, which marks where a `text` block belongs."""
    parts: list[str] = []
    for block in found:
        if block.kind == "python":
            # So that a traceback names the line of the page.
            lines = "\n" * block.line + block.text
            parts.append(f"exec(compile({lines!r}, {block.page!r}, 'exec'), globals())")
        elif block.kind == "text" and parts:
            parts.append(f"print({marker(block)!r})")
    return "\n".join(parts)


def marker(block: Block) -> str:
    """What a program prints where the output shown in this block ends."""
    return f"<<< {block} >>>"


def printed(found: Sequence[Block], output: str) -> Iterator[tuple[Block, str]]:
    """Each `text` block with what was printed for it."""
    start = 0
    for block in found:
        if block.kind == "text" and marker(block) in output:
            end = output.index(marker(block))
            yield block, output[start:end]
            start = end + len(marker(block)) + 1


def agrees(found: str, said: str) -> bool:
    """Whether an output is what a page says, `...` being anything."""
    checker = doctest.OutputChecker()
    return checker.check_output(said.rstrip() + "\n", found.rstrip() + "\n", doctest.ELLIPSIS)


def links(page: str) -> list[str]:
    """Where the links and pictures of a page lead, if that is a file of the repository."""
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ +(.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
