"""Sizes that would be below 0 in a call: refused before it begins, by code and evaluator alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.interpret import evaluate_entry
from dlc.driver.run.request import CompileRequest
from dlc.errors import CallError, DlcError, ModelError

HEAD = "dlc 1\ndim T\ndim S\n"
PAIR = "export fn f(x: f32[T], y: f32[S]) -> "
COUNTING = "dlc 1\ndim T = 4..9\nexport fn f(x: f32[T]) -> f32 {\n  let (p, n) = nonzero(x)\n"
FIFTH = "fn fifth(x: f32[T]) -> f32 = x[5]\n"

REFUSED = {
    f"{PAIR}f32 = sum(zeros([T - S, T - S]) + 1)": (
        "D0804",
        "there is no f32[T - S, T - S]: T - S is -2",
    ),
    f"{PAIR}f32[T - S] = zeros([T - S]) + 1": ("D0804", "there is no f32[T - S]: T - S is -2"),
    f"{PAIR}f32 = sum(sort(x[S:]))": ("D0804", "there is no f32[T - S]: T - S is -2"),
    f"{PAIR}f32 = sum(x[:S])": ("D0807", "the slice 0:S leaves an axis of size T"),
    f"{PAIR}f32 = x[S]": ("D0807", "the index S is out of range for an axis of size T"),
    f"{PAIR}f32 = top_k(x, S).values[0]": ("D0807", "cannot take the best S of T"),
    f"{PAIR}f32[T - S + 3] = pad(x, [(0, 3 - S)])": (
        "D0807",
        "an axis is padded by -S + 3 elements",
    ),
    f"{PAIR}i32 = argmax(x[minimum(S, T):])": ("D0807", "nothing to choose from: axis 0 of"),
    f"{PAIR}f32 {{\n  let unused = x[5]\n  return sum(y)\n}}": (
        "D0807",
        "the index 5 is out of range",
    ),
    f"{FIFTH}{PAIR}f32[T] = grad(fifth)(x)": ("D0807", "the index 5 is out of range"),
    f"{PAIR}f32 = sum(max_pool1d(x[new, :, new], 3))": (
        "D0804",
        "a window over 3 elements does not fit",
    ),
    f"{PAIR}f32 = sum(conv(x[new, :, new], ones([5, 1, 1]), stride=4))": (
        "D0804",
        "the kernel [5] reaches over 5 elements",
    ),
    f"{PAIR}f32 = if T > S then sum(x[S:]) else 0.0": (
        "D0804",
        "there is no f32[T - S], not even where it is not computed",
    ),
}
"""What a call with T = 2 and S = 4 is refused with."""

TWO, FOUR = np.ones(2, np.float32), np.ones(4, np.float32)


def refusal(call: Callable[[], object]) -> str:
    """The whole report of the error that a call ends with."""
    with pytest.raises(DlcError) as caught:
        call()
    return str(caught.value)


def evaluated(text: str) -> object:
    """What the evaluator makes of it."""
    request = CallRequest("model.dlm", inputs={"x": "[1, 1]", "y": "[1, 1, 1, 1]"})
    results, _ = evaluate_entry(CompileRequest("model.dlm", text=text).open(), request)
    return results.values[0][1].numpy()


@pytest.mark.parametrize("text", REFUSED)
def test_a_call_and_its_evaluation_are_refused_with_one_sentence(text: str) -> None:
    code, told = REFUSED[text]
    model = dlc.compile(text=HEAD + text)
    said = refusal(lambda: model["f"](TWO, FOUR))
    assert said.startswith(f"error[{code}]: f: {told}")
    assert "T is 2" in said or "S is 4" in said
    assert " --> model.dlm:" in said
    assert "^^" in said
    assert refusal(lambda: evaluated(HEAD + text)) == said


@pytest.mark.parametrize(
    "result",
    [
        "if T > 5 then x[5] else -1.0",
        "if T > 5 then sum(x[minimum(5, T):]) else -1.0",
        "if T > S then sum(x[minimum(S, T):]) else -1.0",
        "if T > S then sum(zeros([maximum(T - S, 0)]) + 1) else -1.0",
    ],
)
def test_a_branch_that_is_not_taken_refuses_no_elements(result: str) -> None:
    text = f"{HEAD}{PAIR}f32 = {result}"
    assert dlc.compile(text=text)["f"](TWO, FOUR) == -1
    assert evaluated(text) == -1


COUNTED = {
    "f32(argmax(c))": "there is nothing to take from an axis of size 0",
    "f32(argmin(c))": "there is nothing to take from an axis of size 0",
    "c[0]": "there is nothing to take from an axis of size 0",
    "top_k(c, 1).values[0]": "there is nothing to take from an axis of size 0",
    "sum(top_k(d, 3).values)": "the index 2 is out of range for an axis of size 2",
    "d[2]": "the index 2 is out of range for an axis of size 2",
    "sum(d[1:4:2])": "the index 3 is out of range for an axis of size 2",
    "x[p[1, 0] + 7]": "the index 8 is out of range for an axis of size 2",
    "sum(while v < 0 with v = x[0] limit 3 { next v = v - 1 })": (
        "the loop did not end within its limit of 3 rounds"
    ),
}
"""What a call with x = [-1, -1] is refused with, where c has none of its elements and d both."""


@pytest.mark.parametrize("result", COUNTED)
def test_what_is_counted_too_few_fails_evaluated_as_in_a_call(result: str) -> None:
    text = f"""{HEAD}export fn f(x: f32[T], y: f32[S]) -> f32 {{
  let (p, n) = nonzero(x)
  let (q, m) = nonzero(x > 0)
  let d = x[p[:, 0]]
  let c = x[q[:, 0]]
  return {result}
}}"""
    said = refusal(lambda: dlc.compile(text=text)["f"](-TWO, FOUR))
    assert f": f: {COUNTED[result]}" in said
    assert " --> model.dlm:9" in said
    request = CallRequest("model.dlm", inputs={"x": "[-1, -1]", "y": "[1, 1, 1, 1]"})
    opened = CompileRequest("model.dlm", text=text).open()
    assert refusal(lambda: evaluate_entry(opened, request)) == said


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    "result", ["x[5] * ones([T])", "grad(fifth)(x)", "x * f32(argmax(x[minimum(S, T):]))"]
)
def test_a_branch_that_is_taken_fails_where_elements_are_not_there(result: str, level: int) -> None:
    text = f"{HEAD}{FIFTH}{PAIR}f32[T] = if sum(x) > 0 then {result} else x"
    model = dlc.compile(text=text, level=level)
    with pytest.raises(CallError, match="D0807"):
        model["f"](TWO, FOUR)
    with pytest.raises(CallError, match="D0807"):
        evaluated(text)
    np.testing.assert_array_equal(np.asarray(model["f"](-TWO, FOUR)), -TWO)


def test_a_message_says_what_to_write_in_a_branch() -> None:
    said = refusal(lambda: dlc.compile(text=f"{HEAD}{PAIR}f32 = if T > 5 then sum(x[5:]) else 0.0"))
    assert "error[D0715]: there is no f32[T - 5]" in said
    assert "for a branch that is not taken then, begin the slice at minimum(5, T)" in said


@pytest.mark.parametrize(
    ("result", "told", "help"),
    [
        ("sum(zeros([n - 5]))", "n - 5 may be -5, as the call counts n", "write maximum(n - 5, 0)"),
        ("f32(sum(p[5:]))", "there is no i64[n - 5, 1]", "begin the slice at minimum(5, n)"),
        ("sum(zeros([3 - n]))", "-n + 3 may be ", "write maximum(-n + 3, 0)"),
    ],
)
def test_a_size_that_is_counted_must_not_come_below_0(result: str, told: str, help: str) -> None:
    text = f"{COUNTING}  return {result}\n}}\n"
    with pytest.raises(ModelError) as caught:
        dlc.compile(text=text)
    (found,) = caught.value.diagnostics
    assert found.code == "D0715"
    assert told in found.message
    assert found.help == help


def test_as_many_as_are_not_counted_have_a_size() -> None:
    text = f"{HEAD}{PAIR}f32 {{\n  let (p, n) = nonzero(x)\n  return sum(zeros([T - n]) + 1)\n}}"
    assert dlc.compile(text=text)["f"](np.array([1, 0, 0], np.float32), FOUR) == 2


@pytest.mark.parametrize(
    "text",
    [
        "dim T\nexport fn f(x: f32[T]) -> f32[T] = concat([x[:1], x[1:]], axis=0)",
        "dim T = 5..\nexport fn f(x: f32[T]) -> f32 = sum(x[5:]) + x[4]",
        "dim T\ndim S\nexport fn f(x: f32[T, S]) -> f32[S, T] = transpose(x)",
    ],
)
def test_what_the_bounds_show_is_not_looked_at_by_calls(text: str) -> None:
    assert dlc.compile(text=f"dlc 1\n{text}")["f"].entry.needs == ()


@pytest.mark.parametrize("stage", ["graph", "kernel", "plan", "loop"])
def test_what_calls_look_at_is_kept_at_every_level(stage: str, tmp_path: Path) -> None:
    text = f"{HEAD}{FIFTH}{PAIR}f32[T] = grad(fifth)(x)"
    printed = tmp_path / "model.dlir"
    printed.write_text(show_stage(CompileRequest("model.dlm", text=text), Shown(stage=stage)))
    again = dlc.compile(printed, trust_ir=True)
    assert "D0807" in refusal(lambda: again["f"](TWO, FOUR))
    assert np.asarray(again["f"](np.ones(6, np.float32), FOUR)).tolist() == [0, 0, 0, 0, 0, 1]
