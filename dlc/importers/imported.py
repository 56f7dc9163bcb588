"""The result of every importer: a module at graph level, and the words for where it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.dialects.builtin import Module
from dlc.errors import Diagnostic
from dlc.ir.location import FileLocation

Array: TypeAlias = NDArray[np.generic]

SHOWN = 5
"""How many nodes of a kind a message names at most."""


class ImportedScope(Protocol):
    """A module of another tool that a node was computed in."""

    @property
    def path(self) -> str:
        """Its path from the whole, with dots: `encoder.layer.0`."""
        ...

    @property
    def kind(self) -> str:
        """Its class; empty where only the path is known."""
        ...


class ImportedNode(Protocol):
    """A node of the graph that was imported."""

    @property
    def kind(self) -> str:
        """The name of its operator."""
        ...

    @property
    def line(self) -> int:
        """Its line in the listing, from 1."""
        ...

    @property
    def label(self) -> str:
        """Its own name in messages."""
        ...

    @property
    def modules(self) -> Sequence[ImportedScope]:
        """The modules that it was computed in, from the whole to the innermost."""
        ...


class ImportedModel(Protocol):
    """IR at graph level, the arrays of its weight symbols, and the nodes that it was made of.

    The line of an operation's location is that of its node in `listing`, the k-th node at line k.
    """

    @property
    def module(self) -> Module: ...

    @property
    def arrays(self) -> Mapping[str, Array]: ...

    @property
    def listing(self) -> str: ...

    @property
    def nodes(self) -> Sequence[ImportedNode]: ...

    @property
    def renamed(self) -> Mapping[str, str]: ...

    @property
    def warnings(self) -> tuple[Diagnostic, ...]: ...

    @property
    def settled(self) -> frozenset[str]: ...


def node_location(file: str, node: ImportedNode, name: str) -> FileLocation:
    """The location of what a node becomes: its line, its module or else its `name`, and its operator."""
    path = node.modules[-1].path if node.modules else ""
    return FileLocation(file, node.line, 1, path=path or name, operation=_operation(node.kind))


def _operation(kind: str) -> str:
    """The name of an operator as dlc writes names.

    >>> _operation("aten.batch_norm.default"), _operation("stablehlo.add"), _operation("MaxPool")
    ('batch_norm', 'add', 'max_pool')
    """
    _, *rest = kind.split(".")
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", rest[0] if rest else kind).lower()


def counted(nodes: Sequence[ImportedNode]) -> str:
    """The number of nodes, and the first ones by name, for messages."""
    count = "one node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    labels = ", ".join(node.label for node in nodes[:SHOWN])
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    return f"{count}, {labels}{more}"
