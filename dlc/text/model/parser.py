"""From text to syntax tree.

>>> parsed = parse(Source("a.dlm", "dlc 1\\nfn f(x: f32[..]) = 3 * x ** 2 +"))
>>> [str(error) for error in parsed.errors]
['a.dlm:2:32: error[D0110]: expected an expression before the end of the text']
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from dlc.errors import Diagnostic, ModelError
from dlc.runtime.system.stack import FEW_CALLS, is_deep, with_room
from dlc.text.model import ast
from dlc.text.model.lexer import NAME, NUMBER, Comment, Tokens, tokenize
from dlc.text.model.parser_cursor import MAX_DEPTH, TooManyErrors
from dlc.text.model.parser_declarations import FILE, DeclarationParser
from dlc.text.source import Source, Span

__all__ = ["EDITION", "MAX_DEPTH", "Parsed", "parse", "parse_or_raise"]

EDITION = 1
"""The newest edition of the language that is read."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The tree of a text, and what is wrong with it: after errors only the sound parts are there.

    `comments` and `parens` (the spans of the expressions that stood in parentheses of their own) are
    what the tree leaves out; `devices` are those that the text names, also in what is not sound. `repaired`
    errors are misspelt keywords, behind which the text was read as if they were right.
    """

    file: ast.File
    diagnostics: tuple[Diagnostic, ...]
    comments: tuple[Comment, ...]
    parens: frozenset[Span]
    devices: tuple[ast.Device, ...]
    repaired: int = 0

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that are not mere warnings."""
        return tuple(found for found in self.diagnostics if found.severity == "error")


def parse(source: Source) -> Parsed:
    """The tree of any text whatever; what is wrong is in `diagnostics`, in the order of the text."""
    if is_deep(FEW_CALLS):  # an expression takes 600 calls at most
        return with_room(lambda: _parse(source))
    return _parse(source)


def _parse(source: Source) -> Parsed:
    tokens = tokenize(source)
    parser = _FileParser(source, tokens)
    file = parser.file()
    diagnostics = sorted(parser.diagnostics, key=_position)
    return Parsed(
        file,
        tuple(diagnostics),
        tuple(tokens.comments),
        frozenset(parser.parens),
        tuple(parser.devices),
        parser.repaired,
    )


def parse_or_raise(source: Source) -> ast.File:
    """The tree of a text; raises ModelError with all that is wrong in it."""
    parsed = parse(source)
    if parsed.errors:
        raise ModelError(parsed.errors, sources={source.name: source.text})
    return parsed.file


def _position(diagnostic: Diagnostic) -> tuple[int, int]:
    place = diagnostic.place
    return (place.line, place.column) if place else (sys.maxsize, 0)


class _FileParser(DeclarationParser):
    """Reads a file: the edition, the documentation, the items."""

    def __init__(self, source: Source, tokens: Tokens) -> None:
        super().__init__(source, tokens)
        self._refused = tokens.refused
        self._comments = tokens.comments
        self.docs = _docs(tokens.comments)

    def file(self) -> ast.File:
        items: tuple[ast.Item, ...] = ()
        docs, edition = "", EDITION
        try:
            edition = 0 if self._refused else self._edition()
            if edition == EDITION:
                docs = self._file_docs()
                self.context = FILE
                items = self.elements(FILE, self.item, None)
                self._warn_of_idle_docs()
        except TooManyErrors:
            count = len(self.diagnostics)
            self.diagnostics.append(Diagnostic("D0119", f"stopped after {count} errors"))
        span = Span(0, len(self.source.text))
        edition_span = Span(self.starts[0], self.ends[min(1, len(self.ends) - 1)])
        return ast.File(span, self.source, edition, edition_span, docs, items)

    def _edition(self) -> int:
        """The edition that the text says it is written in; 0 if the rest is not to be read."""
        help = f"put `dlc {EDITION}` on the first line"
        if self.text != "dlc" or self.kinds[0] != NAME:
            place = self.source.place(self.span_here())
            message = "a model text begins with its edition"
            missing = Diagnostic("D0108", message, place, help=help)
            if not self.opens_statement(self.at):
                self.diagnostics = [missing]  # whatever this is, its signs are not ours to judge
                return 0
            self.diagnostics.append(missing)
            return EDITION
        self.advance()
        if self.kinds[self.at] != NUMBER:
            span = Span(self.starts[0], self.ends[0])
            self.error("D0108", "`dlc` without the number of the edition", span, help=help)
            return EDITION
        if self.text == str(EDITION):
            self.advance()
            return EDITION
        edition = self.number().value
        span = Span(self.starts[0], self.ends[1])
        newer = edition > EDITION
        message = (
            f"edition {self.texts[1]} is {'newer than' if newer else 'none of'} those known here"
        )
        help = f"update dlc: this one reads edition {EDITION}" if newer else help
        self.diagnostics = [Diagnostic("D0109", message, self.source.place(span), help=help)]
        return 0

    def _file_docs(self) -> str:
        """The `##` lines that speak of the file: before an import, or with a blank line after them."""
        comments = [c for c in self._comments if c.token == self.at and c.is_doc and c.alone]
        own = len(comments) if self.text in ("import", "") else self._before_blank_line(comments)
        if own:
            self.docs[self.at] = _joined(comments[own:])
        return _joined(comments[:own])

    def _before_blank_line(self, comments: list[Comment]) -> int:
        """How many of the comments stand before the first blank line after one of them."""
        following = [comment.start for comment in comments] + [self.starts[self.at]]
        for index, comment in enumerate(comments):
            gap = self.source.text[comment.start + len(comment.text) : following[index + 1]]
            if gap.isspace() and gap.count("\n") > 1:
                return index + 1
        return 0

    def _warn_of_idle_docs(self) -> None:
        """`##` lines that no item follows, and those behind something in the same line.

        Not after errors: what follows may be in what was skipped.
        """
        for comment in self._comments if not self.diagnostics else ():
            idle = not comment.alone or self.docs.pop(comment.token, "")
            if comment.is_doc and idle:
                span = Span(comment.start, comment.start + len(comment.text))
                self.diagnostics.append(
                    Diagnostic(
                        "D0117",
                        "`##` documents what follows it, and nothing that can be documented does",
                        self.source.place(span),
                        help="put it before an item, or write a comment with `#`",
                        severity="warning",
                    )
                )


def _docs(comments: list[Comment]) -> dict[int, str]:
    """The documentation before each token."""
    groups: dict[int, list[Comment]] = {}
    for comment in comments:
        if comment.is_doc and comment.alone:
            groups.setdefault(comment.token, []).append(comment)
    return {token: _joined(group) for token, group in groups.items()}


def _joined(comments: list[Comment]) -> str:
    return "\n".join(comment.text.removeprefix("##").removeprefix(" ") for comment in comments)
