"""The meaning of each name of a text, read from its bindings without elaborating anything.

So it is known in functions that nothing calls, in texts with errors, and while someone types. What only
values tell, such as the module of a layer that was handed in as a parameter, is asked of `observed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

from dlc.frontend.elaboration.problems import Problems, Stop
from dlc.frontend.sources.bindings import EVERYWHERE, Binding, given
from dlc.frontend.sources.files import File
from dlc.frontend.sources.imports import Loader
from dlc.frontend.sources.names import resolve
from dlc.text.model import ast
from dlc.text.model.tree import walk
from dlc.text.source import Source, Span

__all__ = ["Known", "Meaning", "Place", "Reading", "Reference"]

MAX_STEPS = 32
"""How many declarations lead from one to the next at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """The declaration of a name: the node that gives it, and where the name stands."""

    file: File
    node: ast.Node
    span: Span

    @property
    def key(self) -> tuple[str, Span]:
        """Equal for the same place of the same file."""
        return self.file.source.name, self.span

    @property
    def name(self) -> str:
        """The name as the declaration writes it."""
        return self.file.source.text[self.span.start : self.span.end]


@dataclass(frozen=True, slots=True)
class Known:
    """A name that every text knows: a builtin, a dtype, a constant."""

    name: str


Meaning: TypeAlias = "Place | Known"


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A place that names something, the declaration itself included; `node` is what stands there."""

    span: Span
    meaning: Meaning
    node: ast.Node


@dataclass(eq=False)
class Reading:
    """A text as far as it could be read, with what it imports.

    `module_of` may give the module of the instance that an expression is, where the text alone does not
    tell.
    """

    source: Source
    path: Path | None = None
    uri: str = ""
    """What the editor calls the text, where it was never saved."""
    unsaved: Mapping[Path, str] = field(default_factory=dict[Path, str])
    module_of: Callable[[ast.Expr], tuple[File, ast.Module] | None] = lambda _: None

    @cached_property
    def loader(self) -> Loader:
        """The reader, which has read the text and its imports."""
        folder = None if self.path is None else self.path.parent
        loader = Loader(Problems(), folder, unsaved=self.unsaved)
        try:
            loader.load(self.source)
        except Stop as stop:
            loader.problems.errors.append(stop.last)
        return loader

    @cached_property
    def file(self) -> File:
        """The text itself."""
        return self.loader.files[self.source.name]

    def path_of(self, name: str) -> Path | None:
        """The file with the text that diagnostics call by this name."""
        if name.startswith("<"):
            return Path(str(files("dlc.frontend").joinpath("library", name.strip("<>"))))
        if self.path is None or name == self.source.name:
            return self.path
        return self.path.parent / name

    def address_of(self, name: str) -> str:
        """The address of the text that diagnostics call by this name."""
        path = self.path_of(name)
        return self.uri if path is None else path.as_uri()

    # Bindings -------------------------------------------------------------------------------------

    def bindings(self, file: File) -> Mapping[Span, Binding]:
        """The bindings of a file by the spans of their declarations and uses."""
        found = self._bindings.get(file)
        if found is None:
            found = self._bindings[file] = {}
            try:
                bindings = resolve(file, Problems())
            except Stop:
                return found
            for binding in bindings:
                for span in (binding.span, *binding.uses):
                    found.setdefault(span, binding)
        return found

    @cached_property
    def _bindings(self) -> dict[File, dict[Span, Binding]]:
        return {}

    def visible(self, offset: int) -> dict[str, Binding]:
        """What the names of the text mean at a place, the innermost binding of each name."""
        around = [
            binding
            for binding in set(self.bindings(self.file).values())
            if binding.scope.start <= offset <= binding.scope.end
            and (not isinstance(binding.node, ast.Let) or _holds(binding, offset))
        ]
        around.sort(key=lambda b: (b.scope.start - b.scope.end, b.span.start))
        return {binding.name: binding for binding in around}

    # Meanings -------------------------------------------------------------------------------------

    def declared(self, file: File, name: str) -> Place | None:
        """The declaration behind a name of a file, which the file may have imported."""
        for _ in range(MAX_STEPS):
            node = file.declared.get(name)
            if node is not None:
                return Place(file, node, _name_span(node, name))
            origin = file.imported.get(name)
            if origin is None:
                return None
            file, own = origin
            if own is None:
                return Place(file, file.tree, Span(0, 0))
            name = own
        return None

    def meaning_of(self, file: File, binding: Binding) -> Place:
        """The declaration behind a binding: of an imported name, the one in the other file."""
        if isinstance(binding.node, ast.Import | ast.ImportName):
            return self.declared(file, binding.name) or Place(file, binding.node, binding.span)
        return Place(file, binding.node, binding.span)

    def meaning(self, file: File, node: ast.Expr, steps: int = MAX_STEPS) -> Place | None:
        """The declaration that a name, or `value.name`, stands for."""
        match node:
            case ast.Name(span=span):
                binding = self.bindings(file).get(span)
                return None if binding is None else self.meaning_of(file, binding)
            case ast.Attribute(value=value, name=name):
                return self._member(file, value, name, steps - 1)
            case _:
                return None

    def _member(self, file: File, value: ast.Expr, name: str, steps: int) -> Place | None:
        if steps <= 0:
            return None
        owner = self.meaning(file, value, steps)
        if owner is not None and isinstance(owner.node, ast.File):
            return self.declared(owner.file, name)
        found = self.instance(file, value, steps)
        if found is None:
            return None
        home, module = found
        for node in (*module.members, *module.parameters):
            if isinstance(node, ast.Named) and node.name == name:
                return Place(home, node, node.name_span)
        return None

    def instance(
        self, file: File, node: ast.Expr, steps: int = MAX_STEPS
    ) -> tuple[File, ast.Module] | None:
        """The module that the value of an expression is an instance of, if it is one."""
        if steps <= 0:
            return None
        match node:
            case ast.Call(function=function):
                place = self.meaning(file, function, steps - 1)
                if place is not None and isinstance(place.node, ast.Module):
                    return place.file, place.node
            case ast.Index(value=inner) | ast.Comprehension(body=inner) | ast.On(body=inner):
                return self.instance(file, inner, steps - 1)
            case ast.List(items=(first, *_)):
                return self.instance(file, first, steps - 1)
            case ast.Name() | ast.Attribute():
                place = self.meaning(file, node, steps - 1)
                if place is not None and isinstance(place.node, ast.Use | ast.Let | ast.Const):
                    found = self.instance(place.file, place.node.value, steps - 1)
                    if found is not None:
                        return found
            case _:
                pass
        return self.module_of(node)

    def parameters(
        self, file: File, call: ast.Call
    ) -> tuple[File, tuple[ast.Parameter, ...]] | None:
        """The parameters of what is called, where the text says what that is."""
        place = self.meaning(file, call.function)
        if place is not None and isinstance(place.node, ast.Fn | ast.Module):
            return place.file, place.node.parameters
        found = self.instance(file, call.function)
        if found is None:
            return None
        for member in found[1].members:
            if isinstance(member, ast.Fn) and member.name == "call":
                return found[0], member.parameters
        return None

    # References -----------------------------------------------------------------------------------

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        """Everything that the text itself names, in order."""
        return self.references_in(self.file)

    def references_in(self, file: File) -> tuple[Reference, ...]:
        """Everything that a file names, in the order of the text, each place once."""
        found: dict[Span, Reference] = {}
        for span, binding in self.bindings(file).items():
            found[span] = Reference(span, self.meaning_of(file, binding), binding.node)
        for reference in self._beyond_names(file):
            found.setdefault(reference.span, reference)
        return tuple(sorted(found.values(), key=lambda reference: reference.span))

    def _beyond_names(self, file: File) -> Iterator[Reference]:
        """Names behind a dot, of arguments, and of what every text knows."""
        for node in walk(file.tree):
            match node:
                case ast.Attribute(name_span=span):
                    place = self.meaning(file, node)
                    if place is not None:
                        yield Reference(span, place, node)
                case ast.Call(arguments=arguments) if any(a.name for a in arguments):
                    yield from self._arguments(file, node)
                case ast.ImportName(name_span=span):
                    place = self.declared(file, node.alias or node.name)
                    if place is not None:
                        yield Reference(span, place, node)
                case ast.Import(source_span=span):
                    origin = file.imported.get(node.called) if node.names is None else None
                    for entry in node.names or ():
                        origin = origin or file.imported.get(entry.alias or entry.name)
                    if origin is not None:
                        yield Reference(span, Place(origin[0], origin[0].tree, Span(0, 0)), node)
                case ast.Name(name=name, span=span) if any(name in table for table in EVERYWHERE):
                    yield Reference(span, Known(name), node)
                case ast.TensorType(dtype=dtype, span=span):
                    yield Reference(Span(span.start, span.start + len(dtype)), Known(dtype), node)
                case _:
                    continue

    def _arguments(self, file: File, call: ast.Call) -> Iterator[Reference]:
        """The parameters that the names of arguments stand for; `wrt=x` names one of the function's."""
        found = self.parameters(file, call)
        for argument in call.arguments:
            if argument.name is None:
                continue
            span = Span(argument.span.start, argument.span.start + len(argument.name))
            if found is not None:
                yield from _named(argument, argument.name, span, *found)
            elif argument.name == "wrt" and call.arguments[0].name is None:
                function = self.meaning(file, call.arguments[0].value)
                if function is not None and isinstance(function.node, ast.Fn):
                    for name in walk(argument.value):
                        if isinstance(name, ast.Name):
                            home, parameters = function.file, function.node.parameters
                            yield from _named(name, name.name, name.span, home, parameters)

    def at(self, offset: int) -> Reference | None:
        """What is named at a place: the shortest name there, its end included."""
        around = [r for r in self.references if r.span.start <= offset <= r.span.end]
        return min(around, key=lambda r: r.span.end - r.span.start, default=None)

    def uses(self, place: Place, own_files: bool = True) -> Iterator[tuple[File, Span]]:
        """Every place of these files that names a declaration, which is one of them."""
        for file in self.loader.files.values() if own_files else [self.file]:
            if file.source.name.startswith("<"):
                continue
            references = self.references if file is self.file else self.references_in(file)
            for reference in references:
                meaning = reference.meaning
                if isinstance(meaning, Place) and meaning.key == place.key:
                    yield file, reference.span


def _named(
    node: ast.Node, name: str, span: Span, home: File, parameters: Iterable[ast.Parameter]
) -> Iterator[Reference]:
    for parameter in parameters:
        if parameter.name == name:
            yield Reference(span, Place(home, parameter, parameter.name_span), node)


def _holds(binding: Binding, offset: int) -> bool:
    """Whether the name of a `let` is given before a place; at file level it holds everywhere."""
    return binding.node.span.end <= offset or binding.scope.start == 0


def _name_span(node: ast.Named | ast.Let, name: str) -> Span:
    if isinstance(node, ast.Named):
        return node.name_span
    return next(pattern.span for pattern in given(node.pattern) if pattern.name == name)
