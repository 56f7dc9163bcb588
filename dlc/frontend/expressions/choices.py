"""`if c then a else b`: decided when compiling, or a choice that each call makes."""

from __future__ import annotations

from dlc.dialects import flow
from dlc.errors import Label, ModelError
from dlc.frontend.elaboration.evaluator import Evaluator, evaluates
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.rules import refilled
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import (
    as_tensor,
    broadcast_to,
    dtype_of,
    natural_dtype,
    tensor_type,
)
from dlc.frontend.elaboration.trace import REGION, Trace, capture
from dlc.frontend.elaboration.values import UNKNOWN, Datum, Hole, Items, Record, describe, is_number
from dlc.ir.core import Block, Value
from dlc.ir.types import BOOL, F32, I32, DType, TensorType
from dlc.text.model import ast
from dlc.text.source import Span

__all__ = ["adapted", "check_condition", "common_dtype", "is_literal"]


@evaluates(ast.If)
def _if(ev: Evaluator, node: ast.If, scope: Scope) -> Datum:
    """The side that the condition chooses; known when compiling, the other side is not looked at."""
    condition = ev.eval(node.condition, scope)
    if isinstance(condition, bool):
        return ev.eval(node.chosen if condition else node.otherwise, scope)
    test = check_condition(ev, condition, node.condition.span)
    return _Choice(ev, node, scope).value(test)


def check_condition(ev: Evaluator, condition: Datum, span: Span) -> Value:
    """A condition that a call decides: one bool."""
    if condition is UNKNOWN:
        raise Poisoned
    if isinstance(condition, Hole):
        raise ev.unknown_size(condition, span)
    if isinstance(condition, Value) and condition.type is TensorType(BOOL):
        return condition
    help = None
    if isinstance(condition, Value):
        elementwise = dtype_of(condition) is BOOL
        help = "use all(...), any(...) or where(...)" if elementwise else "compare it: x != 0"
    elif is_number(condition):
        help = "compare it: n != 0"
    raise ev.at.fail(
        "D0401", f"a condition is one bool, found {describe(condition)}", span, help=help
    )


class _Choice:
    """Both sides of a choice, each in a region of its own."""

    def __init__(self, ev: Evaluator, node: ast.If, scope: Scope) -> None:
        self.ev, self.at = ev, ev.at
        self.node = node
        self.blocks = (Block(), Block())
        self.sides = (node.chosen, node.otherwise)
        self.found: list[Datum] = []
        ev.at.count(REGION)
        for side, block in zip(self.sides, self.blocks, strict=True):
            with ev.at.inside(block):
                self.found.append(ev.eval(side, scope))

    def value(self, test: Value) -> Datum:
        at = self.at
        yes, no = self.found
        pairs: list[tuple[Value, Value]] = []
        form = self._matched(yes, no, pairs)
        for side, block in enumerate(self.blocks):
            with at.inside(block):
                at.place(flow.Yield([pair[side] for pair in pairs]))
        if not pairs:
            return form
        at.stand(self.node.span)
        inputs = capture(self.blocks)
        return refilled(form, list(at.all(flow.If(test, inputs, *self.blocks))))

    def _matched(self, yes: Datum, no: Datum, pairs: list[tuple[Value, Value]]) -> Datum:
        """The form of both values; their tensors are added to `pairs`."""
        if isinstance(yes, Record) and isinstance(no, Record) and len(yes.items) == len(no.items):
            items = [self._matched(*both, pairs) for both in zip(yes.items, no.items, strict=True)]
            return Record(tuple(items), yes.names)
        if yes is no and not isinstance(yes, Value) and not is_number(yes):
            return yes
        if not all(isinstance(v, Value | Items | bool) or is_number(v) for v in (yes, no)):
            raise self._no_choice(yes, no)
        pair = self._tensors(yes, no)
        pairs.append(pair)
        return pair[0]

    def _tensors(self, yes: Datum, no: Datum) -> tuple[Value, Value]:
        """Both as tensors of one type: numbers adapt to the other side."""
        like = next((v for v in (yes, no) if isinstance(v, Value)), None)
        dtype = common_dtype(yes, no) if like is None else dtype_of(like)
        values: list[Value] = []
        for value, block, side in zip((yes, no), self.blocks, self.sides, strict=True):
            with self.at.inside(block):
                self.at.stand(side.span)
                values.append(adapted(self.at, value, dtype, like))
        if values[0].type is not values[1].type:
            raise self._no_choice(*values)
        return values[0], values[1]

    def _no_choice(self, yes: Datum, no: Datum) -> ModelError:
        spans = [side.span for side in self.sides]
        source = self.at.source
        labels = [
            Label(source.place(span), describe(value))
            for span, value in zip(spans, (yes, no), strict=True)
        ]
        tensors = isinstance(yes, Value) and isinstance(no, Value)
        return self.at.fail(
            "D0402",
            f"one side of this choice is {describe(yes)}, the other {describe(no)}",
            Span(self.node.span.start, self.node.condition.span.end),
            help="convert or broadcast one of them" if tensors else None,
            labels=labels,
        )


def is_literal(value: Datum) -> bool:
    """Whether a value is numbers known when compiling, which adapt to a tensor."""
    return isinstance(value, bool | int | float | Items)


def common_dtype(one: Datum, other: Datum) -> DType:
    """The dtype of numbers that meet only each other."""
    dtypes = {natural_dtype(one), natural_dtype(other)}
    return F32 if dtypes == {F32, I32} else natural_dtype(one)


def adapted(at: Trace, value: Datum, dtype: DType, like: Value | None) -> Value:
    """A value as a tensor; a single number fills the shape of `like`."""
    tensor = as_tensor(at, value, dtype)
    if like is not None and not isinstance(value, Value) and not tensor_type(tensor).rank:
        return broadcast_to(at, tensor, tensor_type(like).shape)
    return tensor
