"""The parts that an operation class declares: operands, regions and attributes.

What these functions return stands for the value that an instance will have; they lie about their type
for the type checker's sake, as `dataclasses.field` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Field:
    """One declared part of an operation."""

    kind: Literal["operand", "operands", "region", "attribute"]
    default: object = _MISSING
    doc: str = ""
    name: str = ""

    @property
    def is_required(self) -> bool:
        return self.default is _MISSING


def operand(*, doc: str = "") -> Any:
    """One operand."""
    return Field("operand", doc=doc)


def operands(*, doc: str = "") -> Any:
    """Any number of operands, given as one sequence. Single operands come before groups."""
    return Field("operands", doc=doc)


def region(*, doc: str = "") -> Any:
    """A region, which is one block."""
    return Field("region", doc=doc)


def attribute(*, default: object = _MISSING, doc: str = "") -> Any:
    """A compile-time fact. One whose value is None is left out of the text."""
    return Field("attribute", default=default, doc=doc)
