"""Data sources of a `train` block: `data = npz("digits.npz", image="images", test=0.2)`, checked.

What kinds of sources there are, and their options, is a fact of `dlc.runtime.data.source`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from dlc.errors import ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.modules.instances import Instance
from dlc.frontend.training.entries import called, constant, if_known
from dlc.frontend.weights.initialisers import beside
from dlc.runtime.artifact.manifest import DataKind, DataSource
from dlc.runtime.data.source import FORMS, KINDS, NAMELESS, NAMES, OPTIONS, Setting, source_of
from dlc.text.model import ast

__all__ = ["data_source"]

_EXAMPLES = {
    "columns": 'write the name of a column, y="kind", or several from one to another, x=columns(0, 4)',
    "window": "write the number of bytes: ids=window(65)",
}
"""How the names of a source are written that has other ones than texts."""
_UNNAMED = "name it, or leave the path out where the data is given later: dlc train --data FILE"


def data_source(
    ev: Evaluator, root: Instance, entry: ast.Setting, inputs: Iterable[str] | None
) -> DataSource | None:
    """The source that an entry describes; what is wrong is recorded.

    `inputs` are those of the loss and the metrics; None where these are not known.
    """
    before = len(ev.at.problems.errors)
    found = called(ev, entry, KINDS, 'npz("data.npz", x="x", y="y")')
    if found is None:
        return None
    kind, call = found
    read = _Reader(ev, root, cast(DataKind, kind))
    for item in call.arguments:
        read.argument(item)
    if inputs is not None:
        read.check_given(inputs, call)
    if len(ev.at.problems.errors) > before:
        return None
    return source_of(kind, read.path, read.fields, read.options)


class _Reader:
    """Reads the arguments of a source one by one."""

    def __init__(self, ev: Evaluator, root: Instance, kind: DataKind) -> None:
        self.ev, self.root, self.kind = ev, root, kind
        self.path = ""
        self.fields: dict[str, str] = {}
        self.options: dict[str, Setting] = {}

    def argument(self, item: ast.Argument) -> None:
        if item.name is None and not self.path and isinstance(item.value, ast.String):
            self._path(item.value)
        elif item.name in OPTIONS:
            self._option(item.name, item.value)
        elif item.name is not None:
            self.fields[item.name] = self._field(item.value)
        else:
            help = f'write it first: {self.kind}("data", ...)'
            self._refuse("D0533", f"{self.kind} takes one path", item, help)

    def _path(self, node: ast.String) -> None:
        if node.value:
            self.path = beside(Scope(self.root), node.value)
        else:
            self._refuse("D0533", "an empty path names no file", node, _UNNAMED)

    def check_given(self, inputs: Iterable[str], call: ast.Call) -> None:
        """Refuse inputs that the source neither names nor has by itself, and names that are not inputs."""
        if self.kind in NAMELESS:
            return
        given = [*self.fields, *NAMES.get(self.kind, ())]
        wanted = list(inputs)
        for item in call.arguments:
            if item.name in self.fields and item.name not in wanted:
                message = f"the data gives {item.name}, which neither the loss nor a metric takes"
                taken = f"they take {', '.join(wanted)}"
                self._refuse("D0533", message, item.value, did_you_mean(item.name, wanted) or taken)
        for name in wanted:
            if name not in given:
                way_out = f'name it: {self.kind}(..., {name}="...")'
                help = did_you_mean(name, given) or way_out
                message = f"the loss takes {name}, which the data does not give"
                self._refuse("D0533", message, call, help)

    @if_known
    def _option(self, name: str, node: ast.Expr) -> None:
        value = constant(self.ev, self.root, node)
        try:
            source_of(self.kind, "", {}, {name: value})
        except ModelError as error:
            (told,) = error.diagnostics
            self._refuse(told.code, told.message, node, told.help)
        else:
            self.options[name] = value

    def _field(self, node: ast.Expr) -> str:
        """A source's name for a value: a name, `columns(0, 30)`, `window(65)`; kept as text."""
        if isinstance(node, ast.String):
            return node.value
        form = FORMS.get(self.kind)
        fits = (
            form is not None
            and isinstance(node, ast.Call)
            and isinstance(node.function, ast.Name)
            and node.function.name == form
            and all(isinstance(item.value, ast.Number) for item in node.arguments)
        )
        if not fits:
            forms = "a name in quotes" + (f", or {form}(...)" if form else "")
            help = _EXAMPLES.get(form or "", 'write what the data calls it: x="images"')
            self._refuse("D0533", f"expected {forms}", node, help)
        return self.root.source.text[node.span.start : node.span.end]

    def _refuse(self, code: str, message: str, node: ast.Node, help: str | None = None) -> None:
        self.ev.report(self.ev.at.fail(code, message, node.span, help=help))
