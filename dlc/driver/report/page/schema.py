"""The data of the page, as its script reads it: see `docs/json.md`."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class JsonBox(TypedDict):
    kind: str
    title: str
    lines: list[list[str]]
    notes: list[str]
    ports: int
    key: str
    inside: NotRequired[JsonGraph]


"""A box of a graph (`dlc.driver.drawing.svg.Box`); `key` is the id of its node."""


class JsonGraph(TypedDict):
    """Boxes; edges as source, target, port and result; rows and places by number."""

    boxes: list[JsonBox]
    edges: list[list[int]]
    rows: list[list[int]]
    places: list[list[int]]


class JsonNode(TypedDict):
    """An operation, a kernel, a step, or the code of a kernel.

    `at` has its first and last line at each level where it stands, `lines` those of the text that it comes
    from, the main one first; `decisions` are numbers of what was decided there. `bytes` is the size of its
    results where all sizes are numbers, `seconds` the time that a profile says.
    """

    name: str
    type: str
    module: str
    at: dict[str, list[int]]
    lines: list[int]
    decisions: list[int]
    bytes: NotRequired[int]
    seconds: NotRequired[float]


class JsonFile(TypedDict):
    """A file of the text, and the line of the level at which it begins."""

    name: str
    line: int


class JsonLevel(TypedDict):
    """A text; `lines` has for each of its lines that of the model's text, or 0."""

    name: str
    text: str
    lines: list[int]


JsonDecision = TypedDict(
    "JsonDecision",
    {
        "pass": str,
        "kind": str,
        "what": str,
        "subject": str,
        "line": int,
        "figures": list[str],
        "times": int,
    },
)
"""One line of the decision log."""


class JsonRoot(TypedDict):
    """A stretch of the arena in use from wave `first` to `last`; `made` and `read` are ids of steps."""

    title: str
    kind: str
    device: str
    offset: int
    bytes: int
    first: int
    last: int
    line: int
    also: str
    made: list[str]
    read: list[str]


class JsonMemory(TypedDict):
    """The arena of an entry point, with the bytes in use and the steps of each wave."""

    title: str
    arena: int
    bounds: dict[str, int]
    alive: list[int]
    roots: list[JsonRoot]
    steps: list[list[str]]


class JsonEntry(TypedDict):
    """An entry point: its graph, and its memory, or why it has none at the sizes that were tried."""

    name: str
    graph: NotRequired[JsonGraph]
    memory: NotRequired[JsonMemory]
    memory_error: NotRequired[str]


class JsonPage(TypedDict):
    """All that the page shows."""

    version: int
    model: str
    target: str
    files: list[JsonFile]
    levels: list[JsonLevel]
    nodes: dict[str, JsonNode]
    links: list[list[str]]
    decisions: list[JsonDecision]
    entries: list[JsonEntry]
