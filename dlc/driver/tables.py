"""Tables of text for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title; columns of numbers stand at the right."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | int, ...], ...]

    @property
    def text(self) -> str:
        """The table in columns, without those that are empty in every row."""
        kept = [k for k in range(len(self.head)) if any(row[k] != "" for row in self.rows)]
        cells = [
            [self.head[k] for k in kept],
            *[[_shown(row[k]) for k in kept] for row in self.rows],
        ]
        widths = [max(len(row[k]) for row in cells) for k in range(len(kept))]
        numeric = [any(isinstance(row[k], int) for row in self.rows) for k in kept]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *[f"  {line}" for line in lines]])


def _shown(cell: str | int) -> str:
    return f"{cell:,}" if isinstance(cell, int) else cell
