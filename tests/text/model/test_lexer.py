"""Characters, encodings and sizes that a text may not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.errors import ModelError
from dlc.text import source
from dlc.text.model import lexer
from dlc.text.model.lexer import tokenize
from dlc.text.model.parser import parse
from dlc.text.source import Source


def codes(text: str) -> list[str]:
    return [found.code for found in parse(Source("text", text)).diagnostics]


def test_operators_are_taken_as_long_as_they_can_be() -> None:
    tokens = tokenize(Source("text", "a**b//c..d->e|>f<=g>=h==i!=j<k=l"))
    assert tokens.problems == []
    signs = [
        t for t, kind in zip(tokens.texts, tokens.kinds, strict=True) if kind == lexer.OPERATOR
    ]
    assert signs == ["**", "//", "..", "->", "|>", "<=", ">=", "==", "!=", "<", "="]


def test_a_range_of_numbers_is_not_a_float() -> None:
    assert tokenize(Source("text", "1..1024 0.5..x")).texts[:-1] == [
        "1",
        "..",
        "1024",
        "0.5",
        "..",
        "x",
    ]


@pytest.mark.parametrize("hidden", ["\0", "\x1b", "\x7f", "\u202e", "\u2066", "\ud800", "\x0c"])
def test_characters_that_cannot_be_seen_are_refused_wherever_they_stand(hidden: str) -> None:
    assert codes(f"dlc 1\n# a comment{hidden}\nfn f(x) = x") == ["D0102"]
    assert codes(f'dlc 1\nlet a = "a{hidden}b"') == ["D0102"]


def test_a_lone_carriage_return_is_refused_and_read_as_a_new_line() -> None:
    assert codes("dlc 1\r# comment\rfn f(x) = )\n") == ["D0102", "D0110"]


def test_the_report_of_a_hidden_character_names_it() -> None:
    (found,) = parse(Source("text", "dlc 1\nfn f(x) = x\u202e")).diagnostics
    assert "U+202E" in found.message and str(found.place) == "text:2:12"


def test_a_file_that_is_not_utf8_is_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "model.dlm"
    path.write_bytes(b"dlc 1\n# \xe9t\xe9\n")
    with pytest.raises(ModelError, match=r"byte 0xe9 at offset 8 \(line 2\)"):
        Source.read(path)


def test_a_file_that_is_missing_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"D0100.*cannot read .*nothing\.dlm: no such file"):
        Source.read(tmp_path / "nothing.dlm")
    with pytest.raises(ModelError, match="D0100"):
        Source.read(tmp_path)


def test_a_file_is_read_under_the_name_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "a.dlm").write_text("dlc 1\n", encoding="utf-8")
    assert Source.read(tmp_path / "a.dlm", "nn").name == "nn"


def test_a_text_over_the_size_limit_is_not_looked_at(tmp_path: Path) -> None:
    data = b"dlc 1\n" + b"#" * source.MAX_BYTES
    with pytest.raises(ModelError, match="longer than 8 MiB"):
        Source.from_bytes("big.dlm", data)
    assert codes(data.decode()) == ["D0106"]


def test_a_text_of_too_many_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexer, "MAX_TOKENS", 100)
    assert codes("dlc 1\nlet a = " + " + ".join(["x"] * 100)) == ["D0106"]
    assert codes("dlc 1\n" + "#\n" * 100) == ["D0106"]


@pytest.mark.parametrize(
    "literal", ["1" * 2000, "0x" + "f" * 2000, '"' + "a" * 70_000 + '"', f"[{'0, ' * 66_000}]"]
)
def test_a_literal_that_is_too_large_is_refused(literal: str) -> None:
    assert codes(f"dlc 1\nlet a = {literal}") == ["D0106"]


def test_a_spelling_that_is_a_habit_is_reported_once() -> None:
    (found,) = parse(Source("text", "dlc 1\n" + "let a = 1;\n" * 30)).diagnostics
    assert found.message.endswith("here and in 29 more places")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("let a = 1;\nlet b = 2\nlet c = 3;", "here and in line 4"),
        ("let a = 1; let b = 2;", "twice in this line"),
    ],
)
def test_the_other_of_two_places_is_named(text: str, said: str) -> None:
    (found,) = parse(Source("text", f"dlc 1\n{text}")).diagnostics
    assert found.message.endswith(said)


@pytest.mark.parametrize(
    ("operator", "way_out"),
    [
        ("<<", "write shift_left(a, b)"),
        (">>", "write shift_right(a, b)"),
        ("&", "write `and` for bools, bit_and(a, b) for integers"),
    ],
)
def test_an_operator_on_bits_is_told_its_function(operator: str, way_out: str) -> None:
    (found,) = parse(Source("text", f"dlc 1\nlet a = 6 {operator} 2")).diagnostics
    assert (found.code, found.help) == ("D0101", way_out)


def test_places_count_characters_from_one() -> None:
    text = Source("text", "ab\n\tcd\r\nef")
    assert [text.line_and_column(offset) for offset in (0, 1, 3, 4, 8)] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (3, 1),
    ]
