"""Laying text out within a width: documents that know where they may break.

A `Doc` is built from pieces; `render` prints it, breaking a group into lines only where it does not
fit. Widths are worked out when a document is built and printing uses a stack, so neither long chains
nor deep nesting cost more than their length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "HARD",
    "NOTHING",
    "WIDTH",
    "Align",
    "Braces",
    "Brackets",
    "Concat",
    "Doc",
    "Fill",
    "Group",
    "Line",
    "Nest",
    "SpaceOrLine",
    "Text",
    "concat",
    "joined",
    "render",
]

WIDTH: Final = 100
INDENT: Final = 2
ENDLESS: Final = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class Doc:
    """Something to print.

    `width` is its length in one line, ENDLESS if it cannot be in one (`forced`); `lead` the length up
    to its first forced break; `head` the length up to the first place where it may break, if it
    `breaks` at all.
    """

    width: int = field(init=False)
    lead: int = field(init=False)
    head: int = field(init=False)
    breaks: bool = field(init=False)

    @property
    def forced(self) -> bool:
        """Whether it is more than one line in any case."""
        return self.width >= ENDLESS

    def _measure(self, width: int, lead: int, head: int, *, breaks: bool) -> None:
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "lead", lead)
        object.__setattr__(self, "head", head)
        object.__setattr__(self, "breaks", breaks)

    def _measure_as(self, inner: Doc) -> None:
        self._measure(inner.width, inner.lead, inner.head, breaks=inner.breaks)


@dataclass(frozen=True, slots=True, eq=False)
class Text(Doc):
    """Characters without a line break."""

    text: str

    def __post_init__(self) -> None:
        size = len(self.text)
        self._measure(size, size, size, breaks=False)


@dataclass(frozen=True, slots=True, eq=False)
class Line(Doc):
    """`flat` where the group is in one line, a new line where it is broken or `flat` is None."""

    flat: str | None = " "

    def __post_init__(self) -> None:
        size = 0 if self.flat is None else len(self.flat)
        self._measure(ENDLESS if self.flat is None else size, size, 0, breaks=True)


@dataclass(frozen=True, slots=True, eq=False)
class Concat(Doc):
    """One after the other."""

    parts: Sequence[Doc]

    def __post_init__(self) -> None:
        width = lead = head = 0
        forced = breaks = False
        for part in self.parts:
            if not breaks:
                head += part.head
                breaks = part.breaks
            if not forced:
                lead += part.lead
                forced = part.forced
            width = min(ENDLESS, width + part.width)
        self._measure(width, lead, head, breaks=breaks)


@dataclass(frozen=True, slots=True, eq=False)
class Nest(Doc):
    """The lines after the first are indented by one step more."""

    inner: Doc

    def __post_init__(self) -> None:
        self._measure_as(self.inner)


@dataclass(frozen=True, slots=True, eq=False)
class Align(Doc):
    """The lines after the first begin in the column where the first does."""

    inner: Doc

    def __post_init__(self) -> None:
        self._measure_as(self.inner)


@dataclass(frozen=True, slots=True, eq=False)
class Group(Doc):
    """In one line if that fits; otherwise all its own lines break."""

    inner: Doc

    def __post_init__(self) -> None:
        self._measure_as(self.inner)


@dataclass(frozen=True, slots=True, eq=False)
class Braces(Group):
    """A group that the author wrote in one line: broken, it will be read as written in several."""


@dataclass(frozen=True, slots=True, eq=False)
class Fill(Doc):
    """Pieces with spaces between; a space becomes a new line where the next piece does not fit."""

    pieces: Sequence[Doc]

    def __post_init__(self) -> None:
        first = self.pieces[0]
        width = min(ENDLESS, sum(piece.width + 1 for piece in self.pieces) - 1)
        several = len(self.pieces) > 1
        self._measure(
            width,
            first.lead if first.forced else min(width, first.width),
            first.head,
            breaks=first.breaks or several,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Brackets(Doc):
    """Elements in brackets, separated by commas.

    In one line if that fits; else filled, aligned behind the opening bracket, if each element has
    room there; else one element to a line. A single element is always kept beside its brackets.
    """

    opening: str
    elements: Sequence[Doc]
    closing: str
    comma: bool = False  # also after a single element

    def __post_init__(self) -> None:
        inner = Concat([*joined(self.elements, ", "), Text("," if self.comma else "")])
        around = len(self.opening) + len(self.closing)
        first = self.elements[0] if self.elements else NOTHING
        self._measure(
            min(ENDLESS, inner.width + around),
            inner.lead + (len(self.opening) if inner.forced else around),
            len(self.opening) + (first.head if first.breaks else first.width),
            breaks=first.breaks or len(self.elements) > 1,
        )


@dataclass(frozen=True, slots=True, eq=False)
class SpaceOrLine(Doc):
    """A space and `inner`; on a new line, nested, if its first line does not fit behind the space."""

    inner: Doc

    def __post_init__(self) -> None:
        self._measure(min(ENDLESS, self.inner.width + 1), self.inner.lead + 1, 0, breaks=True)


HARD: Final = Line(None)
NOTHING: Final = Text("")


def concat(*parts: Doc | str) -> Doc:
    """The parts, one after the other; strings are text."""
    return Concat([Text(part) if isinstance(part, str) else part for part in parts])


def joined(parts: Iterable[Doc], separator: Doc | str) -> list[Doc]:
    """The parts with the separator between."""
    between = Text(separator) if isinstance(separator, str) else separator
    result: list[Doc] = []
    for part in parts:
        if result:
            result.append(between)
        result.append(part)
    return result


Todo = tuple[int, bool, Doc, int]
"""Indentation, whether in one line, what to print, and where in a Fill to go on."""


def render(doc: Doc) -> tuple[str, bool]:
    """The text of `doc`, at most `WIDTH` wide where its breaks allow it, without trailing spaces.

    Also whether the text is settled: False if braces that were in one line are no longer.
    """
    renderer = _Renderer(doc)
    return renderer.run(), renderer.settled


class _Renderer:
    def __init__(self, doc: Doc) -> None:
        self.stack: list[Todo] = [(0, False, doc, 0)]
        self.out: list[str] = []
        self.column = 0
        self.settled = True

    def run(self) -> str:
        while self.stack:
            self._step(*self.stack.pop())
        lines = "".join(self.out).split("\n")
        return "\n".join(line.rstrip() for line in lines)

    def _step(self, indent: int, flat: bool, doc: Doc, at: int) -> None:
        match doc:
            case Text():
                self._write(doc.text)
            case Line():
                if flat and doc.flat is not None:
                    self._write(doc.flat)
                else:
                    self._new_line(indent)
            case Concat():
                self.stack.extend((indent, flat, part, 0) for part in reversed(doc.parts))
            case Nest():
                self.stack.append((indent + INDENT, flat, doc.inner, 0))
            case Align():
                self.stack.append((self.column, flat, doc.inner, 0))
            case Group():
                fits = flat or self._fits(doc.width)
                self.settled = self.settled and (fits or not isinstance(doc, Braces))
                self.stack.append((indent, fits, doc.inner, 0))
            case Fill():
                self._fill(indent, flat, doc, at)
            case Brackets():
                self._brackets(indent, flat, doc)
            case SpaceOrLine():
                self._space_or_line(indent, flat, doc)
            case _:
                raise AssertionError(doc)

    def _write(self, text: str) -> None:
        self.out.append(text)
        self.column += len(text)

    def _new_line(self, indent: int) -> None:
        self.out.append("\n" + " " * indent)
        self.column = indent

    def _fits(self, width: int) -> bool:
        """Whether `width` more characters fit, and what cannot be separated from them."""
        room = WIDTH - self.column - width
        for _, flat, doc, at in reversed(self.stack):
            if room < 0:
                return False
            if flat:
                room -= doc.width
            elif at:  # the rest of a Fill: it may break before its next piece
                return True
            else:
                room -= doc.head
                if doc.breaks:
                    return room >= 0
        return room >= 0

    def _fill(self, indent: int, flat: bool, doc: Fill, at: int) -> None:
        """Print piece `at`, and come back for the next."""
        piece = doc.pieces[at]
        if at + 1 < len(doc.pieces):
            self.stack.append((indent, flat, doc, at + 1))
        if flat:
            self._write(" " if at else "")
            self.stack.append((indent, True, piece, 0))
            return
        fits = self._fits(piece.width + bool(at))
        if at and fits:
            self._write(" ")
        elif at:
            self._new_line(indent)
            fits = self._fits(piece.width)
        self.stack.append((indent, fits, piece, 0))

    def _brackets(self, indent: int, flat: bool, doc: Brackets) -> None:
        """Choose among the layouts of brackets."""
        flat = flat or self._fits(doc.width)
        column = self.column + len(doc.opening)
        widest = max((element.width for element in doc.elements), default=0)
        parts: list[Doc]
        if flat or len(doc.elements) <= 1:
            comma = "," if doc.comma else ""
            inner = Concat([*joined(doc.elements, ", "), Text(comma)])
            parts = [Text(doc.opening), Align(inner), Text(doc.closing)]
        elif column + widest + 1 <= WIDTH:
            *early, last = doc.elements
            pieces = [*(concat(element, ",") for element in early), last]
            parts = [Text(doc.opening), Align(Fill(pieces)), Text(doc.closing)]
        else:
            rows = [concat(HARD, element, ",") for element in doc.elements]
            parts = [Text(doc.opening), Nest(Concat(rows)), HARD, Text(doc.closing)]
        self.stack.append((indent, flat, Concat(parts), 0))

    def _space_or_line(self, indent: int, flat: bool, doc: SpaceOrLine) -> None:
        inner = doc.inner
        fits = flat or (
            self.column + 1 + inner.lead <= WIDTH if inner.forced else self._fits(inner.width + 1)
        )
        if fits:
            self._write(" ")
            self.stack.append((indent, flat or not inner.forced, inner, 0))
        else:
            self._new_line(indent + INDENT)
            self.stack.append((indent + INDENT, False, inner, 0))
