"""Comments on their way through the formatter: each is printed once, at the next place for one.

Places for comments are before and behind an element of a list: a statement, a member, an argument, a
stage of a pipe. A comment elsewhere, say between an operator and its operand, goes before the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from dlc.text.layout import HARD, Doc, Nest, concat
from dlc.text.model.ast import Node
from dlc.text.model.lexer import Comment
from dlc.text.source import Source

__all__ = ["Comments", "Row", "documentation", "spelled", "vertical"]

T = TypeVar("T", bound=Node)

CLOSERS: Final = frozenset(")]}")


@dataclass(slots=True)
class Row:
    """An element with the comments before it, in lines of their own, and those behind it."""

    before: list[str]
    doc: Doc
    behind: list[str]


class Comments:
    """The comments of one text that are still to be printed; none if there is no text, only a tree."""

    def __init__(self, source: Source | None, comments: Sequence[Comment]) -> None:
        self.source = source
        self._waiting = list(reversed(comments))

    def take(self, limit: int) -> list[Comment]:
        """The comments that begin before the offset `limit`."""
        taken: list[Comment] = []
        while self.wait_before(limit):
            taken.append(self._waiting.pop())
        return taken

    def wait_before(self, limit: int) -> bool:
        """Whether a comment waits that begins before `limit`."""
        return bool(self._waiting) and self._waiting[-1].start < limit

    def take_behind(self, end: int) -> list[Comment]:
        """The comment in the same line behind the offset `end`, if there is one."""
        if not self._waiting or self.source is None:
            return []
        comment = self._waiting[-1]
        if comment.alone or "\n" in self.source.text[end : comment.start]:
            return []
        return [self._waiting.pop()]

    def rows(
        self, nodes: Sequence[T], build: Callable[[T], Doc], limit: int
    ) -> tuple[list[Row], list[str]]:
        """The nodes with their comments, and the comments between the last and `limit`."""
        rows: list[Row] = []
        first: list[str] = []  # behind the opening bracket: moved before the first element
        for node in nodes:
            before: list[str] = [*first]
            first = []
            for comment in self.take(node.span.start):
                if comment.alone or not rows:
                    before.append(spelled(comment))
                else:
                    rows[-1].behind.append(spelled(comment))
            rows.append(Row(before, build(node), []))
        last: list[str] = []
        for comment in self.take(limit):
            (last if comment.alone or not rows else rows[-1].behind).append(spelled(comment))
        return rows, last

    def closer_after(self, end: int) -> int:
        """Where the brackets close whose last element ends at `end`."""
        if self.source is None:
            return 0
        text, at = self.source.text, end
        while at < len(text) and text[at] not in CLOSERS:
            line_end = text.find("\n", at) if text[at] == "#" else -1
            at = max(at, line_end) + 1
        return at


def spelled(comment: Comment) -> str:
    """The comment as it is printed: documentation with a space behind its `##`."""
    words = comment.text[2:]
    return f"## {words}" if comment.is_doc and words and words[0] != " " else comment.text


def documentation(docs: str) -> list[str]:
    """The `##` lines of a text."""
    return [f"## {line}".rstrip() for line in docs.split("\n")] if docs else []


def vertical(opening: str, rows: Sequence[Row], last: Sequence[str], closing: str) -> Doc:
    """The rows between brackets, a line each, and each with its comments."""
    lines: list[Doc] = []
    for row in rows:
        lines += [concat(HARD, comment) for comment in row.before]
        lines.append(concat(HARD, row.doc, ",", *(f"  {comment}" for comment in row.behind)))
    lines += [concat(HARD, comment) for comment in last]
    return concat(opening, Nest(concat(*lines)), HARD, closing)
