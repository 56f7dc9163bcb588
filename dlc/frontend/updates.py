"""`update(x, at=[i, ..], v)`, whose place is written like an index."""

from __future__ import annotations

from dlc.dialects.array.index import MODES
from dlc.frontend.builtins.registry import SPECIALS
from dlc.frontend.elaboration.evaluator import Evaluator, Special, evaluates
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import as_tensor
from dlc.frontend.elaboration.values import Datum, describe
from dlc.frontend.indexing import updated
from dlc.text.model import ast


def _update(ev: Evaluator, node: ast.Call, scope: Scope) -> Datum:
    named = {item.name: item.value for item in node.arguments if item.name is not None}
    positional = [item.value for item in node.arguments if item.name is None]
    place = named.pop("at", None)
    mode = ev.eval(named.pop("mode"), scope) if "mode" in named else "set"
    names = [name for name in ("x", "value") if name not in named]
    parts = dict(zip(names, positional, strict=False)) | named
    if place is None or len(positional) > len(names) or set(parts) != {"x", "value"}:
        raise ev.at.fail(
            "D0208",
            "update takes a tensor, the place `at`, and a value",
            node.span,
            help="write update(x, value, at=[0, ..])",
        )
    if not isinstance(place, ast.List | ast.IndexList):
        raise ev.at.fail("D0320", "a place is written like an index: at=[0, ..]", place.span)
    if not isinstance(mode, str) or mode not in MODES:
        raise ev.at.fail(
            "D0208",
            f"update has no mode {mode if isinstance(mode, str) else describe(mode)}",
            node.span,
            help=f"it has {', '.join(MODES)}",
        )
    target, value = ev.eval(parts["x"], scope), ev.eval(parts["value"], scope)
    ev.at.stand(parts["x"].span)
    return updated(ev, as_tensor(ev.at, target), place.items, value, scope, node.span, mode)


@evaluates(ast.IndexList)
def _place(ev: Evaluator, node: ast.IndexList, scope: Scope) -> Datum:
    raise ev.at.fail(
        "D0320",
        "a position in a tensor is not a value",
        node.span,
        help="only update takes one, as at=[0, ..]",
    )


SPECIALS["update"] = Special(
    "update",
    _update,
    'update(x, at=[i, ..], value, mode="set")',
    "A copy of x with a value, which is broadcast, at an index. The modes add, multiply, max and min "
    "combine the value with the element there; where index tensors name an element several times, the "
    "updates take effect in order.",
    "update([1, 2, 3], 9, at=[0])",
    "[9, 2, 3]",
    "shapes",
)
