"""Cost tables: dataclasses whose fields say what they are the cost of, and in which unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Number = TypeVar("Number", int, float)


class Row(NamedTuple):
    """One cost of a table.

    >>> print(next(rows(ElementCosts())))
    operation                250 ps          one operation of a register: about a cycle
    """

    name: str
    value: float
    unit: str
    meaning: str

    def __str__(self) -> str:
        return f"{self.name:18} {self.value:>9,} {self.unit:11} {self.meaning}"


def cost(value: Number, unit: str, meaning: str) -> Number:
    """A field of a cost table: its usual value, the unit ("ps", or "ps/byte"), and what it is of."""
    return field(default=value, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class ElementCosts:
    """What formulas cost that are computed element by element. One thread, in picoseconds."""

    operation: int = cost(250, "ps", "one operation of a register: about a cycle")
    load_byte: int = cost(40, "ps/byte", "loading from the second-level cache")
    division: int = cost(5, "operations", "a division or a square root")
    function: int = cost(16, "operations", "an exponential, a sine")


def rows(costs: DataclassInstance) -> Iterator[Row]:
    """The rows of a table, in order."""
    for each in fields(costs):
        value = cast("float", getattr(costs, each.name))
        yield Row(each.name, value, each.metadata["unit"], each.metadata["meaning"])
