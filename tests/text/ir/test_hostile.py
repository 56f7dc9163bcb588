"""IR text from anywhere: whatever it says, reading it ends soon, with a module or with a ModelError."""

from __future__ import annotations

import random
import time
from collections.abc import Generator

import pytest

from dlc.errors import ModelError
from dlc.ir.verify import verify
from dlc.text.ir.lexer import read_tokens
from dlc.text.ir.parser import parse_module
from dlc.text.ir.printer import print_module
from dlc.text.ir.short import parse_short, print_short
from tests.ir import toy
from tests.ir.random_modules import RandomModule
from tests.suites import together

SECONDS = 2.0
SNIPPETS = (
    '"', "\\", "<", ">", "{", "}", "(", ")", "[", "]", "%", "#", "@", "!", "^", ":", "->", "=", ",",
    "%0", "%x#1", "//", "\0", "é", "\ud800", "\n", "99999999999999999999999", "-1", "0x", "1e999",
    "loc(", "loc(fused[", '"toy.end"', "tensor<", "tensor<?xf32>", "dense<", "#dlc.dims<\"", "B//0",
    "array<i64: 1>", "segments = array<i64: 5>", '"toy.nest"() ({', "}) : () -> ()", "!mem.view<",
)  # fmt: skip


@pytest.fixture(autouse=True)
def toys() -> Generator[None]:
    with toy.registered():
        yield


def mutated(text: str, choose: random.Random) -> str:
    """The text with a few things put in, taken out, doubled or swapped."""
    for _ in range(choose.randrange(1, 4)):
        at = choose.randrange(len(text) + 1)
        end = min(len(text), at + choose.choice((1, 1, 3, 10, 60)))
        other = choose.randrange(len(text) + 1)
        text = choose.choice(
            (
                text[:at] + text[end:],
                text[:at] + choose.choice(SNIPPETS) + text[at:],
                text[:at] + choose.choice(SNIPPETS) + text[end:],
                text[:at] + text[at:end] * 2 + text[end:],
                text[:other] + text[at:end] + text[other:],
                text[:at] + chr(choose.randrange(1, 256)) + text[at + 1 :],
            )
        )
    return text


def read(text: str) -> bool:
    """Whether a text is a module; anything but that or a ModelError fails the test."""
    start = time.process_time()
    try:
        module = parse_module(text, "hostile.dlir")
        verify(module)
        assert print_module(parse_module(print_module(module), "again")) == print_module(module)
        accepted = True
    except ModelError as error:
        accepted = not error.render()
    assert time.process_time() - start < SECONDS, text
    return accepted


def read_mutations(count: int) -> None:
    seeds = range(40)
    texts = [
        print_module(RandomModule(seed).module(functions=1, operations=15), locations=seed % 2 == 0)
        for seed in seeds
    ]
    choose = random.Random(7)
    accepted = sum(read(mutated(choose.choice(texts), choose)) for _ in range(count))
    assert 0 < accepted < count


def read_short(text: str) -> bool:
    """The same for the short spelling."""
    start = time.process_time()
    try:
        for op in parse_short(text, "hostile.dlir"):
            printed = print_short(op)
            assert "".join(map(print_short, parse_short(printed, "again"))) == printed
        accepted = True
    except ModelError as error:
        accepted = not error.render()
    assert time.process_time() - start < SECONDS, text
    return accepted


def test_mutated_short_texts_give_nothing_but_model_errors() -> None:
    texts = [
        print_short(RandomModule(seed).module(functions=1, operations=15)) for seed in range(40)
    ]
    choose = random.Random(7)
    accepted = sum(read_short(mutated(choose.choice(texts), choose)) for _ in range(600))
    assert 0 < accepted < 600


def test_mutated_texts_give_nothing_but_model_errors() -> None:
    read_mutations(600)


@pytest.mark.long
def test_ten_thousand_mutated_texts_give_nothing_but_model_errors() -> None:
    read_mutations(10_000)


def inside(value: str) -> str:
    return f'"builtin.module"() ({{ "toy.facts"() {{test.a = {value}}} : () -> () }}) : () -> ()'


MANY = 30_000
LARGE = [
    '"' * MANY,
    '"\\' * MANY,
    '"\\"' * MANY,
    "<" * MANY,
    "tensor<" * MANY,
    'tensor<#a<"' * MANY,
    '!a<"' * MANY,
    "!a<" + "x" * MANY,
    '@"\\' * MANY,
    "array<" * MANY,
    "%" * MANY,
    "//" * MANY,
    "(" * MANY,
    "-" * MANY,
    "1" * MANY,
    "1." * MANY,
    '"no.op"() ({' * MANY,
    '"toy.nest"() ({' * MANY,
    "%a, " * MANY,
    "%a:9999999999 = ",
    '%a:2000000000 = "toy.end"() : () -> ()',
    inside("[" * MANY),
    inside("-" + "1" * MANY),
    inside("1" * MANY + " : i9984"),
    inside("dense<" + "[" * MANY + ">: tensor<1xf32>"),
    inside('dense<"0x' + "0" * MANY + '"> : tensor<1xf32>'),
    inside('#dlc.dim<"' + "(" * 1000 + '">'),
    inside('#dlc.dim<"' + "(A + B + C + D)*" * 100 + '1">'),
    inside('#dlc.dim<"' + "A//" * 600 + 'B">'),
    inside('#dlc.dim<"' + "99999999999999999999*" * 80 + 'B">'),
    inside('#dlc.dims<"' + "B, " * 6000 + 'B">'),
    inside("tensor<" + "1x" * MANY + "f32>"),
    inside("(" * MANY),
    inside("() -> " * MANY + "f32"),
    "\n" * MANY * 10,
    "".join(f"%{i} = " for i in range(MANY)),
    '"toy.end"(' + ", ".join(f"%{i}" for i in range(MANY)) + ") : () -> ()",
]


@together("text", LARGE, ids=lambda text: str(text)[:30])
def test_texts_made_to_take_long_are_refused_soon(text: str) -> None:
    assert not read(text)


LARGE_SHORT = [
    "func @f {" * MANY,
    "func @f() { " * MANY,
    "func @f(" * MANY,
    "func @f() { return " + "%a, " * MANY,
    "func @f() { " + "%a, " * MANY + "= toy.end }",
    "toy.facts {test.a=" + "[" * MANY,
    "toy.facts {test.a=<" + "(" * MANY + ">}",
    "toy.facts {test.a=f32[" + "1, " * MANY + "1]}",
    "toy.end | " + "|" * MANY,
]


@pytest.mark.parametrize("text", LARGE_SHORT, ids=lambda text: str(text)[:30])
def test_short_texts_made_to_take_long_are_refused_soon(text: str) -> None:
    assert not read_short(text)


def test_a_long_list_is_read_soon() -> None:
    assert read(inside("[" + "1, " * MANY + "1]"))


def test_a_token_is_found_in_linear_time_whatever_the_text() -> None:
    for text in LARGE:
        start = time.process_time()
        read_tokens(text * 4, "a.dlir")
        assert time.process_time() - start < SECONDS, text[:30]


def test_unicode_that_looks_like_digits_or_letters_is_none() -> None:
    for value in ("\u0663", "\uff11", "\u00e9", "1\u0663"):
        assert not read(inside(value))
