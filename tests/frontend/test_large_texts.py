"""Long texts, right or wrong, are read in time that grows with their length alone."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from dlc.errors import ModelError
from dlc.frontend.elaborate import elaborate

LINES = 10_000
SECONDS = 2.0
"""Of the processor, for `LINES` lines from text to graph IR."""


@contextmanager
def in_time(seconds: float = SECONDS) -> Generator[None]:
    began = time.process_time()
    yield
    spent = time.process_time() - began
    assert spent < seconds, f"{spent:.1f} s"


def body(lines: list[str], result: str) -> str:
    text = "\n".join(f"  {line}" for line in lines)
    return f"dlc 1\nexport fn f(x: f32[2]) -> f32[2] {{\n{text}\n  return {result}\n}}\n"


TEXTS = {
    "one value after the other": body(
        ["let v0 = x", *[f"let v{k} = v{k - 1} * 2.0" for k in range(1, LINES)]], f"v{LINES - 1}"
    ),
    "one name again and again": body(["let x = x * 2.0"] * LINES, "x"),
    "many functions": "dlc 1\n"
    + "\n".join(f"fn f{k}(x: f32[2]) -> f32[2] = x * {k}.0" for k in range(LINES))
    + "\nexport fn f(x: f32[2]) -> f32[2] = f0(f9(x))\n",
    "one long sum": body(["let y = " + " + ".join(["x"] * LINES)], "y"),
    "many weights": "dlc 1\nmodule M() {\n"
    + "\n".join(f"  param w{k}: f32[2] = zeros()" for k in range(LINES // 2))
    + f"\n  export fn f(x: f32[2]) -> f32[2] = {' + '.join(f'w{k}' for k in range(LINES // 2))} + x\n}}\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_long_text_is_elaborated_in_two_seconds(text: str) -> None:
    with in_time():
        elaborate("model.dlm", text=text)


def test_a_text_full_of_unknown_names_is_refused_in_two_seconds() -> None:
    text = body([f"let a{k} = y{k} * 2.0" for k in range(LINES)], "x")
    with in_time(), pytest.raises(ModelError, match="stopped after 50 errors"):
        elaborate("model.dlm", text=text)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 100 + "x" + ")" * 100,
        "-" * 200 + "x",
        "[" * 100 + "x" + "]" * 100,
        "if c then x else " * 90,
    ],
    ids=["parentheses", "signs", "lists", "choices"],
)
def test_nesting_without_end_is_refused(expression: str) -> None:
    with in_time(0.5), pytest.raises(ModelError) as caught:
        elaborate("model.dlm", text=body([f"let y = {expression} x"], "y"))
    assert "D0107" in {d.code for d in caught.value.diagnostics}


def test_calls_that_double_without_end_are_refused() -> None:
    doubled = "\n".join(f"fn g{k}(x: f32) = g{k - 1}(g{k - 1}(x))" for k in range(1, 60))
    text = f"dlc 1\nfn g0(x: f32) = x + 1\n{doubled}\nexport fn f(x: f32) -> f32 = g59(x)\n"
    with in_time(15), pytest.raises(ModelError, match="more than 250,000 operations and calls"):
        elaborate("model.dlm", text=text)
