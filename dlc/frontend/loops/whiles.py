"""`while`: a loop that a condition ends."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, flow
from dlc.errors import Label, ModelError
from dlc.frontend.elaboration.evaluator import Evaluator, evaluates
from dlc.frontend.elaboration.problems import add_labels
from dlc.frontend.elaboration.rules import leaves, refilled
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import as_tensor, tensor_type
from dlc.frontend.elaboration.trace import REGION, Loop, capture
from dlc.frontend.elaboration.values import Datum, Record, describe
from dlc.frontend.expressions.choices import check_condition, is_literal
from dlc.frontend.loops.loop_body import Body, Step, has_literal, results_of, settle
from dlc.ir.core import Block, Value
from dlc.ir.types import I64, TensorType
from dlc.text.model import ast


class _While(Loop):
    """One while: two regions on the same carried values."""

    def __init__(self, ev: Evaluator, node: ast.While, scope: Scope) -> None:
        self.ev, self.at = ev, ev.at
        self.node = node
        self.scope = scope
        self.body = Body(ev, node)
        self.condition, self.block = Block(), Block()
        self.index: Value | None = None

    def value(self) -> Datum:
        node, at = self.node, self.at
        if not node.carries:
            raise at.fail(
                "D0427",
                "this loop carries nothing, so nothing can end it",
                node.span,
                help="carry what changes: while c with x = x0 { next x = ... }",
            )
        given = initial = self.body.initial(self.scope)
        if any(has_literal(value) for value in initial):
            with at.discarded():
                trial = _While(self.ev, node, self.scope).elaborated(initial)
            initial = settle(self.ev, self.body, initial, trial)
        starts = [leaf for value in initial for leaf in leaves(self.ev, value)]
        forms = [refilled(v, leaves(self.ev, v)) for v in initial]
        try:
            self._test(forms)
        except ModelError as error:
            raise add_labels(error, self._adapted(given, forms)) from None
        self._nexts(forms)
        limit = None if node.limit is None else self._limit(node.limit)
        at.stand(node.span)
        if self.index is not None:
            starts = [*starts, array.fill(at, 0, TensorType(I64))]
        constants = capture([self.condition, self.block])
        results = list(at.all(flow.While(starts, constants, self.condition, self.block, limit)))
        return results_of(self.ev, node, forms, results)

    def _limit(self, node: ast.Expr) -> int:
        limit = self.ev.integer(node, self.scope)
        if limit < 0:
            raise self.at.fail("D0428", f"a limit is not negative, found {limit}", node.span)
        return limit

    def _scope_in(self, block: Block, carried: Sequence[Datum], *, named: bool) -> Scope:
        inner = self.scope.inner()
        for carry, value in zip(self.node.carries, carried, strict=True):
            inner.names[carry.name] = self._argument(block, carry, value, named=named)
        return inner

    def _argument(self, block: Block, carry: ast.Carry, value: Datum, *, named: bool) -> Datum:
        if isinstance(value, Record):
            items = [self._argument(block, carry, v, named=named) for v in value.items]
            return Record(tuple(items), value.names)
        if not isinstance(value, Value):
            return value
        argument = block.add_argument(value.type)
        if named:
            self.at.called(argument, carry.name, carry.name_span)
        return argument

    def _test(self, forms: Sequence[Datum]) -> None:
        """Build the region of the condition."""
        at, span = self.at, self.node.condition.span
        with at.inside(self.condition):
            inner = self._scope_in(self.condition, forms, named=False)
            test = self.ev.eval(self.node.condition, inner)
            at.stand(span)
            if isinstance(test, bool):
                test = as_tensor(at, test)
            at.place(flow.Yield([check_condition(self.ev, test, span)]))

    def _adapted(self, given: Sequence[Datum], forms: Sequence[Datum]) -> list[Label]:
        """Labels of carried numbers that are tensors in the condition, as their next value is one."""
        source = self.scope.home.source
        return [
            Label(source.place(carry.span), f"{carry.name} is {describe(form)}: its next value is")
            for carry, value, form in zip(self.node.carries, given, forms, strict=True)
            if is_literal(value) and isinstance(form, Value) and tensor_type(form).rank
        ]

    def elaborated(self, carried: Sequence[Datum]) -> Step:
        """Elaborate the body on these carried values."""
        self.at.count(REGION)
        with self.at.inside(self.block), self.at.looping(self):
            return self.body.run(self._scope_in(self.block, carried, named=True))

    def counter(self) -> Value:
        if self.index is None:
            self.index = self.block.add_argument(flow.COUNTER, "round")
        return self.index

    def _nexts(self, forms: Sequence[Datum]) -> list[Value]:
        """Build the region of the body."""
        at = self.at
        step = self.elaborated(forms)
        nexts: list[Value] = []
        with at.inside(self.block):
            position = 0
            for carry, form in zip(self.node.carries, forms, strict=True):
                count = len(leaves(self.ev, form))
                following = step.next.get(carry.name)
                if following is None:
                    nexts += self.block.arguments[position : position + count]
                else:
                    nexts += self.body.check(carry.name, form, *following)
                position += count
            at.stand(self.node.span)
            if self.index is not None:
                # The round was asked for: it is one more carried value, in both regions.
                self.condition.add_argument(flow.COUNTER, "round")
                one = array.fill(at, 1, flow.COUNTER)
                nexts.append(at(array.Add(self.index, one)))
            at.place(flow.Yield(nexts))
        return nexts


@evaluates(ast.While)
def _while(ev: Evaluator, node: ast.While, scope: Scope) -> Datum:
    return _While(ev, node, scope).value()
