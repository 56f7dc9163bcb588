"""The decision log in an artifact: what the passes of the compiler did and refused (optimization remarks).

It is for people and tools; loading does not read it.
"""

# Without deferred annotations: the schema reads the classes as they are.
from typing import Literal, NamedTuple

from dlc.runtime.artifact import canonical_json, schema

SECTION = "decisions"
"""The name of the section."""


class DecisionRecord(NamedTuple):
    """One thing that a pass did, or considered and refused, `times` times about the same subject.

    `place` is `FILE:LINE:COLUMN` in the model's text, or `-`. `figures` are the amounts that
    decided, such as `bytes 4096`.
    """

    by: str
    kind: Literal["did", "refused"]
    what: str
    subject: str
    place: str
    figures: tuple[str, ...] = ()
    times: int = 1


class Decisions(NamedTuple):
    """All decisions, in the order in which they were first taken."""

    decisions: tuple[DecisionRecord, ...] = ()


def read_decisions(data: bytes) -> Decisions:
    """Parse a section. Raises ValueError, which says what is malformed."""
    return schema.decode(Decisions, canonical_json.load(data))


def decisions_bytes(decisions: Decisions) -> bytes:
    """The bytes of the section for these decisions."""
    return canonical_json.dump(schema.encode(decisions))
