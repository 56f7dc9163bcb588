"""The body of a function: which values get names, and what is written in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.dialects.array import tensor_type
from dlc.importers.model_text.expressions import Expr, Expressions, type_text
from dlc.importers.model_text.names import Names, brief, readable, short_name
from dlc.importers.model_text.terms import Item, Layer, Part, Term, Weight, values_of
from dlc.ir.core import Op, Value

LONG_CHAIN = 12
"""Functions in one chain."""
LONG = 60
"""Signs of an argument that is written in place."""


@dataclass(slots=True)
class Member:
    """A declaration of a module: `use`, `param` or `state`."""

    name: str
    text: str
    remark: str


@dataclass(slots=True)
class Body:
    """Statements, what they call, and the weights by their path in the module."""

    members: list[Member] = field(default_factory=list[Member])
    statements: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Each with a remark."""
    weights: dict[str, Weight] = field(default_factory=dict[str, Weight])
    results: list[str] = field(default_factory=list[str])


class BodyWriter:
    """Writes the terms of some values in their order.

    `given` are the values that have names already; `weights` those that are read from the weight file.
    In a module that has several instances, `shapes` are theirs, and their own names say nothing.
    `scope` are names that mean something around the body, such as sizes: nothing in it takes them.
    """

    def __init__(
        self,
        terms: Mapping[Value, Term],
        given: Mapping[Value, str],
        weights: Mapping[Value, Weight],
        results: Sequence[Value],
        shapes: Mapping[Value, Sequence[Item]] | None = None,
        scope: Iterable[str] = (),
    ) -> None:
        self.body = Body()
        self._shapes = shapes
        self._terms = terms
        self._weights = weights
        self._results = results
        self._called = dict(given)
        self._ready: dict[Value, Expr] = {}
        self._names = Names([*given.values(), *scope])
        self._layers: dict[Layer, str] = {}
        self._write = Expressions(self._resolve, self._layer)
        self._uses = Counter(results)
        for whole in _wholes(terms):
            self._uses.update(values_of(whole))

    def run(self) -> Body:
        """All statements, in the order of the terms."""
        for value, term in self._terms.items():
            if value in self._called:
                continue
            if isinstance(term, Part):
                self._parts(value, term)
                continue
            self._ready[value] = self._write.of(term)
            if self._uses[value] > 1:
                self._name(value)
        self.body.results = [self._result(value) for value in self._results]
        return self.body

    def _result(self, value: Value) -> str:
        """A result is written where it is returned, if that is its only use."""
        if self._uses[value] == 1 and value in self._ready:
            return self._ready[value].text
        return self._resolve(value, False).text

    def _parts(self, value: Value, term: Part) -> None:
        """Name all results of an operation at once."""
        assert value.op is not None
        found = [self._let(result) for result in value.op.results]
        text = self._write.of(term.whole).text
        self.body.statements.append((f"let ({', '.join(found)}) = {text}", ""))

    def _let(self, result: Value) -> str:
        if not self._uses[result]:
            return "_"
        self._called[result] = self._names.of(readable(result.name, "part"))
        return self._called[result]

    def _name(self, value: Value) -> Expr:
        """Give a value a name in a statement of its own."""
        name = self._names.of(readable(value.name, "h"))
        remark = f"{brief(value.name or '')} {type_text(tensor_type(value))}".strip()
        self.body.statements.append((f"let {name} = {self._ready.pop(value).text}", remark))
        self._called[value] = name
        return Expr(name)

    def _resolve(self, value: Value, first: bool) -> Expr:
        if value in self._called:
            return Expr(self._called[value])
        if value in self._weights and value not in self._terms:
            return Expr(self._param(value))
        expr = self._ready[value]
        chained = first and 0 < len(expr.stages) < LONG_CHAIN
        short = len(expr.stages) <= 1 and len(expr.text) <= LONG
        if chained or short:
            return self._ready.pop(value) if self._uses[value] == 1 else expr
        return self._name(value)

    # Members ----------------------------------------------------------------------------------

    def _param(self, value: Value) -> str:
        weight = self._weights[value]
        name = self._names.of("w" if self._shapes is not None else readable(weight.origin, "w"))
        self._called[value] = name
        kind = "param" if weight.trained else "state"
        type = type_text(tensor_type(value))
        if self._shapes is not None:
            sizes = ", ".join(self._write.of(item).text for item in self._shapes[value])
            type = f"{weight.dtype.name}[{sizes}]"
        self.body.members.append(Member(name, f"{kind} {name}: {type}", brief(weight.origin)))
        self.body.weights[name] = weight
        return name

    def _layer(self, layer: Layer) -> str:
        found = self._layers.get(layer)
        if found is not None:
            return found
        name = self._names.numbered(short_name(layer.module))
        self._layers[layer] = name
        settings = [
            f"{key}={self._write.of(item).text}" if key else self._write.of(item).text
            for key, item in layer.settings
        ]
        origins = [brief(weight.origin) for _, weight in layer.weights if weight.origin]
        remark = ", ".join(origins) if len(origins) <= 3 else f"{origins[0]} ... {origins[-1]}"
        text = f"use {name} = {layer.module}({', '.join(settings)})"
        self.body.members.append(Member(name, text, remark))
        for path, weight in layer.weights:
            self.body.weights[f"{name}.{path}"] = weight
        return name


def _wholes(terms: Mapping[Value, Term]) -> Iterable[Term]:
    """Each term once, also where it has several results."""
    seen: set[Op] = set()
    for value, term in terms.items():
        if isinstance(term, Part):
            assert value.op is not None
            if value.op in seen:
                continue
            seen.add(value.op)
        yield term
