"""Expressions that make submodules: calls of modules, `chain`, `L * Block(...)`, lists, choices.

In such a place a call of a function that lacks its first argument is a layer: `avg_pool2d(2)`.
"""

from __future__ import annotations

from typing import Final

from dlc.frontend.builtins.registry import SPECIALS
from dlc.frontend.elaboration.calls import Function, arguments_of, bind
from dlc.frontend.elaboration.definitions import ModuleDefinition
from dlc.frontend.elaboration.evaluator import Evaluator, Special, calls, evaluates, makes
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.types import Expectation, Matcher
from dlc.frontend.elaboration.values import (
    PLACEHOLDER,
    UNKNOWN,
    Argument,
    Arguments,
    Builtin,
    Callee,
    Datum,
    Hole,
    Items,
    Partial,
    describe,
)
from dlc.frontend.expressions.basic import comprehended
from dlc.frontend.modules.chains import Chain
from dlc.frontend.modules.instances import Core, Instance, Stack
from dlc.ir.core import Value
from dlc.ir.dims import Dim
from dlc.ir.types import DType
from dlc.text.model import ast

__all__ = ["instantiate"]

MAX_STACK: Final = 65_536


@makes(ast.Call)
def _made(ev: Evaluator, node: ast.Call, scope: Scope) -> Datum:
    """An instance of a module, a chain, or a function with arguments to come."""
    callee = ev.eval(node.function, scope)
    match callee:
        case Special():
            return callee.run(ev, node, scope)
        case ModuleDefinition():
            return instantiate(ev, callee, arguments_of(ev, node, scope))
        case Builtin():
            return Partial(callee, arguments_of(ev, node, scope))
        case Function() if _takes_tensor(callee):
            return Partial(callee, arguments_of(ev, node, scope))
        case _:
            return ev.call(callee, arguments_of(ev, node, scope))


def _takes_tensor(function: Function) -> bool:
    parameters = function.declaration.parameters
    return bool(parameters) and isinstance(parameters[0].type, ast.TensorType)


@makes(ast.If)
def _chosen(ev: Evaluator, node: ast.If, scope: Scope) -> Datum:
    condition = ev.eval(node.condition, scope)
    if not isinstance(condition, bool):
        raise ev.not_known(condition, "a condition known when compiling", node.condition.span)
    return ev.layer(node.chosen if condition else node.otherwise, scope)


@makes(ast.List)
def _listed(ev: Evaluator, node: ast.List, scope: Scope) -> Datum:
    chain = Items(tuple([ev.layer(item, scope) for item in node.items]))
    ev.at.count_items(chain.size)
    return chain


@makes(ast.Comprehension)
def _comprehended(ev: Evaluator, node: ast.Comprehension, scope: Scope) -> Datum:
    return comprehended(ev, node, scope, ev.layer)


@makes(ast.Binary)
def _stacked(ev: Evaluator, node: ast.Binary, scope: Scope) -> Datum:
    """`L * Block(...)`: the weights of L blocks, stacked."""
    *front, last = node.rest
    if last.op != "*":
        return ev.eval(node, scope)
    count: Datum = ev.eval(node.first, scope)
    if front:
        span = type(node.span)(node.span.start, front[-1].operand.span.end)
        count = ev.eval(ast.Binary(span, node.first, tuple(front)), scope)
    template = ev.layer(last.operand, scope)
    if not isinstance(template, Instance | Chain):
        if isinstance(template, Callee):
            raise ev.at.fail(
                "D0218", f"{describe(template)} has no weights to stack", last.operand.span
            )
        return ev.eval(node, scope)
    number = ev.as_size(count, node.first.span)
    if not isinstance(number, int) or not 0 <= number <= MAX_STACK:
        raise ev.at.fail(
            "D0327",
            f"a stack has 0 to {MAX_STACK:,} blocks, found {describe(count)}",
            node.first.span,
        )
    return Stack(number, template)


# Chains -------------------------------------------------------------------------------------------


def _chain(ev: Evaluator, node: ast.Call, scope: Scope) -> Datum:
    """`chain(a, b, ...)`; lists among the layers are taken apart."""
    layers: list[Datum] = []
    for item in node.arguments:
        if item.name is not None:
            raise ev.at.fail("D0208", "the layers of a chain have no names", item.span)
        layer = ev.layer(item.value, scope)
        layers += layer.items if isinstance(layer, Items) else [layer]
        for each in layers:
            if each is UNKNOWN:
                raise Poisoned
            if not isinstance(each, Callee | DType):
                raise ev.at.fail(
                    "D0218",
                    f"a chain is made of layers and functions, found {describe(each)}",
                    item.value.span,
                    help="loop over a stack with scan" if isinstance(each, Stack) else None,
                )
    chain = Chain(tuple(layers))
    ev.at.count_items(chain.size)
    return chain


SPECIALS["chain"] = Special(
    "chain",
    _chain,
    "chain(a, b, ...)",
    "A layer that puts its argument through layers and functions, one after the other; lists among "
    "them are taken apart. Their weights are called by number: `features.0.w`.",
    "chain(square, sqrt)([1.0, 2.0])",
    "[1.0, 2.0]",
    "layers",
)


# Instances ----------------------------------------------------------------------------------------


@calls(ModuleDefinition)
def _call_module(ev: Evaluator, definition: ModuleDefinition, arguments: Arguments) -> Datum:
    name = definition.name
    raise ev.at.fail(
        "D0219",
        f"{name}(...) makes an instance, and instances are members of a module",
        place=arguments.source.place(arguments.span),
        help=f"write use layer = {name}(...) in a module and call layer(x)",
    )


def instantiate(ev: Evaluator, definition: ModuleDefinition, arguments: Arguments) -> Instance:
    """A new instance with these parameters."""
    parameters = definition.declaration.parameters
    ev.at.stand(arguments.span)
    ev.at.count()
    bound = bind(ev, definition.name, [(p.name, p.default is None) for p in parameters], arguments)
    core = Core(ev, definition, {}, arguments, tuple(bound))
    scope = Scope(Instance(core))
    for parameter in parameters:
        core.arguments[parameter.name] = _argument(
            ev, definition, parameter, bound, scope, arguments
        )
    core.check()
    return Instance(core)


def _argument(
    ev: Evaluator,
    definition: ModuleDefinition,
    parameter: ast.Parameter,
    bound: dict[str, Argument],
    scope: Scope,
    arguments: Arguments,
) -> Datum:
    """The value of one parameter, which is known when compiling."""
    argument = bound.get(parameter.name)
    home = definition.home.source
    if argument is not None:
        value, source, span = argument.value, arguments.source, argument.span
    else:
        assert parameter.default is not None
        with ev.elsewhere(home):
            value, source, span = ev.eval(parameter.default, scope), home, parameter.span
    what = f"{parameter.name} of {definition.name}"
    if value is UNKNOWN:
        raise Poisoned
    if value is PLACEHOLDER:
        return Hole(what)
    if isinstance(value, Value | Dim):
        help = "weights have fixed sizes" if isinstance(value, Dim) else "pass it to a function"
        raise ev.at.fail(
            "D0327",
            f"{what} is known when compiling, found {describe(value)}",
            place=source.place(span),
            help=help,
        )
    if parameter.type is None:
        return value
    with ev.elsewhere(home):
        matcher = Matcher(ev, scope)
        checked = matcher.value(parameter.type, value, Expectation("given", source, span))
        matcher.finish()
    return checked


@evaluates(ast.On)
def _on(ev: Evaluator, node: ast.On, scope: Scope) -> Datum:
    """The braces, computed on a device."""
    with ev.at.on(node.device.called):
        return ev.eval(node.body, scope)
