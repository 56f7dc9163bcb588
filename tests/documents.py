"""The fenced blocks of a page, and what each kind of them must do.

| block | what is tested |
| --- | --- |
| `dlm` | a whole model text: it elaborates without a remark |
| `dlm title="FILE"` | the same, and what follows on the page finds it in this file |
| `console` | commands behind `$`, each followed by exactly what it prints |
| `python` | a program; the blocks of a page run one after the other in one process |
| `text` behind `python` | exactly what the program up to there has printed since the last one |
| `python title="PyTorch"` | a program of PyTorch, which runs where that is installed |

In what is printed `...` stands for anything, and nothing is said about commands without output.
`pytest tests/test_documents.py --update` writes what commands and programs print into the pages.
"""

from __future__ import annotations

import difflib
import doctest
import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```([^\n\"]*?)(?: title=\"([^\n\"]*)\")?\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.M)
LINK = re.compile(r"(?:\]\(|src=\"|href=\")([^)\"\s]+)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the page, the line it begins at, its kind, title, text and where that begins."""

    page: str
    line: int
    kind: str
    title: str
    text: str
    start: int

    @property
    def is_run(self) -> bool:
        """Whether it is a part of the program of its page."""
        return self.kind == "python" and not self.title

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a `console` block, what it is said to print, and where in the page that is."""

    words: tuple[str, ...]
    prints: str
    start: int


@dataclass(frozen=True, slots=True)
class Change:
    """Another text for what stands at a place of a page."""

    start: int
    old: str
    new: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, which is named from the root of the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, line, found[1], found[2] or "", found[3], found.start(3))
        for found in FENCE.finditer(text)
        for line in [text.count("\n", 0, found.start()) + 1]
    ]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a `console` block; a backslash at the end of a line goes on in the next."""
    assert block.text.startswith("$ "), block
    for found in COMMAND.finditer(block.text):
        words = shlex.split(found[1].replace("\\\n", " "))
        yield Command(tuple(words), found[2], block.start + found.start(2))


def programs(found: Sequence[Block]) -> str:
    """The `python` blocks of a page as one program, which marks where a `text` block belongs.

    It writes the model texts that have a file, and is empty where there is nothing to run.
    """
    if not any(block.is_run for block in found):
        return ""
    parts: list[str] = []
    for block in found:
        if block.kind == "dlm" and block.title:
            parts.append(f"__import__('pathlib').Path({block.title!r}).write_text({block.text!r})")
        elif block.is_run:
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


def refreshed(said: str, found: str) -> str:
    """What a page says of an output, brought up to date.

    What agrees stays. Of a text with lines `...` each stretch between them becomes the lines of the output
    that are most like it, in their order; any other text becomes the output.

    >>> refreshed("...\\nb = 1\\nc = 1\\n...", "a = 2\\nb = 2\\nc = 2\\nd = 2")
    '...\\nb = 2\\nc = 2\\n...\\n'
    """
    if agrees(found, said):
        return said
    lines, parts = found.rstrip().split("\n"), said.rstrip().split("\n")
    if "..." not in parts:
        return found.rstrip() + "\n"
    result: list[str] = []
    for is_gap, group in itertools.groupby(parts, lambda line: line == "..."):
        stretch = list(group)
        if not is_gap:
            start = _most_alike(stretch, lines)
            stretch, lines = lines[start : start + len(stretch)], lines[start + len(stretch) :]
        result += stretch
    return "\n".join(result) + "\n"


def _most_alike(stretch: Sequence[str], lines: Sequence[str]) -> int:
    """Where as many lines begin that are most like the stretch."""
    wanted = "\n".join(stretch)

    def likeness(start: int) -> float:
        window = "\n".join(lines[start : start + len(stretch)])
        return difflib.SequenceMatcher(None, wanted, window, autojunk=False).ratio()

    return max(range(max(1, len(lines) - len(stretch) + 1)), key=likeness)


def replace_in(page: str, changes: Sequence[Change]) -> None:
    """Put new texts of outputs in the place of old ones, which are in the order of the page."""
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    for change in reversed(changes):
        end = change.start + len(change.old)
        assert text[change.start : end] == change.old
        text = text[: change.start] + change.new + text[end:]
    path.write_text(text, encoding="utf-8")


def prose(page: str) -> str:
    """The text of a page without its fenced blocks."""
    return FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))


def links(page: str) -> list[str]:
    """Where the links and pictures of a page lead, if that is a file of the repository."""
    return [link for link in LINK.findall(prose(page)) if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ +(.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
