"""Colours of model text for Pygments, which finds this lexer by an entry point.

The words are those that the parser reads; where a keyword may also be a name, its place decides, as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pygments.lexer import (
    RegexLexer,
    bygroups,  # pyright: ignore[reportUnknownVariableType] -- no types there
    words,
)
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from dlc.ir.types import LANGUAGE_DTYPES
from dlc.text.model.words import (
    EXPRESSION_WORDS,
    NEVER_NAMES,
    OPENERS,
    TRAIN_WORDS,
)

__all__ = ["DlmLexer"]

CONSTANTS = ("true", "false")


def _any(found: frozenset[str]) -> str:
    return "|".join(sorted(found))


class DlmLexer(RegexLexer):
    """Model text, `.dlm`."""

    name = "dlc model"
    aliases: ClassVar[Sequence[str]] = ["dlm"]
    filenames: ClassVar[Sequence[str]] = ["*.dlm"]

    tokens: ClassVar = {
        "root": [
            (r"\A(dlc)( +)(\d+)", bygroups(Keyword.Namespace, Text, Number.Integer)),
            (r"\s+", Text),
            (r"##(?!#).*", String.Doc),
            (r"#.*", Comment.Single),
            (r'"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"?', String.Double),
            (
                r"(fn|module|train|metric)( +)(\w+)",
                bygroups(Keyword.Declaration, Text, Name.Function),
            ),
            (rf"^(\s*)({_any(TRAIN_WORDS)})\b(?=\s*[=(])", bygroups(Text, Keyword)),
            (rf"({_any(OPENERS)})\b(?=\s+[\w\"({{\[-])", Keyword.Declaration),
            (words(CONSTANTS, suffix=r"\b"), Keyword.Constant),
            (words(sorted(NEVER_NAMES - set(CONSTANTS)), suffix=r"\b"), Keyword),
            (rf"(?<=[\w)\]\"}}] )({_any(EXPRESSION_WORDS)})\b(?=\s+[\w\"({{\[-])", Keyword),
            (words([dtype.name for dtype in LANGUAGE_DTYPES], suffix=r"\b"), Keyword.Type),
            (r"\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?\w*", Number),
            (r"[A-Za-z_]\w*(?=\()", Name.Function),
            (r"[A-Za-z_]\w*", Name),
            (r"\*\*|\|>|->|//|\.\.|[<>=!]=|[-+*/%@<>=]", Operator),
            (r"[(){}\[\],:.]", Punctuation),
        ]
    }
