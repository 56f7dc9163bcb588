"""The formatter: what it changes, and that it changes nothing else.

tests/text/layout/*.txt has cases: `=== title`, a text, `---`, the same formatted; `--update` rewrites them.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from random import Random

import pytest

from dlc.errors import ModelError
from dlc.text.model.fmt import format_file, format_source
from dlc.text.model.lexer import END, NAME, Comment, tokenize
from dlc.text.model.parser import parse, parse_or_raise
from dlc.text.model.tree import same
from dlc.text.source import Source
from tests.suites import every, together
from tests.text.model.programs import EXAMPLES, PROGRAMS
from tests.text.model.random_trees import random_file

FILES = sorted((Path(__file__).parent / "layout").glob("*.txt"))


def cases_in(path: Path) -> list[tuple[str, str, str]]:
    """Titles, texts, and what they are formatted to."""
    pieces = re.split(r"^=== (.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    titles, bodies = map(str, pieces[1::2]), map(str, pieces[2::2])
    return [
        (title, text, formatted)
        for title, body in zip(titles, bodies, strict=True)
        for text, _, formatted in [body.partition("---\n")]
    ]


CASES = [case for path in FILES for case in cases_in(path)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_texts_are_laid_out_as_is_written_down(path: Path, request: pytest.FixtureRequest) -> None:
    cases = cases_in(path)
    if request.config.getoption("update"):
        formatted = [(title, text, format_source(text, title)) for title, text, _ in cases]
        path.write_text("".join(f"=== {t}\n{a}---\n{b}" for t, a, b in formatted), encoding="utf-8")
        return
    for title, text, expected in cases:
        assert format_source(text, title) == expected, title


@together(("title", "text", "expected"), CASES, ids=[case[0] for case in CASES])
def test_formatted_text_is_formatted_to_itself(title: str, text: str, expected: str) -> None:
    assert format_source(expected, title) == expected
    assert same(parse_or_raise(Source(title, text)), parse_or_raise(Source(title, expected)))
    assert max(map(len, expected.split("\n"))) <= 100


@together("path", sorted(EXAMPLES.glob("**/*.dlm")), ids=lambda path: path.name)
def test_the_examples_are_formatted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_source(text, path.name) == text


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_text_in_one_line_is_laid_out_like_its_tree(name: str) -> None:
    lines = [line for line in PROGRAMS[name].split("\n") if "##" not in line]
    text = " ".join(" ".join(lines).split())
    assert same(
        parse_or_raise(Source(name, format_source(text, name))), parse_or_raise(Source(name, text))
    )


@pytest.mark.parametrize("part", every(5, range(5)))
def test_any_tree_is_printed_as_a_text_that_means_it(part: int) -> None:
    for seed in range(part * 20, part * 20 + 20):
        tree = random_file(Random(seed))
        text = format_file(tree)
        assert same(parse_or_raise(Source("random.dlm", text)), tree), seed
        assert format_source(text, "random.dlm") == text, seed


def with_comments(text: str, random: Random) -> str:
    """The text with comments put between its tokens."""
    tokens = tokenize(Source("text", text))
    pieces: list[str] = []
    number = 0
    for index, (start, end) in enumerate(zip(tokens.starts, tokens.ends, strict=True)):
        pieces.append(text[tokens.ends[index - 1] if index else 0 : start])
        # In front of the edition there is room for comments only, and documentation means something.
        if index > 1 and random.random() < 0.1:
            number += 1
            pieces.append(random.choice([f" # note {number}\n", f"\n# note {number}\n"]))
        pieces.append(text[start:end])
    return "".join(pieces)


def words(comments: list[Comment]) -> list[str]:
    return sorted(comment.text for comment in comments)


@pytest.mark.parametrize(("name", "first"), every(5, itertools.product(PROGRAMS, range(0, 30, 6))))
def test_no_comment_is_lost_wherever_it_stands(name: str, first: int) -> None:
    for seed in range(first, first + 6):
        text = with_comments(PROGRAMS[name], Random(seed))
        source = Source(name, text)
        formatted = format_source(text, name)
        again = parse(Source(name, formatted))
        kept = words(list(again.comments))
        assert re.findall(r"note \d+", " ".join(kept)) and not again.errors
        notes = sorted(re.findall(r"# note \d+", formatted))
        assert notes == sorted(re.findall(r"# note \d+", text)), seed
        assert same(again.file, parse_or_raise(source)), seed
        assert format_source(formatted, name) == formatted, seed


def test_a_text_with_errors_is_refused_with_its_errors() -> None:
    with pytest.raises(ModelError, match="D0110"):
        format_source("dlc 1\nfn f(x) = ", "model.dlm")


def test_warnings_do_not_keep_a_text_from_being_formatted() -> None:
    assert format_source("dlc 1\nlet a=1 ## idle\n", "a") == "dlc 1\nlet a = 1  ## idle\n"


def test_line_endings_and_the_byte_order_mark_become_plain() -> None:
    assert format_source("\ufeffdlc 1\r\nlet a=1\r\n", "a") == "dlc 1\nlet a = 1\n"


def test_documentation_of_a_tree_without_text_is_printed() -> None:
    tree = parse_or_raise(Source("lenet", PROGRAMS["lenet"]))
    text = format_file(tree)
    assert "## LeNet-5 on 28x28 grey digits.\nimport nn" in text
    assert "  ## The digit and how sure the network is.\n  export fn predict" in text


def test_every_token_of_a_tree_is_one_of_its_text() -> None:
    text = PROGRAMS["byte_lm"]
    before, after = (
        tokenize(Source("a", text)),
        tokenize(Source("b", format_source(text, "byte_lm"))),
    )
    assert before.texts == after.texts
    assert before.kinds[-1] == END and NAME in before.kinds


def test_a_long_chain_is_filled_into_lines() -> None:
    text = format_source("dlc 1\nlet a = " + " + ".join(["x"] * 5_000), "long")
    lines = text.split("\n")
    assert len(lines) < 300 and max(map(len, lines)) <= 100
