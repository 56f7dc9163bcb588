"""The body of a function: which values get names, and what is written in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.dialects.array import tensor_type
from dlc.dialects.measured import Measuring
from dlc.export.model_text.expressions import FORM, Expr, Expressions, size, type_text
from dlc.export.model_text.members import Member, Members
from dlc.export.model_text.names import brief
from dlc.export.model_text.terms import (
    Braces,
    Call,
    Form,
    If,
    Item,
    Layer,
    Part,
    Scan,
    Term,
    Weight,
    While,
    values_of,
)
from dlc.ir.core import Op, Value
from dlc.ir.types import BOOL

SHORT = {"query": "q", "key_": "k", "value": "v"}
"""What the result of a layer is called, where that is not the layer's name without `_proj`."""
KEEPING = frozenset(
    ("reshape", "permute", "transpose", "broadcast", "relu", "silu", "gelu", "sigmoid", "tanh")
)
"""Functions whose result is still called by what they are applied to."""
LONG_CHAIN = 12
"""Functions in one chain."""
LONG = 60
"""Signs of an argument that is written in place."""
ROOM = 90
"""Signs of a statement and its remark in one line."""


@dataclass(slots=True)
class Body:
    """Statements, what they call, and the weights by their path in the module."""

    members: Sequence[Member]
    weights: Mapping[str, Weight]
    statements: list[str] = field(default_factory=list[str])
    results: list[str] = field(default_factory=list[str])

    def text(self) -> str:
        """The results, in braces with the statements if there are any."""
        value = _tuple(self.results)
        return braced([*self.statements, f"return {value}"]) if self.statements else value


def write_body(
    terms: Mapping[Value, Term],
    given: Mapping[Value, str],
    weights: Mapping[Value, Weight],
    results: Sequence[Value],
    shapes: Mapping[Value, Sequence[Item]] | None = None,
    scope: Iterable[str] = (),
    *,
    named: bool = False,
) -> Body:
    """Write the terms of some values in their order.

    `given` are the values that have names already; `weights` those that are read from the weight file.
    In a module that has several instances, `shapes` are theirs, and their own names say nothing.
    `scope` are names that mean something around the body, such as sizes: nothing in it takes them.
    With `named`, names say where in the network something stands, and remarks do not repeat it.
    """
    members = Members(given, weights, shapes, scope, named=named)
    return BodyWriter(terms, results, members).run()


class BodyWriter:
    """Writes the terms of a body, or of braces in the body that `around` writes."""

    def __init__(
        self,
        terms: Mapping[Value, Term],
        results: Sequence[Value],
        members: Members,
        around: BodyWriter | None = None,
    ) -> None:
        self.body = Body(members.declared, members.paths)
        self._terms = terms
        self._results = results
        self._members = members
        self._around = around
        self._ready: dict[Value, Expr] = {}
        self._hints: dict[Value, str] = {}
        self._write = Expressions(self._resolve, members.layer, self._form)
        self._uses = Counter(results)
        for whole in _wholes(terms):
            self._uses.update(values_of(whole))

    def run(self) -> Body:
        """All statements, in the order of the terms."""
        for value, term in self._terms.items():
            if self._members.known(value) is not None:
                continue
            if isinstance(term, Part):
                self._parts(value, term)
                continue
            self._ready[value] = self._write.of(term)
            self._hint(value, term)
            if self._uses[value] > 1 or (_is_stack(term) and value not in self._results):
                self._name(value)
        self.body.results += [self._result(value) for value in self._results]
        return self.body

    def _result(self, value: Value) -> str:
        """A result is written where it is returned, if that is its only use."""
        if self._uses[value] == 1 and value in self._ready:
            return self._ready[value].text
        return self._resolve(value, False).text

    def _parts(self, value: Value, term: Part) -> None:
        """Name all results of an operation at once."""
        op = value.op
        assert op is not None
        text = self._write.of(term.whole).text
        found = [self._let(op, result) for result in op.results]
        self.body.statements.append(f"let ({', '.join(found)}) = {text}")

    def _let(self, op: Op, result: Value) -> str:
        if isinstance(op, Measuring) and result is op.count:
            # In the language what is counted is a size.
            self._members.call(result, f"i64({op.dim_name})")
            return op.dim_name
        return self._members.give(result, "part") if self._uses[result] else "_"

    def _name(self, value: Value) -> Expr:
        """Give a value a name in a statement of its own."""
        kind = "mask" if tensor_type(value).dtype is BOOL else "h"
        name = self._members.give(value, self._hints.get(value, kind))
        statement = f"let {name} = {self._ready.pop(value).text}"
        # What is said of one instance of a module is not true of the others.
        own = self._members.shapes is None
        place = "" if self._members.named else brief(value.name or "")
        remark = f"{place} {type_text(tensor_type(value))}".strip()
        self.body.statements.append(line(statement, remark if own else ""))
        return Expr(name)

    def _hint(self, value: Value, term: Term) -> None:
        """Remember the layer that made a value, if its name says what the value is."""
        match term:
            case Layer(count=0):
                name = self._members.layer(term)
                short = SHORT.get(name, name.removesuffix("_proj"))
                if short != name:
                    self._hints[value] = short
            case Call(function, (Value() as source, *_)) if function in KEEPING:
                if source in self._hints:
                    self._hints[value] = self._hints[source]
            case Call("cos"):
                self._hints[value] = "cosine"
            case Call("sin"):
                self._hints[value] = "sine"
            case _:
                pass

    def _resolve(self, value: Value, first: bool) -> Expr:
        known = self._members.known(value)
        if known is not None:
            return Expr(known)
        if value not in self._ready:
            # What braces use of what is around them has a name there, and is computed there.
            assert self._around is not None
            return self._around._named(value)
        expr = self._ready[value]
        chained = first and 0 < len(expr.stages) < LONG_CHAIN
        short = len(expr.stages) <= 1 and len(expr.text) <= LONG
        if chained or short:
            return self._ready.pop(value) if self._uses[value] == 1 else expr
        return self._name(value)

    def _named(self, value: Value) -> Expr:
        """The name of a value, which it gets where it has none."""
        return self._name(value) if value in self._ready else self._resolve(value, False)

    # Choices and loops ------------------------------------------------------------------------

    def _form(self, form: Form | Layer) -> Expr:
        match form:
            case Layer():
                return self._stack(form)
            case If(condition, then, otherwise):
                test = self._write.of(condition).text
                sides = [self._inside(braces).text() for braces in (then, otherwise)]
                return Expr(f"if {test} then {sides[0]} else {sides[1]}", FORM)
            case Scan():
                return self._scan(form)
            case While(condition, initial, body):
                first = self._carried(initial, body.arguments)
                for old, new in zip(condition.arguments, body.arguments, strict=True):
                    self._members.call(old, self._resolve(new, False).text)
                test = self._inside(condition).text()
                return Expr(f"while {test}{first} {self._step(body, body.arguments)}", FORM)

    def _stack(self, layer: Layer) -> Expr:
        """A loop over layers of which each takes the result of the one before."""
        first = self._write.of(layer.source).text
        # What every layer takes is computed once, before the loop.
        more = [self._named(value).text for value in layer.more]
        stack = self._members.layer(layer)
        step = "block" if stack != "block" else "layer"
        carried = "h" if "h" not in more else self._members.fresh("h")
        call = f"{step}({', '.join([carried, *more])})"
        text = f"scan {step} in {stack} with {carried} = {first} {braced([f'next {carried} = {call}'])}"
        return Expr(text, FORM)

    def _scan(self, form: Scan) -> Expr:
        counter, *rest = form.body.arguments
        carried, parts = rest[: len(form.initial)], rest[len(form.initial) :]
        sources = [self._write.of(source).text for source in form.sources]
        first = self._carried(form.initial, carried)
        names = [self._members.give(part, "x") if part.uses else "_" for part in parts]
        length = size(form.length).text
        if not sources:
            pattern, source = "_", f"0..{length}"
            if counter.uses:
                pattern = self._members.give(counter, "i")
                self._members.call(counter, f"i64({pattern})")
        else:
            if counter.uses:
                names.insert(0, self._members.give(counter, "i"))
                sources.insert(0, f"arange({length}, dtype=i64)")
            pattern, source = _tuple(names), _tuple(sources)
        way = "reverse " if form.reverse else ""
        along = f" along {form.along}" if form.along else ""
        head = f"scan {pattern} in {way}{source}{along}{first}"
        return Expr(f"{head} {self._step(form.body, carried)}", FORM)

    def _carried(self, initial: Sequence[Value], arguments: Sequence[Value]) -> str:
        """`with h = h0, c = c0`, with a space before it; nothing where nothing is carried."""
        values = [self._write.of(value).text for value in initial]
        names = [self._members.give(argument, "h") for argument in arguments]
        pairs = [f"{name} = {value}" for name, value in zip(names, values, strict=True)]
        return f" with {', '.join(pairs)}" if pairs else ""

    def _step(self, braces: Braces, carried: Sequence[Value]) -> str:
        """The braces of a loop: statements, the next values of what changes, and the yields."""
        body = self._inside(braces)
        following = zip(carried, braces.results, body.results, strict=False)
        steps = [
            f"next {self._resolve(argument, False).text} = {text}"
            for argument, value, text in following
            if value is not argument
        ]
        yields = [f"yield {text}" for text in body.results[len(carried) :]]
        return braced([*body.statements, *steps, *yields])

    def _inside(self, braces: Braces) -> Body:
        return BodyWriter(braces.terms, braces.results, self._members, self).run()


def braced(statements: Sequence[str]) -> str:
    """Statements in braces."""
    return "\n".join(["{", *statements, "}"])


def line(text: str, remark: str) -> str:
    """A statement with a remark, behind it if both fit in a line, else before it."""
    plain = "".join(sign if sign.isprintable() else "?" for sign in remark)
    if not plain:
        return text
    if len(text) + len(plain) <= ROOM and "\n" not in text:
        return f"{text}  # {plain}"
    return f"# {plain}\n{text}"


def _tuple(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _is_stack(term: Term) -> bool:
    return isinstance(term, Layer) and term.count > 0


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
