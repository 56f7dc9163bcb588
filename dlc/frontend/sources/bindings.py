"""Bindings: what a text names, where each name holds, and every place that uses it.

Name resolution fills them in. It reports from them what is unknown or unused, and editors find from them
where a name was given, where else it stands, and what may be written at a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dlc.frontend.builtins.registry import BUILTINS, CONSTANTS, SPECIALS
from dlc.frontend.elaboration.types import DTYPES
from dlc.frontend.expressions.basic import TRAINING
from dlc.frontend.weights.initialisers import FILES, INITIALISERS
from dlc.text.model import ast
from dlc.text.model.tree import walk
from dlc.text.source import Span

__all__ = ["EVERYWHERE", "Binding", "Names", "given", "given_by_file", "import_span"]

EVERYWHERE = (BUILTINS, CONSTANTS, SPECIALS, DTYPES, INITIALISERS, FILES, TRAINING)
"""Tables of the names that every text knows; a package may add to the first while dlc runs."""


@dataclass(slots=True, eq=False)
class Binding:
    """A name, the span that gives it, the node that does so, the span where it holds, and its uses.

    The node of a size that only a signature names is that Name. `uses` are in the order of resolution.
    """

    name: str
    span: Span
    node: ast.Node
    scope: Span
    uses: list[Span] = field(default_factory=list[Span])


class Names:
    """The names of a block, and of the blocks around it; each new one is entered into `made`."""

    __slots__ = ("_also", "bindings", "made", "open", "outer", "scope")

    def __init__(self, made: list[Binding], scope: Span, outer: Names | None = None) -> None:
        self.outer = outer
        self.made = made
        self.scope = scope
        self.bindings: dict[str, Binding] = {}
        self._also: set[str] = set()
        self.open = False
        """Whether names of sizes that nobody declares are given by the arguments of a call."""

    def inner(self, scope: Span) -> Names:
        """The names of a block in this one."""
        return Names(self.made, scope, self)

    def bind(self, name: str, span: Span, node: ast.Node) -> Binding:
        """A name means this from here on."""
        binding = Binding(name, span, node, self.scope)
        self.bindings[name] = binding
        self.made.append(binding)
        return binding

    def bind_named(self, nodes: Iterable[ast.Named]) -> None:
        """Bind the name that each node gives."""
        for node in nodes:
            self.bind(node.name, node.name_span, node)

    def bind_all(self, patterns: Iterable[ast.NamePattern]) -> None:
        """Bind the names of a pattern."""
        for pattern in patterns:
            self.bind(pattern.name, pattern.span, pattern)

    def share(self, parameters: Iterable[ast.Parameter], members: Iterable[ast.Member]) -> None:
        """Let the names of a module, which has been resolved, hold here too."""
        nodes = {node for node in (*parameters, *members) if isinstance(node, ast.Named)}
        for binding in self.made:
            if binding.node in nodes:
                self.bindings[binding.name] = binding

    def known_too(self, name: str) -> None:
        """A name means something here that no place of the text gives."""
        self._also.add(name)

    def use(self, name: str, span: Span) -> bool:
        """Note that a name is used; False if it means nothing here."""
        binding = self._find(name)
        if binding is not None:
            binding.uses.append(span)
            return True
        return self.knows(name)

    def use_of(self, kinds: tuple[type[ast.Named], ...], node: ast.Named) -> None:
        """Note that a statement names the nearest state, or the nearest carry."""
        names: Names | None = self
        while names is not None:
            binding = names.bindings.get(node.name)
            if binding is not None and isinstance(binding.node, kinds):
                binding.uses.append(node.name_span)
                return
            names = names.outer

    def knows(self, name: str) -> bool:
        """Whether a name means anything here."""
        names: Names | None = self
        while names is not None:
            if name in names.bindings or name in names._also:
                return True
            names = names.outer
        return any(name in table for table in EVERYWHERE)

    def known(self) -> list[str]:
        """Every visible name, innermost first."""
        visible: list[str] = []
        names: Names | None = self
        while names is not None:
            visible += reversed([*names.bindings, *sorted(names._also - names.bindings.keys())])
            names = names.outer
        return visible

    def _find(self, name: str) -> Binding | None:
        names: Names | None = self
        while names is not None:
            binding = names.bindings.get(name)
            if binding is not None:
                return binding
            names = names.outer
        return None


def given(pattern: ast.Pattern) -> Iterator[ast.NamePattern]:
    """The names that a pattern gives, in order."""
    return (node for node in walk(pattern) if isinstance(node, ast.NamePattern))


def given_by_file(tree: ast.File) -> Iterator[tuple[str, Span, ast.Node]]:
    """The names that a file declares or imports, the first declaration of each, with its place."""
    seen: set[str] = set()
    for item in tree.items:
        for name, span, node in _given_by_item(item):
            if name not in seen:
                seen.add(name)
                yield name, span, node


def _given_by_item(item: ast.Item) -> Iterator[tuple[str, Span, ast.Node]]:
    match item:
        case ast.Fn() | ast.Module() | ast.Const():
            yield item.name, item.name_span, item
        case ast.Let(pattern=pattern):
            for node in given(pattern):
                yield node.name, node.span, item
        case ast.Dims(entries=entries):
            for entry in entries:
                yield entry.name, entry.name_span, entry
        case ast.Import(names=None):
            span = import_span(item)
            yield item.called, span, item
        case ast.Import(names=(*entries,)):
            for entry in entries:
                yield entry.alias or entry.name, import_span(entry), entry
        case _:
            pass


def import_span(node: ast.Import | ast.ImportName) -> Span:
    """The place of the name by which a text calls what it imports."""
    if node.alias is not None:
        return Span(node.span.end - len(node.alias), node.span.end)
    return node.name_span if isinstance(node, ast.ImportName) else node.source_span
