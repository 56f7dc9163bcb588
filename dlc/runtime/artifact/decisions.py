"""What the passes of the compiler did with a model and what they refused, kept in its artifact.

It is for people and tools; loading does not look at it.
"""

# Without deferred annotations: the schema reads the classes as they are.
from typing import Literal, NamedTuple

from dlc.runtime.artifact import canonical_json, schema

SECTION = "decisions"
"""The name of the section."""


class DecisionRecord(NamedTuple):
    """One thing that a pass did, or looked at and refused, `times` times about the same subject.

    `place` is `FILE:LINE:COLUMN` in the model's text, or `-`. `figures` are those that decided, in words
    such as `bytes 4096`.
    """

    by: str
    kind: Literal["did", "refused"]
    what: str
    subject: str
    place: str
    figures: tuple[str, ...] = ()
    times: int = 1


class Decisions(NamedTuple):
    """All of them, in the order in which they were first taken."""

    decisions: tuple[DecisionRecord, ...] = ()


def read_decisions(data: bytes) -> Decisions:
    """What a section holds; raises ValueError that says why it is nothing of the kind."""
    return schema.decode(Decisions, canonical_json.load(data))


def decisions_bytes(decisions: Decisions) -> bytes:
    """What a section holds for these decisions."""
    return canonical_json.dump(schema.encode(decisions))
