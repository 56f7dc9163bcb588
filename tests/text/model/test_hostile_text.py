"""No text, however broken or deep, gives anything but diagnostics, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest

from dlc.text.model import ast
from dlc.text.model.fmt import format_source
from dlc.text.model.lexer import MAX_ERRORS
from dlc.text.model.parser import parse, parse_or_raise
from dlc.text.model.tree import children
from dlc.text.source import Source
from tests.suites import every
from tests.text.model.programs import PROGRAMS

MANY = 20_000

WORDS = """( ) [ ] { } , : . .. -> = == + - * ** // @ |> if then else scan while in with along limit
let return fn export param state use next yield set require debug module train loss metric import dim
names # ## " ' 1e 0x 3x _ key on reverse for and or not \\ ; ?"""
PIECES = [*WORDS.split(), "\n"]


def mutated(text: str, random: Random) -> str:
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(text) + 1)
        end = min(len(text), at + random.randint(0, 30))
        start = random.randrange(len(text) + 1)
        letter = chr(
            random.choice([random.randrange(128), random.randrange(0x80, 0x3000), 0x1F600])
        )
        text = random.choice(
            [
                text[:at] + text[end:],
                text[:at] + letter + text[at:],
                f"{text[:at]} {random.choice(PIECES)} {text[at:]}",
                text[:at] + text[at:end] * random.choice([2, 3, 50]) + text[end:],
                text[:end],
                text[:at] + text[start : start + 60] + text[at:],
                text[:at] + random.choice("([{-") * random.choice([1, 100, 3000]) + text[at:],
            ]
        )
    return text


@pytest.mark.parametrize(
    "part", [0, *[pytest.param(part, marks=pytest.mark.long) for part in range(1, 10)]]
)
def test_mutated_programs_are_read_or_refused_in_less_than_two_seconds(part: int) -> None:
    texts = list(PROGRAMS.values())
    for seed in range(part * 300, part * 300 + 300):
        random = Random(seed)
        text = mutated(random.choice(texts), random)
        began = time.process_time()
        parsed = parse(Source("mutant", text))
        assert len(parsed.errors) <= 2 * MAX_ERRORS + 1, seed
        if not parsed.errors:
            formatted = format_source(text, "mutant")
            assert format_source(formatted, "mutant") == formatted, seed
        assert time.process_time() - began < 2, seed


@pytest.mark.parametrize(
    "text",
    [
        "let a = " + "(" * MANY,
        "let a = " + "(" * MANY + "x" + ")" * MANY,
        "let a = " + "[" * MANY,
        "let a = " + "{ let a = " * MANY,
        "let a = " + "-" * MANY + "x",
        "let a = " + "not " * MANY + "x",
        "let a = " + "x ** " * MANY + "x",
        "let a = " + "f(" * MANY,
        "let a = f" + "(x)" * MANY,
        "let a = f" + ".x" * MANY,
        "let a = f" + "[0]" * MANY,
        "let a = f" + ".1" * MANY,
        "let a = " + "if c then x else " * MANY + "x",
        "let a = " + "if " * MANY,
        "let a = " + "on cpu { " * MANY,
        "let a = " + "[for a in " * MANY,
        "let a = " + "scan x in y { let a = " * MANY,
        "let a = " + "f(-x ** [a + b * " * MANY,
        "let " + "(" * MANY,
        "fn f(x: " + "(" * MANY,
        "fn f(x: " + "f32[" * MANY,
        "module M { " * MANY,
        "names { " * MANY,
        "{" * MANY,
        "}" * MANY,
        ")" * MANY,
        "next " * MANY,
        "let a = " + "state " * MANY,
        "let a = " + "a < " * MANY + "b",
        '"' * MANY,
        '"' + "\\" * MANY,
        "é " * MANY,
        "f(" + ", " * MANY,
    ],
    ids=lambda text: text[:24],
)
def test_a_deep_or_endless_text_gets_a_short_report_soon(text: str) -> None:
    began = time.process_time()
    parsed = parse(Source("deep", "dlc 1\n" + text))
    assert 1 <= len(parsed.errors) <= MAX_ERRORS + 1
    assert time.process_time() - began < 2


def far_below(frames: int, call: Callable[[], object]) -> object:
    return call() if frames == 0 else far_below(frames - 1, call)


@pytest.mark.parametrize(
    "piece",
    [
        "f(-x ** [a + b * ",
        "if a and not b or c then f(x) else (",
        "(x |> f)(",
        "[for a in on cpu { ",
    ],
)
def test_reading_needs_no_more_stack_than_a_caller_can_spare(piece: str) -> None:
    source = Source("deep", "dlc 1\nlet a = " + piece * 100)
    parsed = far_below(400, lambda: parse(source))
    assert "D0107" in str(parsed)


def depth(node: ast.Node) -> int:
    """How many expressions stand inside each other."""
    deepest, waiting = 0, [(node, 0)]
    while waiting:
        current, level = waiting.pop()
        level += isinstance(current, ast.Expr)
        deepest = max(deepest, level)
        waiting.extend((child, level) for child in children(current))
    return deepest


@pytest.mark.parametrize("piece", ["f({})(x)(x)", "({} + x * -x ** x)", "[{} |> f |> g][0]"])
def test_no_tree_is_deeper_than_the_limit(piece: str) -> None:
    text = "x"
    deepest = 0
    while not (parsed := parse(Source("deep", f"dlc 1\nlet a = {text}"))).errors:
        deepest = depth(parsed.file)
        text = piece.replace("{}", text)
    assert 32 < deepest <= 70


@pytest.mark.parametrize("length", every(2, (20_000, 100_000)))
def test_chains_of_any_length_are_flat(length: int) -> None:
    for sign in ("+", "*", "and", "|>"):
        file = parse_or_raise(Source("long", "dlc 1\nlet a = " + f" {sign} ".join(["x"] * length)))
        assert depth(file) == 2


def test_ten_thousand_lines_are_read_in_two_seconds() -> None:
    programs = [text.removeprefix("dlc 1\n") for text in PROGRAMS.values()]
    lines = "".join(programs).count("\n")
    text = "dlc 1\n" + "".join(programs) * (10_000 // lines + 1)
    began = time.process_time()
    assert not parse(Source("long", text)).diagnostics
    assert time.process_time() - began < 2  # half a second on an idle machine
