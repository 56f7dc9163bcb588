"""The grammars for colours know the words that the parser reads, and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

from pygments.lexer import Lexer
from pygments.lexers import (
    get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType] -- no types there
)
from pygments.token import Error, Keyword, Token

from dlc.driver.editor.pygments_lexer import DlmLexer
from dlc.ir.types import LANGUAGE_DTYPES
from dlc.text.model.words import EXPRESSION_WORDS, NEVER_NAMES, OPENERS, TRAIN_WORDS
from tests.suites import together

ROOT = Path(__file__).parents[3]
GRAMMAR = ROOT / "editors" / "vscode" / "syntaxes" / "dlm.tmLanguage.json"


def test_the_textmate_grammar_has_the_words_of_the_language() -> None:
    patterns = json.loads(GRAMMAR.read_text(encoding="utf-8"))["patterns"]

    def words(comment: str) -> set[str]:
        pattern = next(p["match"] for p in patterns if p["comment"] == comment)
        found = re.search(r"\(([\w|]+)\)\\b", pattern)
        assert found is not None
        return set(found[1].split("|"))

    assert words("openers") == OPENERS
    assert words("train words") == TRAIN_WORDS
    assert words("expression words") == EXPRESSION_WORDS
    assert words("never names") | words("constants") == NEVER_NAMES
    assert words("dtypes") == {dtype.name for dtype in LANGUAGE_DTYPES}


def test_pygments_finds_the_lexer_by_name() -> None:
    find = cast("Callable[[str], Lexer]", get_lexer_by_name)
    assert type(find("dlm")) is DlmLexer


@together("path", sorted((ROOT / "examples").glob("*.dlm")))
def test_pygments_reads_every_example(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = list(DlmLexer(stripnl=False).get_tokens(text))
    assert "".join(part for _, part in found) == text
    assert not any(kind in Error for kind, _ in found)


def test_a_keyword_that_is_used_as_a_name_has_the_colour_of_a_name() -> None:
    text = "dlc 1\nfn f(key: f32[3], data: f32[3]) = key + data\n"
    found = [part for kind, part in DlmLexer().get_tokens(text) if kind in Keyword]
    assert found == ["dlc", "fn", "f32", "f32"]
    assert Token.Name in {kind for kind, part in DlmLexer().get_tokens(text) if part == "key"}
