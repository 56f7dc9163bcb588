"""Blocks: statements one after the other, each of which may be wrong without the others being so."""

from __future__ import annotations

from dlc.dialects import weight
from dlc.errors import ModelError
from dlc.frontend.elaboration import requirements
from dlc.frontend.elaboration.evaluator import Evaluator, evaluates
from dlc.frontend.elaboration.inout import assigned, set_inout
from dlc.frontend.elaboration.patterns import names_of, unpack
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.types import Expectation, Matcher
from dlc.frontend.elaboration.values import UNKNOWN, Datum
from dlc.ir.core import Value
from dlc.text.model import ast

__all__ = ["run_statement"]


@evaluates(ast.Block)
def _block(ev: Evaluator, node: ast.Block, scope: Scope) -> Datum:
    """The value of its `return`."""
    inner = scope.inner()
    result: Datum = None
    returned = False
    for statement in node.statements:
        if isinstance(statement, ast.Return):
            result, returned = _returned(ev, statement, inner), True
        else:
            run_statement(ev, statement, inner)
    if not returned:
        raise ev.at.fail(
            "D0333", "this block returns nothing", node.span, help="end it with `return value`"
        )
    if result is UNKNOWN:
        raise Poisoned
    return result


def _returned(ev: Evaluator, statement: ast.Return, scope: Scope) -> Datum:
    try:
        return ev.eval(statement.value, scope)
    except ModelError as error:
        ev.report(error)
    except Poisoned:
        pass
    return UNKNOWN


def run_statement(ev: Evaluator, statement: ast.Statement, scope: Scope) -> None:
    """Do what a statement says. An error in it is recorded, and the names it gives become unknown."""
    try:
        match statement:
            case ast.Let():
                _let(ev, statement, scope)
            case ast.Require():
                requirements.state(ev, statement, scope)
            case ast.Debug():
                _debug(ev, statement, scope)
            case ast.Set():
                set_state(ev, statement, scope)
            case ast.Next() | ast.Yield():
                _outside_loop(ev, statement)
            case ast.Return():
                raise AssertionError("blocks take their return themselves")
    except ModelError as error:
        ev.report(error)
        _give_up(statement, scope)
    except Poisoned:
        _give_up(statement, scope)


def _give_up(statement: ast.Statement, scope: Scope) -> None:
    if isinstance(statement, ast.Let):
        scope.names.update(dict.fromkeys(names_of(statement.pattern), UNKNOWN))


def _let(ev: Evaluator, statement: ast.Let, scope: Scope) -> None:
    value = ev.eval(statement.value, scope)
    if statement.type is not None:
        why = Expectation("found", scope.home.source, statement.value.span)
        matcher = Matcher(ev, scope)
        value = matcher.value(statement.type, value, why)
        matcher.finish()
    unpack(ev, statement.pattern, value, scope, statement.value.span)


def _debug(ev: Evaluator, statement: ast.Debug, scope: Scope) -> None:
    """A value that `--values` prints: it gets a name, the program stays the same."""
    value = ev.eval(statement.value, scope)
    if isinstance(value, Value) and not isinstance(statement.value, ast.Name):
        line = scope.home.source.line_of(statement.span.start)
        ev.at.called(value, f"debug.{line}", statement.value.span)


def set_state(ev: Evaluator, statement: ast.Set, scope: Scope) -> None:
    """Note what an `inout` parameter or a state becomes; a state only where `training` is true.

    What is set takes effect at the end of the call, so the name keeps its value here.
    """
    at = ev.at
    inout = at.inouts.get(statement.name) if at.frame.caller is None else None
    if inout is not None:
        set_inout(ev, inout, statement, ev.eval(statement.value, scope))
        return
    if not at.training:
        return
    value = ev.eval(statement.value, scope)
    state = scope.home.find(statement.name)
    if not isinstance(state, Value):
        raise at.fail("D0223", f"{statement.name} is not a state", statement.name_span)
    at.place(weight.Set(state, assigned(ev, state, value, statement)))


def _outside_loop(ev: Evaluator, statement: ast.Next | ast.Yield) -> None:
    word = "next" if isinstance(statement, ast.Next) else "yield"
    raise ev.at.fail(
        "D0421",
        f"`{word}` is outside of a loop's body",
        statement.span,
        help="it belongs directly into the braces of scan or while",
    )
