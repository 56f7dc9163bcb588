"""The canonical layout of model text.

What the author decides is kept: comments, blank lines (one at most), parentheses around operands, several
short statements in one line, braces in one line. Everything else follows from the tree, 100 columns wide.

>>> print(format_source("dlc 1 fn f(x)=3*x   **2 # cubic? no", "a.dlm"), end="")
dlc 1
fn f(x) = 3 * x ** 2  # cubic? no
"""

from __future__ import annotations

from dlc.errors import InternalError, ModelError
from dlc.text.layout import render
from dlc.text.model import ast
from dlc.text.model.fmt_comments import Comments
from dlc.text.model.fmt_statements import StatementFormatter
from dlc.text.model.parser import Parsed, parse
from dlc.text.model.tree import same
from dlc.text.source import Source

__all__ = ["format_file", "format_source"]


def format_source(text: str, name: str) -> str:
    """`text` in canonical layout; formatting that again changes nothing.

    Raises ModelError, with what is wrong, if the text has syntax errors; `name` is what to call it.
    """
    parsed = _parsed(text, name)
    formatted, settled = _laid_out(parsed)
    if formatted == text:
        return text
    again = _parsed(formatted, name)
    if not same(again.file, parsed.file):
        raise InternalError(f"formatting {name} would change its meaning")
    return formatted if settled else format_source(formatted, name)


def format_file(file: ast.File) -> str:
    """The canonical text of a tree, documentation included; the tree need not come from a text."""
    text, _ = render(StatementFormatter(Comments(None, ()), frozenset()).file(file))
    return format_source(text, file.source.name)


def _parsed(text: str, name: str) -> Parsed:
    parsed = parse(Source(name, text))
    if parsed.errors:
        raise ModelError(parsed.errors, sources={name: text})
    return parsed


def _laid_out(parsed: Parsed) -> tuple[str, bool]:
    comments = Comments(parsed.file.source, parsed.comments)
    return render(StatementFormatter(comments, parsed.parens).file(parsed.file))
