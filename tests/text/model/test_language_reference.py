"""docs/language.md: what it shows is read as it says."""

from __future__ import annotations

import re
from pathlib import Path

from dlc.errors import render
from dlc.text.model import words
from dlc.text.model.fmt import format_source
from dlc.text.model.parser import parse
from dlc.text.source import Source
from tests.suites import together

PAGE = (Path(__file__).parents[3] / "docs" / "language.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```([^\n]*)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list[str]:
    return [text for info, text in BLOCKS if info == kind]


def whole_texts() -> list[str]:
    """Every block as a whole text: an expression becomes the value of a `let`."""
    items = [f"dlc 1\n{text}" for text in blocks("dlm-fragment item")]
    values = [f"dlc 1\nlet value =\n{text}" for text in blocks("dlm-fragment expr")]
    return blocks("dlm") + items + values


def test_every_block_is_marked_as_what_it_is() -> None:
    known = {"dlm", "dlm-fragment item", "dlm-fragment expr", "dlm-wrong", "text", "ebnf"}
    assert {info for info, _ in BLOCKS} == known
    assert len(blocks("dlm")) > 15


@together("text", whole_texts())
def test_every_block_is_read_without_a_remark(text: str) -> None:
    assert parse(Source("language.md", text)).diagnostics == ()


@together("text", [text for text in whole_texts() if "let value" not in text])
def test_every_block_is_laid_out_as_fmt_does(text: str) -> None:
    assert format_source(text, "language.md") == text


def test_the_report_is_the_one_that_is_given() -> None:
    (wrong,) = blocks("dlm-wrong")
    (report,) = blocks("text")
    found = parse(Source("model.dlm", wrong)).diagnostics
    assert "\n".join(render(d, {"model.dlm": wrong}) for d in found) + "\n" == report


def test_the_grammar_has_every_word_and_no_other() -> None:
    (grammar,) = blocks("ebnf")
    quoted = set(re.findall(r'"([a-z]+)"', grammar))
    every = words.OPENERS | words.NEVER_NAMES | words.EXPRESSION_WORDS
    others = {"dlc", "vjp", "dtype", "new", "reverse", "loss", "metric", "optimizer", "at", "inout"}
    others |= {"split"}
    assert quoted == every | others


def test_the_grammar_defines_what_it_uses_once() -> None:
    (grammar,) = blocks("ebnf")
    defined = re.findall(r"^(\w+) +=", grammar, flags=re.MULTILINE)
    plain = re.sub(r'"[^"]*"', "", grammar)
    used = set(re.findall(r"\w+", plain))
    assert len(defined) == len(set(defined))
    assert used == set(defined) | {"name", "integer", "float", "string", "size"}


def test_the_words_that_are_never_names_are_listed() -> None:
    listed = re.search(r"Reserved\s+everywhere:\s+`([a-z\s]+)`", PAGE)
    assert listed and set(listed.group(1).split()) == words.NEVER_NAMES
