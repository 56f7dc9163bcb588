"""Texts and what their names mean: declarations, imports, constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dlc.errors import Diagnostic, Label, ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.calls import Function
from dlc.frontend.elaboration.definitions import ModuleDefinition
from dlc.frontend.elaboration.evaluator import Evaluator, attributes_of
from dlc.frontend.elaboration.patterns import names_of, unpack
from dlc.frontend.elaboration.problems import Poisoned, Problems
from dlc.frontend.elaboration.scope import MISSING, Home, Scope
from dlc.frontend.elaboration.types import Expectation, Matcher
from dlc.frontend.elaboration.values import UNKNOWN, Datum, Items, Marker, Record, Thing
from dlc.frontend.weights.stored_tensors import stored_constant
from dlc.ir.core import Value
from dlc.ir.dims import symbol
from dlc.text.model import ast
from dlc.text.model.parser import Parsed
from dlc.text.source import Span

__all__ = ["EVALUATING", "File", "Namespace", "is_fixed"]

EVALUATING: Final = Marker("being evaluated")


class File(Home):
    """One text: `declared` has the items by name, `imported` what comes from other files.

    `faults` is where it could not be read. What has one in it means nothing known.
    """

    def __init__(self, parsed: Parsed, problems: Problems, faults: Sequence[int] = ()) -> None:
        self.tree = tree = parsed.file
        self.source = tree.source
        self.devices = parsed.devices
        self._faults = faults
        self.ev: Evaluator | None = None
        self.declared: dict[str, ast.Named | ast.Let] = {}
        self.imported: dict[str, tuple[File, str | None]] = {}
        self._values: dict[str, Datum] = {}
        for item in tree.items:
            for name, span, node in _names_given(item):
                self._declare(name, span, node, problems)

    def _declare(
        self, name: str, span: Span, node: ast.Named | ast.Let, problems: Problems
    ) -> None:
        earlier = self.declared.get(name)
        if earlier is None:
            self.declared[name] = node
            return
        first = earlier.name_span if isinstance(earlier, ast.Named) else earlier.span
        place = self.source.place(span)
        labels = (Label(self.source.place(first), f"{name} is declared here first"),)
        problems.report(
            [Diagnostic("D0202", f"{name} is declared twice", place, labels, "rename one of them")]
        )

    def is_sound(self, node: ast.Node) -> bool:
        """Whether all of it could be read."""
        return not any(node.span.start <= fault <= node.span.end for fault in self._faults)

    # Names ----------------------------------------------------------------------------------------

    def declared_at(self, name: str) -> Span | None:
        node = self.declared.get(name)
        return node.name_span if isinstance(node, ast.Fn) else None

    def find(self, name: str) -> Datum:
        value = self._values.get(name, MISSING)
        if value is EVALUATING:
            raise self._circular(name)
        if value is not MISSING:
            return value
        node = self.declared.get(name)
        if node is not None:
            return self._value(name, node)
        origin = self.imported.get(name)
        if origin is None:
            return MISSING
        file, own_name = origin
        return Namespace(file, name) if own_name is None else file.find(own_name)

    def is_dim(self, name: str) -> bool:
        node = self.declared.get(name)
        if node is None:
            return name not in self.imported
        return isinstance(node, ast.DimEntry)

    def known(self) -> Iterator[str]:
        yield from self.declared
        yield from self.imported

    def dims(self) -> Mapping[str, ast.DimEntry]:
        """The dims that the file declares, in order."""
        return {n: d for n, d in self.declared.items() if isinstance(d, ast.DimEntry)}

    def force(self) -> None:
        """Evaluate all constants, in the order of the text, whether anything uses them or not."""
        ev = self._evaluator
        for name, node in self.declared.items():
            if isinstance(node, ast.Const):
                try:
                    with ev.at.discarded():
                        self.find(name)
                except ModelError as error:
                    ev.report(error)
                except Poisoned:
                    pass

    def _value(self, name: str, node: ast.Named | ast.Let) -> Datum:
        match node:
            case ast.Fn() | ast.Const() | ast.Let() if not self.is_sound(node):
                value: Datum = UNKNOWN
            case ast.Fn():
                value = Function(node, self)
            case ast.Module():
                value = ModuleDefinition(node, self, self.is_sound)
            case ast.DimEntry():
                value = symbol(name)
            case ast.Const() | ast.Let():
                return self._evaluated(name, node)
            case _:
                return MISSING
        self._values[name] = value
        return value

    def _evaluated(self, name: str, node: ast.Const | ast.Let) -> Datum:
        """The value of a `const` or `let`: kept if it is fixed, made anew where it computes."""
        self._values[name] = EVALUATING
        try:
            scope = self._run(name, node)
        finally:
            del self._values[name]
        for bound, value in scope.names.items():
            if is_fixed(value) or value is UNKNOWN:
                self._values[bound] = value
        value = scope.names.get(name, UNKNOWN)
        if isinstance(node, ast.Const) and not is_fixed(value):
            self._values[name] = UNKNOWN
            raise self._evaluator.at.fail(
                "D0327",
                f"the constant {name} is not known when compiling",
                place=self.source.place(node.value.span),
                help="name a computed value with let",
            )
        if value is UNKNOWN:
            raise Poisoned
        return value

    def _run(self, name: str, node: ast.Const | ast.Let) -> Scope:
        """Evaluate the declaration in a scope of its own; an error is recorded once."""
        ev, scope = self._evaluator, Scope(self)
        ev.at.count(4)
        try:
            with ev.elsewhere(self.source):
                self._bind(name, node, scope)
        except ModelError as error:
            ev.report(error)
            scope.names.update(dict.fromkeys(_given_by(node), UNKNOWN))
        except Poisoned:
            scope.names.update(dict.fromkeys(_given_by(node), UNKNOWN))
        return scope

    def _bind(self, name: str, node: ast.Const | ast.Let, scope: Scope) -> None:
        ev = self._evaluator
        stored = stored_constant(ev, name, node, scope)
        if stored is not None:
            scope.names[name] = stored
            return
        value = ev.eval(node.value, scope)
        if node.type is not None:
            matcher = Matcher(ev, scope)
            why = Expectation("found", self.source, node.value.span)
            value = matcher.value(node.type, value, why)
            matcher.finish()
        if isinstance(node, ast.Const):
            scope.names[name] = value
        else:
            unpack(ev, node.pattern, value, scope, node.value.span)

    @property
    def _evaluator(self) -> Evaluator:
        assert self.ev is not None
        return self.ev

    def _circular(self, name: str) -> ModelError:
        node = self.declared[name]
        return self._evaluator.at.fail(
            "D0214",
            f"{name} is defined by itself",
            place=self.source.place(node.span),
            help="break the circle: one of the values must not depend on the others",
        )


def _given_by(node: ast.Const | ast.Let) -> list[str]:
    return [node.name] if isinstance(node, ast.Const) else names_of(node.pattern)


def _names_given(item: ast.Item) -> Iterator[tuple[str, Span, ast.Named | ast.Let]]:
    """The names that an item declares, where, and by which node."""
    match item:
        case ast.Fn() | ast.Module() | ast.Const():
            yield item.name, item.name_span, item
        case ast.Let():
            for name in names_of(item.pattern):
                yield name, item.pattern.span, item
        case ast.Dims(entries=entries):
            for entry in entries:
                yield entry.name, entry.name_span, entry
        case _:
            pass


def is_fixed(value: Datum) -> bool:
    """Whether a value is known when compiling: no tensor that a function computes is in it."""
    match value:
        case Value():
            return False
        case Items(items) | Record(items):
            return all(map(is_fixed, items))
        case _:
            return True


@dataclass(frozen=True, slots=True, eq=False)
class Namespace(Thing):
    """A whole file under one name: `import nn` and then `nn.Linear`."""

    file: File
    name: str

    @property
    def called(self) -> str:
        return f"the import {self.name}"


@attributes_of(Namespace)
def _member(ev: Evaluator, namespace: Namespace, node: ast.Attribute) -> Datum:
    value = namespace.file.find(node.name)
    if value is MISSING:
        raise ev.at.fail(
            "D0206",
            f"{namespace.name} has no {node.name}",
            node.name_span,
            help=did_you_mean(node.name, namespace.file.known()),
        )
    if value is UNKNOWN:
        raise Poisoned
    return value
