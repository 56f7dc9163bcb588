"""`require`: conditions that are decided when a model is compiled, or that each call is checked for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.values import Datum, Hole, describe
from dlc.ir.core import Value
from dlc.ir.dims import Bounds, Dim, Size, evaluate, names
from dlc.ir.equal_sizes import never_equal
from dlc.ir.needs import Need
from dlc.text.model import ast

MOST_TRIED = 4096
"""The most values of the sizes in conditions that are tried, to see whether any meets them."""


def state(ev: Evaluator, statement: ast.Require, scope: Scope) -> None:
    """A condition in a block: calls are checked for it, unless it is decided now."""
    for condition in _conjuncts(statement.condition):
        if not _is_required_of_calls(ev, statement, condition, scope):
            _decide(ev, statement, condition, scope)


def require(ev: Evaluator, statement: ast.Require, scope: Scope) -> None:
    """Refuse the model if a condition does not hold."""
    for condition in _conjuncts(statement.condition):
        _decide(ev, statement, condition, scope)


def _conjuncts(condition: ast.Expr) -> list[ast.Expr]:
    """The conditions that `and` joins."""
    if not isinstance(condition, ast.Binary) or condition.rest[0].op != "and":
        return [condition]
    return [condition.first, *[term.operand for term in condition.rest]]


def _decide(ev: Evaluator, statement: ast.Require, condition: ast.Expr, scope: Scope) -> None:
    found = ev.eval(condition, scope)
    if found is True:
        return
    if found is not False:
        raise _undecided(ev, found, condition, scope)
    raise ev.at.fail("D0211", _told(ev, statement, condition, scope), condition.span)


def _is_required_of_calls(
    ev: Evaluator, statement: ast.Require, condition: ast.Expr, scope: Scope
) -> bool:
    """Whether a condition compares sizes that a call chooses; each call is then checked for it."""
    if not isinstance(condition, ast.Compare) or condition.op == "!=":
        return False
    with ev.at.discarded():
        sides = [ev.eval(side, scope) for side in (condition.left, condition.right)]
        is_decided = isinstance(ev.eval(condition, scope), bool)
    sizes = [side for side in sides if isinstance(side, int | Dim)]
    if len(sizes) < 2 or is_decided:
        return False
    counted = sorted({name for size in sizes for name in names(size)} - ev.at.bounds.keys())
    if counted:
        raise ev.at.fail(
            "D0328",
            f"no call can check this before it counts {', '.join(counted)}",
            condition.span,
        )
    told = _told(ev, statement, condition, scope)
    need = _need(condition.op, sizes[0], sizes[1], told)
    _check_possible(ev, need, condition, scope, told)
    ev.at.conditions.setdefault(need, scope.home.source.place(condition.span))
    return True


def _need(op: str, left: Size, right: Size, told: str) -> Need:
    """A comparison as a size that is not below 0, or that equals another one."""
    if op == "==":
        return Need(left, told, equals=right)
    low, high = (left, right) if op in ("<", "<=") else (right, left)
    return Need(high - low - 1 if op in ("<", ">") else high - low, told)


def _check_possible(
    ev: Evaluator, need: Need, condition: ast.Compare, scope: Scope, told: str
) -> None:
    """Refuse the model where no sizes within their bounds meet a condition, or all of them together."""
    equals = need.equals
    is_never = equals is not None and never_equal(need.size, equals, ev.at.bounds)
    if is_never or _has_no_solution([need], ev.at.bounds):
        raise ev.at.fail("D0211", f"{told} for any sizes", condition.span)
    others = [each for each in ev.at.conditions if each != need]
    if any(_contradict(need, each) for each in others) or _has_no_solution(
        [need, *others], ev.at.bounds
    ):
        raise ev.at.fail(
            "D0211", f"{told} for any sizes that meet the conditions before it", condition.span
        )


def _contradict(one: Need, other: Need) -> bool:
    """Whether two equations say of the same sizes that they differ by two numbers."""
    if one.equals is None or other.equals is None:
        return False
    first, second = one.size - one.equals, other.size - other.equals
    return any(isinstance(gap, int) and gap != 0 for gap in (first - second, first + second))


def _has_no_solution(needs: Iterable[Need], bounds: Bounds) -> bool:
    """Whether no values of the sizes meet all conditions whose sizes are bounded to few values."""
    chosen = [need for need in needs if _count(need, bounds) <= MOST_TRIED]
    sizes = sorted({name for need in chosen for name in _names(need)})
    ranges = [_values(name, bounds) for name in sizes]
    if not chosen or math.prod(map(len, ranges)) > MOST_TRIED:
        return False
    tried = (dict(zip(sizes, each, strict=True)) for each in itertools.product(*ranges))
    return not any(all(_holds(need, values) for need in chosen) for values in tried)


def _values(name: str, bounds: Bounds) -> range:
    """The values of a size; without an upper bound there are too many to be tried."""
    low, high = bounds.get(name, (1, None))
    return range(low, low + 2 * MOST_TRIED if high is None else high + 1)


def _count(need: Need, bounds: Bounds) -> int:
    return math.prod(len(_values(name, bounds)) for name in _names(need))


def _names(need: Need) -> frozenset[str]:
    return names(need.size) | names(0 if need.equals is None else need.equals)


def _holds(need: Need, values: dict[str, int]) -> bool:
    try:
        size = evaluate(need.size, values)
        return size >= 0 if need.equals is None else size == evaluate(need.equals, values)
    except ZeroDivisionError:
        return False


def _told(ev: Evaluator, statement: ast.Require, condition: ast.Expr, scope: Scope) -> str:
    """What is said where a condition does not hold."""
    message = "" if statement.message is None else ev.eval(statement.message, scope)
    if not isinstance(message, str):
        raise ev.not_known(message, "a text", statement.span)
    source = scope.home.source
    text = source.text[condition.span.start : condition.span.end]
    return f"{message} ({text} does not hold)" if message else f"{text} does not hold"


def _undecided(ev: Evaluator, found: Datum, condition: ast.Expr, scope: Scope) -> Exception:
    if not isinstance(found, Value | Hole):
        return ev.not_known(found, "a condition", condition.span)
    if _is_of_sizes(ev, condition, scope):
        return ev.at.fail(
            "D0328",
            "a call is checked for comparisons of sizes by `==`, `<`, `<=`, `>` and `>=` only",
            condition.span,
            help="a size is bounded where it is declared: dim B = 1..1024; a multiple is written as one: "
            "f32[2*B]",
        )
    return ev.at.fail(
        "D0328",
        f"`require` is decided by sizes and parameters, found {describe(found)} of a call",
        condition.span,
        help="what a tensor holds is known in a call only: choose by `if` or `where`",
    )


def _is_of_sizes(ev: Evaluator, condition: ast.Expr, scope: Scope) -> bool:
    """Whether a condition that calls decide is made of comparisons of sizes."""
    match condition:
        case ast.Compare():
            with ev.at.discarded():
                sides = [ev.eval(side, scope) for side in (condition.left, condition.right)]
            return all(isinstance(side, int | Dim) for side in sides)
        case ast.Binary() if condition.rest[0].op in ("and", "or"):
            parts = [condition.first, *[term.operand for term in condition.rest]]
            return all(_is_of_sizes(ev, part, scope) for part in parts)
        case ast.Unary():
            return _is_of_sizes(ev, condition.operand, scope)
        case _:
            return False
