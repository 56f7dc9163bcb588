"""Labels of the error of a call that does not fit: where the functions are declared.

`b(relu(a(x)))` with a mismatch between `a` and `b` names both, with the places of their declarations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlc.errors import Diagnostic, Label, ModelError
from dlc.frontend.elaboration.problems import Settled
from dlc.frontend.elaboration.scope import MISSING, Scope
from dlc.text.model import ast
from dlc.text.model.tree import walk

__all__ = ["naming_calls"]


def naming_calls(
    error: ModelError, called: ast.Expr, given: Sequence[ast.Node], scope: Scope
) -> ModelError:
    """The error of an argument that does not fit, with where the functions are declared.

    `called` is the function, `given` what it is given. Errors of another kind, or from inside the called
    function, stay as they are.
    """
    if isinstance(error, Settled) or error.diagnostics[0].code != "D0320":
        return error
    names = dict.fromkeys(
        [*_functions(called), *[name for node in reversed(given) for name in _functions(node)]]
    )
    labels = [label for name in names for label in _declaration(name, scope)]
    return ModelError([_with_labels(d, labels) for d in error.diagnostics])


def _with_labels(diagnostic: Diagnostic, labels: Sequence[Label]) -> Diagnostic:
    """The error with labels; those at lines that it names already are left out."""
    known = {(label.place.file, label.place.line) for label in diagnostic.labels}
    new = [label for label in labels if (label.place.file, label.place.line) not in known]
    return replace(diagnostic, labels=(*diagnostic.labels, *new))


def _functions(node: ast.Node) -> Iterator[str]:
    """The names of what an expression calls, or is, the outermost first."""
    if isinstance(node, ast.Name):
        yield node.name
        return
    for below in walk(node):
        match below:
            case ast.Call(function=ast.Name(name=name)):
                yield name
            case ast.Pipe(stages=stages):
                yield from [s.function.name for s in stages if isinstance(s.function, ast.Name)]
            case _:
                continue


def _declaration(name: str, scope: Scope) -> Iterator[Label]:
    """The label of a submodule or function of the module or file; none of a local name."""
    span = scope.home.declared_at(name)
    if span is not None and scope.local(name) is MISSING:
        yield Label(scope.home.source.place(span), f"{name} is declared here")
