"""The programs that the tests of model text share."""

from __future__ import annotations

from pathlib import Path

__all__ = ["EXAMPLES", "PROGRAMS", "parsed_expression"]

from dlc.text.model import ast
from dlc.text.model.parser import parse_or_raise
from dlc.text.source import Source

EXAMPLES = Path(__file__).parents[3] / "examples"

PROGRAMS = {
    name: (EXAMPLES / f"{name}.dlm").read_text(encoding="utf-8")
    for name in ("poly", "lenet", "residual", "byte_lm", "tiny_gpt")
}


def parsed_expression(text: str) -> ast.Expr:
    """The tree of an expression."""
    item = parse_or_raise(Source("text", f"dlc 1\nlet a = {text}")).items[0]
    assert isinstance(item, ast.Let)
    return item.value
