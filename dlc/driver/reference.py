"""`dlc ops` and `dlc doc`: functions, library and operations, from where they are defined."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent

from dlc import dialects
from dlc.dialects.decomposed import Decomposed
from dlc.driver.example_graph import operations_of, result_type
from dlc.driver.extensions import load_extensions
from dlc.driver.initial import INITIALISERS
from dlc.driver.library import LibraryEntry, library_entries
from dlc.errors import UsageError
from dlc.frontend.builtins.registry import BUILTINS, SPECIALS
from dlc.frontend.elaborate import HANDLERS
from dlc.frontend.values import Builtin, Special
from dlc.ir.core import OPS, Op
from dlc.ir.define import fields_of
from dlc.runtime.weight_files import nearest

assert HANDLERS and dialects.__doc__, "the modules that fill both tables are loaded"


@dataclass(frozen=True, slots=True)
class Entry:
    """A function or an operation: where it belongs, how it is written, and what it is, in one line."""

    name: str
    group: str
    signature: str
    summary: str


def list_entries(word: str | None = None) -> list[Entry]:
    """Everything whose name, group or description has the word in it; all without a word."""
    found = sorted(_entries(), key=lambda entry: (entry.group, entry.name))
    if word is None:
        return found
    wanted = word.casefold()
    return [
        entry
        for entry in found
        if wanted in f"{entry.name} {entry.group} {entry.summary}".casefold()
    ]


def _entries() -> Iterator[Entry]:
    load_extensions()
    for builtin in (*BUILTINS.values(), *SPECIALS.values()):
        yield Entry(builtin.name, f"language: {builtin.group}", builtin.signature, builtin.doc)
    for name in INITIALISERS:
        yield Entry(name, "language: initialisers", f"{name}(...)", "initial values of a param")
    for entry in library_entries().values():
        first = entry.doc.partition("\n")[0]
        yield Entry(entry.name, f"library: {entry.group}", entry.signature, first)
    for name, kind in OPS.items():
        dialect = name.partition(".")[0]
        yield Entry(name, f"operations: {dialect}", _op_signature(kind), _first_line(kind))


def documentation(name: str) -> str:
    """The whole page of a function, a layer or an operation.

    Names of the library may be given without their group. Raises UsageError (D0914) for other names.
    """
    load_extensions()
    functions: dict[str, Builtin | Special] = {**BUILTINS, **SPECIALS}
    if name in functions:
        return _function_page(functions[name])
    library = library_entries()
    for entry in library.values():
        if name in (entry.name, entry.name.partition(".")[2]):
            return _library_page(entry)
    if name in OPS:
        return _op_page(OPS[name])
    near = nearest(name, [*functions, *library, *OPS])
    raise UsageError(
        f"nothing is called {name}",
        code="D0914",
        help=f"did you mean {' or '.join(near)}?" if near else "dlc ops lists everything",
    )


def _library_page(entry: LibraryEntry) -> str:
    name = entry.name.removeprefix("nn.")
    use = f"import nn ({name})" if name != entry.name else "known by name in a `train` block"
    parts = [entry.doc, use, entry.text]
    return "\n\n".join([entry.signature, *[indent(part, "  ") for part in parts]])


def _function_page(function: Builtin | Special) -> str:
    lines = [function.signature, "", f"  {function.doc}"]
    if function.example:
        type = result_type(function)
        shown = type if type == function.result else f"{function.result}: {type}"
        lines += ["", f"  {function.example}  gives  {shown}"]
    kinds = operations_of(function)
    if kinds:
        lines += ["", f"  in the IR: {', '.join(kind.name for kind in kinds)}"]
        lines += [f"  derivative: {_derivative_through(kinds)}"]
    return "\n".join(lines)


def _op_page(kind: type[Op]) -> str:
    doc = inspect.getdoc(kind) or ""
    lines = [_op_signature(kind), "", *[f"  {line}".rstrip() for line in doc.split("\n")]]
    fields = [
        f"  {field.name}: {field.kind}{f', {field.doc}' if field.doc else ''}"
        for field in fields_of(kind)
    ]
    return "\n".join([*lines, "", *fields, "", f"  derivative: {_derivative(kind)}"])


def _derivative_through(kinds: Sequence[type[Op]]) -> str:
    """Of a function that is made of these operations."""
    if len(kinds) == 1:
        return _derivative(kinds[0])
    stops = [f"{kind.name} ({why})" for kind in kinds if (why := kind.not_differentiable)]
    return f"not through {', '.join(stops)}" if stops else "of what it is made of"


def _derivative(kind: type[Op]) -> str:
    if kind.not_differentiable:
        return f"none: {kind.not_differentiable}"
    if kind.gradient is not Op.gradient:
        return "by a rule of its own"
    return "of what it is made of" if issubclass(kind, Decomposed) else "none"


def _op_signature(kind: type[Op]) -> str:
    values = [
        f"*{field.name}" if field.kind == "operands" else field.name
        for field in fields_of(kind)
        if field.kind in ("operand", "operands")
    ]
    facts = [field.name for field in fields_of(kind) if field.kind == "attribute"]
    given = f" <{', '.join(facts)}>" if facts else ""
    return f"{kind.name}({', '.join(values)}){given}"


def _first_line(kind: type[Op]) -> str:
    return (inspect.getdoc(kind) or "").split("\n")[0]
