"""The values in each root of a memory plan, and the ops that write and read them, for people and tools.

Loading does not read this section; the certificate has all that is checked. The values of one root are
its *alias class*: `how` says why each of them lies there.
"""

# Without deferred annotations: the schema reads the classes as they are.
from typing import Literal, NamedTuple, TypeAlias

from dlc.runtime.artifact import canonical_json, schema

How: TypeAlias = Literal["own", "in place", "part", "joined", "again", "view"]
"""`own`: the root was allocated for it · `in place`: overwrites an operand of its op · `part`: a slice of a
larger value, at its offset in it · `joined`: the concatenation of such slices · `again`: reuses the memory
of a value that is dead, as a loop-carried value does · `view`: an alias of the same bytes."""


class ValueRecord(NamedTuple):
    """A value in the root of index `root` of the certificate; `made_by` and `read_by` are op ids."""

    name: str
    type: str
    root: int
    how: How
    made_by: tuple[int, ...] = ()
    read_by: tuple[int, ...] = ()
    place: str = ""


class ArenaValues(NamedTuple):
    """The values of one program, and a short description of each op, by op id."""

    ops: tuple[str, ...] = ()
    values: tuple[ValueRecord, ...] = ()


def values_section(target: str, entry: str) -> str:
    """The name of the section with the values of an entry point."""
    return f"values/{target}/{entry}"


def read_arena_values(data: bytes) -> ArenaValues:
    """Parse a section. Raises ValueError, which says what is malformed."""
    return schema.decode(ArenaValues, canonical_json.load(data))


def arena_values_bytes(values: ArenaValues) -> bytes:
    """What a section holds for these values."""
    return canonical_json.dump(schema.encode(values))
