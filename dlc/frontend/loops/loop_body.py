"""The common part of `scan` and `while`: carried values keep their types from step to step.

A first value that is a number, `with g = 0`, takes the type that the first step gives it: the body is
elaborated once on trial to learn it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlc.dialects.array import show
from dlc.errors import Label, ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.rules import leaves, refilled
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.statements import run_statement
from dlc.frontend.elaboration.tensors import as_tensor, dtype_of
from dlc.frontend.elaboration.values import UNKNOWN, Datum, Record, describe
from dlc.frontend.expressions.choices import adapted, common_dtype, is_literal
from dlc.ir.core import Value
from dlc.text.model import ast
from dlc.text.source import Span

__all__ = ["Body", "Step", "has_literal", "results_of", "settle"]


@dataclass(slots=True)
class Step:
    """The result of elaborating a loop's body once."""

    next: dict[str, tuple[Datum, Span]] = field(default_factory=dict[str, tuple[Datum, Span]])
    yields: list[Datum] = field(default_factory=list[Datum])
    spoilt: bool = False


class Body:
    """The statements of a loop: run in a scope that has the carried values and the step's parts."""

    def __init__(self, ev: Evaluator, node: ast.Scan | ast.While) -> None:
        self.ev = ev
        self.node = node
        self.names = [carry.name for carry in node.carries]
        twice = next((c for c in node.carries if self.names.count(c.name) > 1), None)
        if twice is not None:
            raise ev.at.fail("D0202", f"{twice.name} is carried twice", twice.name_span)

    def initial(self, scope: Scope) -> list[Datum]:
        """The first values of what is carried."""
        return [self.ev.eval(carry.value, scope) for carry in self.node.carries]

    def run(self, scope: Scope) -> Step:
        """Elaborate the statements once."""
        step = Step()
        for statement in self.node.body.statements:
            match statement:
                case ast.Next() | ast.Yield() | ast.Return():
                    try:
                        self._hand_over(statement, scope, step)
                    except ModelError as error:
                        self.ev.report(error)
                        step.spoilt = True
                    except Poisoned:
                        step.spoilt = True
                case _:
                    run_statement(self.ev, statement, scope)
        if step.spoilt:
            raise Poisoned
        return step

    def _hand_over(
        self, statement: ast.Next | ast.Yield | ast.Return, scope: Scope, step: Step
    ) -> None:
        match statement:
            case ast.Next(name=name):
                if name not in self.names:
                    raise self._not_carried(statement)
                if name in step.next:
                    raise self.ev.at.fail(
                        "D0425", f"{name} gets its next value twice", statement.name_span
                    )
                step.next[name] = (self.ev.eval(statement.value, scope), statement.value.span)
            case ast.Yield():
                if isinstance(self.node, ast.While):
                    raise self.ev.at.fail(
                        "D0421",
                        "a while yields nothing: how many rounds it takes is not known",
                        statement.span,
                        help="use scan, or carry a tensor and update it",
                    )
                value = self.ev.eval(statement.value, scope)
                step.yields.extend(_parts(value))
            case ast.Return():
                raise self.ev.at.fail(
                    "D0421",
                    "a step of a loop returns nothing",
                    statement.span,
                    help="hand values on with next, and over with yield",
                )

    def _not_carried(self, statement: ast.Next) -> ModelError:
        return self.ev.at.fail(
            "D0425",
            f"{statement.name} is not carried by this loop",
            statement.name_span,
            help=did_you_mean(statement.name, self.names)
            or f"carry it: with {statement.name} = its first value",
        )

    def check(self, name: str, start: Datum, value: Datum, span: Span) -> list[Value]:
        """The tensors of a carried value's next step, which have the types of the first ones."""
        at = self.ev.at
        at.stand(span)
        before = leaves(self.ev, start)
        after = _flat(value)
        if len(before) != len(after):
            raise self._changed(name, describe(start), describe(value), span)
        found: list[Value] = []
        for old, new in zip(before, after, strict=True):
            if new is UNKNOWN:
                raise Poisoned
            tensor = adapted(at, new, dtype_of(old), old)
            if tensor.type is not old.type:
                raise self._changed(name, show(old), show(tensor), span)
            found.append(tensor)
        return found

    def _changed(self, name: str, before: str, after: str, span: Span) -> ModelError:
        source = self.ev.at.source
        carry = next(c for c in self.node.carries if c.name == name)
        return self.ev.at.fail(
            "D0403",
            f"{name} starts as {before} and the next step makes it {after}",
            span,
            help="convert or reshape one of them: a carried value keeps its type",
            labels=(Label(source.place(carry.span), f"{name} starts here"),),
        )


def _parts(value: Datum) -> Sequence[Datum]:
    """What a `yield` hands over: the items of a tuple without names, each a result of its own."""
    if isinstance(value, Record) and not any(value.names):
        return value.items
    return [value]


def _flat(value: Datum) -> list[Datum]:
    if isinstance(value, Record):
        return [leaf for item in value.items for leaf in _flat(item)]
    return [value]


def settle(ev: Evaluator, body: Body, initial: list[Datum], trial: Step) -> list[Datum]:
    """First values whose numbers have the types that the first step gave them."""
    at = ev.at
    settled: list[Datum] = []
    for carry, start in zip(body.node.carries, initial, strict=True):
        at.stand(carry.value.span)
        following = trial.next.get(carry.name)
        settled.append(_settled(ev, start, start if following is None else following[0]))
    return settled


def _settled(ev: Evaluator, start: Datum, following: Datum) -> Datum:
    if isinstance(start, Record):
        parts = following.items if isinstance(following, Record) else ()
        pairs = zip(start.items, parts or start.items, strict=len(parts) == len(start.items))
        return Record(tuple([_settled(ev, *pair) for pair in pairs]), start.names)
    if isinstance(following, Value) and is_literal(start):
        return adapted(ev.at, start, dtype_of(following), following)
    if is_literal(start) and is_literal(following):
        return as_tensor(ev.at, start, common_dtype(start, following))
    return as_tensor(ev.at, start)


def has_literal(value: Datum) -> bool:
    return any(is_literal(leaf) for leaf in _flat(value))


def results_of(
    ev: Evaluator, node: ast.Scan | ast.While, forms: Sequence[Datum], results: list[Value]
) -> Datum:
    """The value of a loop: its results in the form of what was carried and yielded."""
    if not forms:
        raise ev.at.fail(
            "D0427",
            "this loop gives nothing",
            node.span,
            help="carry a value, with h = h0, or yield one",
        )
    parts = [refilled(form, results) for form in forms]
    return parts[0] if len(parts) == 1 else Record.of(tuple(parts))
