"""Calls: which argument is which parameter, and functions of the text elaborated in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dlc.errors import ModelError
from dlc.errors.suggest import suggest
from dlc.frontend.elaboration.callers import naming_calls
from dlc.frontend.elaboration.evaluator import Evaluator, Special, calls, evaluates
from dlc.frontend.elaboration.other_languages import parameter_help
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.rules import with_rule
from dlc.frontend.elaboration.scope import Home, Scope
from dlc.frontend.elaboration.trace import Frame
from dlc.frontend.elaboration.types import Declared, Expectation, Matcher
from dlc.frontend.elaboration.values import UNKNOWN, Argument, Arguments, Callee, Datum, Partial
from dlc.text.model import ast
from dlc.text.source import Source

__all__ = ["MAX_CALLS", "Function", "arguments_of", "bind", "call_function"]

MAX_CALLS: Final = 100
"""The deepest nesting of calls; a function that calls itself is elaborated anew each time."""


@dataclass(frozen=True, slots=True, eq=False)
class Function(Callee):
    """A `fn` of a file, or of an instance of a module."""

    declaration: ast.Fn
    home: Home
    path: str = ""
    device: str | None = None
    """Its device, if the instance that it is a member of was placed."""

    @property
    def called(self) -> str:
        return f"the function {self.declaration.name}"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple([parameter.name for parameter in self.declaration.parameters])


# Arguments ----------------------------------------------------------------------------------------


@evaluates(ast.Call)
def _call(ev: Evaluator, node: ast.Call, scope: Scope) -> Datum:
    callee = ev.eval(node.function, scope)
    if isinstance(callee, Special):
        return callee.run(ev, node, scope)
    arguments = arguments_of(ev, node, scope)
    try:
        return ev.call(callee, arguments)
    except ModelError as error:
        raise naming_calls(error, node.function, node.arguments, scope) from None


@evaluates(ast.Pipe)
def _pipe(ev: Evaluator, node: ast.Pipe, scope: Scope) -> Datum:
    """`x |> f |> g(a)` is `g(f(x), a)`; a chain of any length without recursion."""
    value = ev.eval(node.first, scope)
    span = node.first.span
    for number, stage in enumerate(node.stages):
        first = Argument(value, span)
        function = stage.function
        if isinstance(function, ast.Call):
            callee = ev.eval(function.function, scope)
            arguments = arguments_of(ev, function, scope).after(first)
        else:
            callee = ev.eval(function, scope)
            arguments = Arguments((first,), {}, scope.home.source, function.span)
        try:
            value = ev.call(callee, arguments)
        except ModelError as error:
            before = [node.first, *[earlier.function for earlier in node.stages[:number]]]
            raise naming_calls(error, function, before, scope) from None
        span = type(span)(node.span.start, function.span.end)
    return value


def arguments_of(ev: Evaluator, node: ast.Call, scope: Scope) -> Arguments:
    """The arguments of a call, evaluated in order."""
    positional: list[Argument] = []
    named: dict[str, Argument] = {}
    for item in node.arguments:
        argument = Argument(ev.eval(item.value, scope), item.value.span)
        if item.name is None:
            positional.append(argument)
        elif item.name in named:
            raise ev.at.fail("D0208", f"the argument {item.name} is given twice", item.span)
        else:
            named[item.name] = argument
    return Arguments(tuple(positional), named, scope.home.source, node.span)


def bind(
    ev: Evaluator, called: str, parameters: Sequence[tuple[str, bool]], arguments: Arguments
) -> dict[str, Argument]:
    """Bind arguments to parameters; `parameters` are names, each with whether it is required."""
    names = [name for name, _ in parameters]
    if len(arguments.positional) > len(names):
        extra = arguments.positional[len(names)]
        count = f"{len(names)} argument{'' if len(names) == 1 else 's'}"
        raise ev.at.fail(
            "D0208",
            f"{called} takes {count}, found {len(arguments.positional)}",
            place=arguments.source.place(extra.span),
            help=f"it is {_signature(called, names)}",
        )
    bound = dict(zip(names, arguments.positional, strict=False))
    for name, argument in arguments.named.items():
        if name not in names:
            near = parameter_help(name, names) or suggest(name, names)
            raise ev.at.fail(
                "D0208",
                f"{called} has no parameter {name}",
                place=arguments.source.place(argument.span),
                help=f"did you mean {near}?" if near else f"it is {_signature(called, names)}",
            )
        if name in bound:
            raise ev.at.fail(
                "D0208",
                f"{name} is given twice in the call of {called}",
                place=arguments.source.place(argument.span),
                help="leave one of them out",
            )
        bound[name] = argument
    missing = [name for name, required in parameters if required and name not in bound]
    if missing:
        raise ev.at.fail(
            "D0208",
            f"{called} needs {' and '.join(missing)}",
            place=arguments.source.place(arguments.span),
            help=f"it is {_signature(called, names)}",
        )
    return bound


def _signature(called: str, names: Sequence[str]) -> str:
    return f"{called.rpartition(' ')[2]}({', '.join(names)})"


# Functions of the text ------------------------------------------------------------------------------


@calls(Function)
def call_function(ev: Evaluator, function: Function, arguments: Arguments) -> Datum:
    """Elaborate the body of a function where it is called."""
    at, declaration = ev.at, function.declaration
    at.source, at.span = arguments.source, arguments.span
    at.count(2)
    _refuse_inout(ev, declaration)
    parameters = [(p.name, p.default is None) for p in declaration.parameters]
    called = function.path or declaration.name if declaration.name == "call" else declaration.name
    bound = bind(ev, called, parameters, arguments)
    if at.frame.depth >= MAX_CALLS:
        raise _too_deep(ev, function, arguments)
    scope = Scope(function.home)
    caller, call_site = at.frame, (arguments.source, arguments.span)
    source = function.home.source
    outer_training, at.training = at.training, at.training and function.home.trains
    at.source = source
    try:
        _match_parameters(ev, function, bound, arguments.source, scope)
        at.frame = Frame(
            declaration.name, function.path, source, caller.depth + 1, caller, call_site
        )
        at.frame.key = caller.call(declaration.name, function.path)
        try:
            with at.on(
                function.device if declaration.device is None else declaration.device.called
            ):
                if declaration.vjp is None:
                    result = ev.eval(declaration.body, scope)
                else:
                    result = with_rule(ev, declaration, scope)
            return check_result(ev, declaration, result, scope)
        except ModelError as error:
            raise ev.settled(error) from None
        finally:
            at.frame = caller
    finally:
        at.source, at.training = arguments.source, outer_training
        at.stand(arguments.span)


def _refuse_inout(ev: Evaluator, declaration: ast.Fn) -> None:
    """Refuse to call an entry point that changes arrays: a text has values only."""
    for parameter in declaration.parameters:
        if parameter.inout:
            raise ev.at.fail(
                "D0227",
                f"{declaration.name} changes {parameter.name}, so that only programs call it",
                help=f"write a function that returns the new {parameter.name}, and call it in both",
            )


def _too_deep(ev: Evaluator, function: Function, arguments: Arguments) -> Exception:
    name = function.declaration.name
    frame, own = ev.at.frame, 0
    while frame.caller is not None:
        own += frame.function == name
        frame = frame.caller
    what = f"{name} calls itself without end" if own > 1 else "calls nest too deeply"
    return ev.at.stop(
        "D0215",
        f"{what}: functions are elaborated in place, at most {MAX_CALLS} deep",
        place=arguments.source.place(arguments.span),
        help="a loop is written scan or while",
    )


def _match_parameters(
    ev: Evaluator, function: Function, bound: dict[str, Argument], source: Source, scope: Scope
) -> None:
    """Give the parameters their values and bind the dims of the signature."""
    matcher = Matcher(ev, scope)
    declaration = function.declaration
    for parameter in declaration.parameters:
        argument = bound.get(parameter.name)
        if argument is None:
            assert parameter.default is not None
            value = ev.eval(parameter.default, scope)
        else:
            value = argument.value
        if value is UNKNOWN:
            raise Poisoned
        if parameter.type is not None:
            home = function.home.source
            declared = Declared(home, parameter.span, f"{parameter.name} of {declaration.name}")
            stands = (home, parameter.span) if argument is None else (source, argument.span)
            value = matcher.value(parameter.type, value, Expectation("given", *stands, declared))
        scope.names[parameter.name] = value
    matcher.finish()


def check_result(
    ev: Evaluator, declaration: ast.Fn | ast.Loss, value: Datum, scope: Scope
) -> Datum:
    """The value that a function returns, as one of its declared type."""
    if declaration.result is None:
        return value
    source = scope.home.source
    declared = Declared(source, declaration.result.span, f"the result of {declaration.name}")
    why = Expectation("returned", source, result_span(declaration), declared)
    matcher = Matcher(ev, scope)
    checked = matcher.value(declaration.result, value, why)
    matcher.finish()
    return checked


def result_span(declaration: ast.Fn | ast.Loss) -> ast.Span:
    """The span of the value that a function returns."""
    body = declaration.body
    if isinstance(body, ast.Block) and body.statements:
        last = body.statements[-1]
        if isinstance(last, ast.Return):
            return last.value.span
    return body.span


# Partial calls --------------------------------------------------------------------------------------


@calls(Partial)
def _call_partial(ev: Evaluator, partial: Partial, arguments: Arguments) -> Datum:
    inner = partial.arguments
    merged = Arguments(
        (*arguments.positional, *inner.positional),
        {**inner.named, **arguments.named},
        arguments.source,
        arguments.span,
    )
    return ev.call(partial.function, merged)
