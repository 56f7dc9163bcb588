"""Diagnostics, and how they are rendered: the message, and the line of the text with marks below it.

>>> place = SourceLocation("a.dlm", 2, 7, 8)
>>> error = Diagnostic("D0301", "the inner sizes 3 and 4 differ", place, help="transpose y")
>>> print(render(error, {"a.dlm": "dlc 1\\nlet z = x @ y"}))
error[D0301]: the inner sizes 3 and 4 differ
 --> a.dlm:2:7
   |
 2 | let z = x @ y
   |       ^
   = help: transpose y
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

MAX_LINE = 160
"""The most characters of a source line that are shown."""
MAX_TEXT = 1_000
"""The most characters of a message that are shown."""


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A range of columns in one line of a text: lines and columns count from 1, `end` is
    exclusive.
    """

    file: str
    line: int
    column: int
    end: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def width(self) -> int:
        """The number of carets that mark it; at least one."""
        return max(1, self.end - self.column)


@dataclass(frozen=True, slots=True)
class Label:
    """A remark about a second place, drawn under the source line if it is the same line."""

    place: SourceLocation
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing to tell the user. `help` is one way out; `labels` explain other places."""

    code: str
    message: str
    place: SourceLocation | None = None
    labels: tuple[Label, ...] = ()
    help: str | None = None
    severity: Literal["error", "warning", "note"] = "error"

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        way_out = f"; {self.help}" if self.help else ""
        return f"{where}{self.severity}[{self.code}]: {self.message}{way_out}"


_DISAGREEMENTS = tuple(
    re.compile(form)
    for form in (
        r"(?:.* (?:is|are|has) )?(?P<found>\S.*?),?(?: given| returned| declared| set| found)?"
        r" where (?P<expected>.+) (?:is|are) expected",
        r"(?:.*: )?expected (?P<expected>\S.*), found (?P<found>\S.*)",
        r"(?:.*? )?(?:is|are|takes|take|needs) (?P<expected>\S.*?)[,;] found (?P<found>\S.*)",
        r"(?P<found>\S+) does not fit (?P<expected>\w+), which holds ",
    )
)
"""Forms of messages about a value that does not fit, such as `FOUND given where EXPECTED is expected`."""


def diagnostic_data(diagnostic: Diagnostic) -> dict[str, object]:
    """One diagnostic for programs: `docs/json.md` says what each name means."""
    tried = (form.match(diagnostic.message) for form in _DISAGREEMENTS)
    disagreement = next((match for match in tried if match is not None), None)
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        **_place_data(diagnostic.place),
        "found": disagreement and disagreement["found"],
        "expected": disagreement and disagreement["expected"],
        "notes": [{"message": n.text, **_place_data(n.place)} for n in diagnostic.labels],
        "help": diagnostic.help,
    }


def _place_data(place: SourceLocation | None) -> dict[str, object]:
    return {
        "file": place and place.file,
        "line": place and place.line,
        "column": place and place.column,
        "end": place and place.column + place.width,
    }


def render(diagnostic: Diagnostic, sources: Mapping[str, str]) -> str:
    """One diagnostic with its source line and carets; texts not in `sources` are read from disk."""
    head = f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"
    lines = [_short(head)]
    place = diagnostic.place
    if place is not None:
        gutter = max([place.line, *(label.place.line for label in diagnostic.labels)])
        width = len(str(gutter)) + 1
        lines.append(f"{' ' * (width - 1)}--> {place}")
        lines += _excerpt(diagnostic, sources, width)
    else:
        width = 2
        lines += [f"  note: {label.text} ({label.place})" for label in diagnostic.labels]
    if diagnostic.help:
        lines.append(f"{' ' * width} = help: {_short(diagnostic.help)}")
    return "\n".join(map(visible, lines))


def visible(text: str) -> str:
    """A text without what a terminal obeys: models and names of files may come from strangers."""
    if text.isprintable():
        return text
    return "".join([sign if _is_harmless(sign) else "\ufffd" for sign in text])


def _is_harmless(sign: str) -> bool:
    return sign.isprintable() or sign in "\t\n" or (sign.isspace() and sign > "\x85")


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def _excerpt(diagnostic: Diagnostic, sources: Mapping[str, str], width: int) -> list[str]:
    place = diagnostic.place
    assert place is not None
    bar = f"{' ' * width} |"
    text = _source_line(place, sources)
    lines: list[str] = []
    visible_labels: list[Label] = []
    if text is not None:
        shown = _Window.around(place, text)
        visible_labels = [label for label in diagnostic.labels if shown.has(label.place)]
        lines += [bar, f"{str(place.line).rjust(width)} | {shown.text}"]
        inside = [Label(shown.moved(label.place), label.text) for label in visible_labels]
        lines += [f"{bar} {mark}" for mark in _marks(shown.moved(place), inside)]
    lines += [
        f"{' ' * width} = note: {label.text}: {label.place}"
        for label in diagnostic.labels
        if label not in visible_labels
    ]
    return lines


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a line that is shown: all of it, or what stands around the place if it is long."""

    place: SourceLocation
    text: str
    shift: int
    """The columns by which the visible part is shifted to the left."""
    first: int
    last: int
    """The columns of the text that are shown."""

    @classmethod
    def around(cls, place: SourceLocation, line: str) -> _Window:
        """The visible part of the line that the place is in."""
        line = line.expandtabs(1)
        if len(line) <= MAX_LINE:
            return cls(place, line, 0, 1, len(line) + 1)
        start = max(0, min(place.column - 1 - MAX_LINE // 4, len(line) - MAX_LINE))
        stop = start + MAX_LINE
        before, after = "..." if start else "", "..." if stop < len(line) else ""
        text = f"{before}{line[start:stop]}{after}"
        return cls(place, text, start - len(before), start + 1, stop)

    def has(self, place: SourceLocation) -> bool:
        """Whether a place is in what is shown."""
        same = (place.file, place.line) == (self.place.file, self.place.line)
        return same and self.first <= place.column <= self.last

    def moved(self, place: SourceLocation) -> SourceLocation:
        """The place in the visible part; one behind its line goes to the end."""
        column, end = min(place.column, self.last + 1), min(place.end, self.last + 1)
        return replace(place, column=column - self.shift, end=max(0, end - self.shift))


def _source_line(place: SourceLocation, sources: Mapping[str, str]) -> str | None:
    text = sources.get(place.file)
    if text is None:
        try:
            text = Path(place.file).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return None
    line = text.split("\n")[place.line - 1 : place.line]
    return line[0].rstrip("\r") if line else None


def _marks(place: SourceLocation, labels: Sequence[Label]) -> list[str]:
    """The caret line, then one line for each label whose text does not fit at the end of it."""
    stretch = [(label.place, "-") for label in labels] + [(place, "^")]
    end = max(mark.column - 1 + mark.width for mark, _ in stretch)
    row = [" "] * end
    for mark, sign in stretch:
        for column in range(mark.column - 1, mark.column - 1 + mark.width):
            row[column] = sign
    ordered = sorted(labels, key=lambda label: label.place.column)
    first = "".join(row)
    if ordered and ordered[-1].place.column > place.column:
        first += f"  {ordered.pop().text}"
    lines = [first]
    for index in range(len(ordered) - 1, -1, -1):
        stems = [" "] * ordered[index].place.column
        for label in ordered[: index + 1]:
            stems[label.place.column - 1] = "|"
        if index == len(ordered) - 1:
            lines.append("".join(stems))
        lines.append("".join(stems[:-1]) + ordered[index].text)
    return lines
