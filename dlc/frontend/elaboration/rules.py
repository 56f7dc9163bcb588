"""Functions that bring their own derivative: `fn f(x) = ... with vjp(x, dy) = ...`."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import flow
from dlc.dialects.array import show
from dlc.errors import Label
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import as_tensor, dtype_of
from dlc.frontend.elaboration.trace import capture
from dlc.frontend.elaboration.types import Expectation, Matcher
from dlc.frontend.elaboration.values import UNKNOWN, Datum, Record, describe
from dlc.ir.core import Block, Value
from dlc.text.model import ast

__all__ = ["leaves", "refilled", "with_rule"]


def leaves(ev: Evaluator, value: Datum) -> list[Value]:
    """The tensors that a result is made of."""
    if isinstance(value, Record):
        return [leaf for item in value.items for leaf in leaves(ev, item)]
    if value is UNKNOWN:
        raise Poisoned
    return [as_tensor(ev.at, value)]


def refilled(like: Datum, tensors: list[Value]) -> Datum:
    """A value of the form of `like` with other tensors, which are taken from the front."""
    if isinstance(like, Record):
        return Record(tuple([refilled(item, tensors) for item in like.items]), like.names)
    return tensors.pop(0)


def with_rule(ev: Evaluator, declaration: ast.Fn, scope: Scope) -> Datum:
    """The value of a function with a rule, whose parameters are in `scope` already."""
    return _Custom(ev, declaration, scope).value()


class _Custom:
    """One call of a function with a rule."""

    def __init__(self, ev: Evaluator, declaration: ast.Fn, scope: Scope) -> None:
        self.ev, self.at = ev, ev.at
        self.declaration = declaration
        self.scope = scope
        names = [parameter.name for parameter in declaration.parameters]
        self.tensors = {n: v for n in names if isinstance(v := scope.names[n], Value)}

    def value(self) -> Datum:
        at = self.at
        span = at.span
        primal, result = self._primal()
        results = list(primal.terminator.operands)
        rule = self._rule(results, result)
        for block in (primal, rule):
            self._refuse_captured(capture([block]))
        at.stand(span)
        outputs = list(at.all(flow.Custom(tuple(self.tensors.values()), primal, rule)))
        return refilled(result, outputs)

    def _primal(self) -> tuple[Block, Datum]:
        block = Block()
        scope = self._scope_of(block)
        with self.at.inside(block):
            result = self.ev.eval(self.declaration.body, scope)
            self.at.place(flow.Yield(tuple(leaves(self.ev, result))))
        return block, result

    def _scope_of(self, block: Block) -> Scope:
        """The call's scope with the block's own arguments in place of the tensors."""
        scope = Scope(self.scope.home)
        scope.names.update(self.scope.names)
        for name, value in self.tensors.items():
            scope.names[name] = block.add_argument(value.type, name)
        return scope

    def _rule(self, results: Sequence[Value], result: Datum) -> Block:
        """The region of the rule: it takes the inputs, the results, and a cotangent for each float."""
        rule = self.declaration.vjp
        assert rule is not None
        block = Block()
        scope = self._scope_of(block)
        shown = [block.add_argument(value.type) for value in results]
        floats = [value for value in results if dtype_of(value).is_float]
        seeds = [block.add_argument(value.type) for value in floats]
        if isinstance(result, Record):
            named = zip(result.names, shown, strict=False)
            scope.names.update({name: value for name, value in named if name})
        self._name_cotangents(rule, seeds, scope)
        with self.at.inside(block):
            gradients = leaves(self.ev, self.ev.eval(rule.body, scope))
            self.at.stand(rule.body.span)
            self._check(rule, gradients)
            self.at.place(flow.Yield(tuple(gradients)))
        return block

    def _name_cotangents(self, rule: ast.VjpRule, seeds: list[Value], scope: Scope) -> None:
        """The parameters of the rule that the function does not have are what its results receive."""
        own = {parameter.name for parameter in self.declaration.parameters}
        new = [p for p in rule.parameters if p.name not in own and p.name not in scope.names]
        if len(new) != len(seeds):
            raise self.at.fail(
                "D0424",
                f"the rule of {self.declaration.name} names {len(new)} cotangents, "
                f"its results need {len(seeds)}",
                rule.span,
                help="write the function's parameters, then one name for each result: vjp(x, dy)",
            )
        for parameter, seed in zip(new, seeds, strict=True):
            value: Datum = seed
            if parameter.type is not None:
                matcher = Matcher(self.ev, scope)
                why = Expectation("given", scope.home.source, parameter.span)
                value = matcher.value(parameter.type, seed, why)
                matcher.finish()
            scope.names[parameter.name] = value
            seed.name = parameter.name

    def _check(self, rule: ast.VjpRule, gradients: Sequence[Value]) -> None:
        inputs = {n: v for n, v in self.tensors.items() if dtype_of(v).is_float}
        if len(gradients) != len(inputs):
            raise self.at.fail(
                "D0409",
                f"the rule of {self.declaration.name} gives {len(gradients)} values, "
                f"it has {len(inputs)} parameters of floats: {', '.join(inputs)}",
                rule.body.span,
            )
        for value, (name, parameter) in zip(gradients, inputs.items(), strict=True):
            if value.type is not parameter.type:
                raise self.at.fail(
                    "D0409",
                    f"the rule gives {show(value)} for {name}, which is {describe(parameter)}",
                    rule.body.span,
                    labels=(Label(self.at.source.place(rule.span), "the rule"),),
                )

    def _refuse_captured(self, captured: Sequence[Value]) -> None:
        if not captured:
            return
        names = [value.name or show(value) for value in captured]
        raise self.at.fail(
            "D0430",
            f"{self.declaration.name} has a rule of its own and uses {names[0]} from outside",
            self.declaration.name_span,
            help="pass it as a parameter, so that the rule can say its derivative",
        )
