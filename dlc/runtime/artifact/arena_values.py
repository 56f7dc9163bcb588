"""What the roots of a memory plan are for: the values in each, and the ops that make and read them.

The certificate has what is checked; this is for people and tools, and loading does not look at it. All
values of one root are its *alias class*: `how` says why each is there.
"""

# Without deferred annotations: the schema reads the classes as they are.
from typing import Literal, NamedTuple, TypeAlias

from dlc.runtime.artifact import canonical_json, schema

How: TypeAlias = Literal["own", "in place", "part", "joined", "again", "view"]
"""`own`: it is what the root is for · `in place`: written over what its op reads there · `part`: a piece of
a larger value, at its place in it · `joined`: what such pieces are together · `again`: written after the
value before it is no longer read, as what a loop carries · `view`: another look at what is there."""


class ValueRecord(NamedTuple):
    """A value in root number `root` of the certificate; `made_by` and `read_by` are op ids."""

    name: str
    type: str
    root: int
    how: How
    made_by: tuple[int, ...] = ()
    read_by: tuple[int, ...] = ()
    place: str = ""


class ArenaValues(NamedTuple):
    """The values of one program, and in a few words what each op computes, by op id."""

    ops: tuple[str, ...] = ()
    values: tuple[ValueRecord, ...] = ()


def values_section(target: str, entry: str) -> str:
    """The name of the section with the values of an entry point."""
    return f"values/{target}/{entry}"


def read_arena_values(data: bytes) -> ArenaValues:
    """What a section holds; raises ValueError that says why it is nothing of the kind."""
    return schema.decode(ArenaValues, canonical_json.load(data))


def arena_values_bytes(values: ArenaValues) -> bytes:
    """What a section holds for these values."""
    return canonical_json.dump(schema.encode(values))
