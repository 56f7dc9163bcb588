"""The page of one name: the same facts for people, as text, and for programs, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from textwrap import fill, indent
from typing import Final

MARGIN: Final = "  "
WIDTH: Final = 98


@dataclass(frozen=True, slots=True)
class Entry:
    """A name: where it belongs, how it is written, and what it is, in one line."""

    name: str
    group: str
    signature: str
    summary: str


@dataclass(frozen=True, slots=True)
class Part:
    """A parameter, an operand or an attribute: its name, its kind, and what it means."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """Everything about a name; what does not apply to it is empty."""

    name: str
    group: str
    signature: str
    summary: str
    details: str = ""
    parts: tuple[Part, ...] = ()
    example: str = ""
    gives: str = ""
    """The result of the example: a value with its type, or types."""
    operations: tuple[str, ...] = ()
    """The operations of the IR that the example becomes."""
    derivative: str = ""
    source: str = ""
    """Its spelling in the language."""
    members: tuple[Entry, ...] = ()

    @property
    def entry(self) -> Entry:
        """The page in one line."""
        return Entry(self.name, self.group, self.signature, self.summary)

    @property
    def text(self) -> str:
        """The page for people."""
        facts = [
            f"in the IR: {', '.join(self.operations)}" if self.operations else "",
            f"derivative: {self.derivative}" if self.derivative else "",
        ]
        blocks = [
            fill(self.summary, WIDTH),
            self.details if "\n" in self.details else fill(self.details, WIDTH),
            "\n".join(_part_line(part) for part in self.parts),
            self._example_text(),
            "\n".join(filter(None, facts)),
            self.source,
            "\n".join(f"{entry.signature}\n    {entry.summary}" for entry in self.members),
        ]
        return "\n\n".join([self.signature, *[indent(block, MARGIN) for block in blocks if block]])

    def _example_text(self) -> str:
        if not self.example:
            return ""
        if "\n" in self.example:
            gives = f"\ngives  {self.gives}" if self.gives else ""
            return f"example:\n{indent(self.example, MARGIN)}{gives}"
        return f"{self.example}  gives  {self.gives}" if self.gives else self.example

    def data(self) -> dict[str, object]:
        """The page for programs: every field, under its name."""
        return asdict(self)


def _part_line(part: Part) -> str:
    text = f", {part.text}" if part.text else ""
    return f"{part.name}: {part.kind}{text}"
