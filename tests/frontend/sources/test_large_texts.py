"""Long texts, right or wrong, are read in time that grows with their length alone."""

from __future__ import annotations

import gc
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from dlc.errors import ModelError
from dlc.frontend.elaborate import elaborate
from tests.suites import every

LINES = 10_000
SECONDS = 2.0
"""Of the processor, for `LINES` lines from text to graph IR."""
REFUSAL = 4.0
"""The same for texts that are refused, twice what it takes on a machine that has nothing else to do."""


@contextmanager
def in_time(seconds: float = SECONDS) -> Generator[None]:
    """Hold that this thread takes less: threads of other tests may still be at work.

    What other tests left is not traversed by the garbage collector meanwhile.
    """
    gc.freeze()
    began = time.thread_time()
    try:
        yield
    finally:
        spent = time.thread_time() - began
        gc.unfreeze()
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


@pytest.mark.parametrize("text", every(3, TEXTS.values()), ids=TEXTS.keys())
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


def doubled(first: str, each: str, result: str, count: int = 60) -> str:
    """A text of which every line needs the one before twice."""
    lines = [each.format(k=k, before=k - 1) for k in range(1, count)]
    text = "\n".join([first, *lines])
    return f"dlc 1\n{text}\nexport fn f(x: f32) -> f32 = {result}\n"


def nested(head: str, count: int = 18) -> str:
    """A text of loops in loops that carry a number whose type each of them finds out by a trial."""
    heads = "".join(head.format(k=k) for k in range(count))
    return f"dlc 1\nexport fn f(x: f32) -> f32 = {heads}x + 1{' }' * count}\n"


ENDLESS = {
    "functions": doubled(
        "fn g0(x: f32) = x + 1", "fn g{k}(x: f32) = g{before}(g{before}(x))", "g17(x)", 18
    ),
    "functions of numbers": doubled(
        "fn g0(x) = x + 1", "fn g{k}(x) = g{before}(x) + g{before}(x)", "x * g59(1)"
    ),
    "choices": doubled(
        "fn g0(x: f32) -> f32 = x",
        "fn g{k}(x: f32) -> f32 = if x > {k} then g{before}(x) else g{before}(-x)",
        "g59(x)",
    ),
    "lists": doubled("const c0 = [1, 2]", "const c{k} = [c{before}, c{before}]", "x + sum(c59)"),
    "tuples": doubled("const c0 = (1, 2)", "const c{k} = (c{before}, c{before})", "x + c59.0.0"),
    "values": doubled("let c0 = zeros([1])", "let c{k} = c{before} + c{before}", "x + c59[0]"),
    "lists of lists": "dlc 1\nconst c = [for i in 0..9999: [for k in 0..9999: k]]\n",
    "scans": nested("scan i{k} in 0..9 with s{k} = 0 {{ next s{k} = "),
    "whiles": nested("while s{k} < 3 with s{k} = 0 {{ next s{k} = "),
    "chains": "dlc 1\nmodule M() {\n  use c0 = chain(exp)\n"
    + "\n".join(f"  use c{k} = chain(c{k - 1}, c{k - 1})" for k in range(1, 60))
    + "\n  export fn f(x: f32) -> f32 = c59(x)\n}\n",
}


@pytest.mark.parametrize("text", every(6, ENDLESS.values()), ids=ENDLESS.keys())
def test_what_doubles_without_end_is_refused(text: str) -> None:
    with (
        in_time(REFUSAL),
        pytest.raises(ModelError, match="more than 110,000 operations and calls"),
    ):
        elaborate("model.dlm", text=text)


@pytest.mark.parametrize(
    "inner", ["M(n)", "M(n + 1)", "chain(M(n), M(n))", "[for i in 0..2: M(i)]", "2 * M(n)", "N(n)"]
)
def test_a_module_that_contains_itself_is_named(inner: str) -> None:
    text = (
        f"dlc 1\nmodule M(n = 1) {{\n  use m = {inner}\n  export fn f(x: f32) -> f32 = x\n}}\n"
        "module N(n) { use m = M(n) }\n"
    )
    with (
        in_time(REFUSAL),
        pytest.raises(ModelError, match="M contains itself without end") as caught,
    ):
        elaborate("model.dlm", text=text)
    (found,) = [d for d in caught.value.diagnostics if d.severity == "error"]
    assert (found.code, str(found.place)) == ("D0215", "model.dlm:3:3")


def test_modules_end_where_a_parameter_ends_them() -> None:
    text = (
        "dlc 1\nmodule M(n = 90) {\n  param w: f32[2] = ones()\n"
        "  use inner = if n > 1 then M(n - 1) else identity\n  fn call(x) = inner(x * w)\n"
        "  export fn f(x: f32[2]) -> f32[2] = call(x)\n}\n"
    )
    assert len(elaborate("model.dlm", text=text).layers) == 90


def test_constants_follow_from_one_another_in_the_order_of_the_text() -> None:
    forward = "\n".join(f"const c{k + 1} = c{k} + 1" for k in range(LINES))
    text = f"dlc 1\nconst c0 = 1\n{forward}\nexport fn f(x: f32) -> f32 = x * c{LINES}\n"
    with in_time():
        elaborate("model.dlm", text=text)
    backward = "\n".join(f"const c{k} = c{k + 1} + 1" for k in range(LINES))
    text = f"dlc 1\n{backward}\nconst c{LINES} = 1\nexport fn f(x: f32) -> f32 = x * c0\n"
    with in_time(), pytest.raises(ModelError, match="more than 250 definitions lead from one"):
        elaborate("model.dlm", text=text)


def test_constants_that_nothing_uses_are_checked() -> None:
    text = "dlc 1\nconst a = 2 ** 1000000000\nexport fn f(x: f32) -> f32 = x\n"
    with in_time(0.5), pytest.raises(ModelError, match="not a number that can be written"):
        elaborate("model.dlm", text=text)


LONG = {
    "blank lines": "dlc 1\n" + "\n" * 1_000_000 + "export fn f(x: f32) -> f32 = x",
    "many entry points": "dlc 1\n"
    + "\n".join(f"export fn f{k}(x: f32) -> f32 = x" for k in range(LINES // 2)),
    "many sizes": "dlc 1\n"
    + "\n".join(f"dim D{k}\nexport fn f{k}(x: f32[D{k}]) -> f32[D{k}] = x" for k in range(2_000)),
}


@pytest.mark.parametrize("text", every(2, LONG.values()), ids=LONG.keys())
def test_a_long_file_is_elaborated_in_two_seconds(text: str) -> None:
    with in_time():
        elaborate("model.dlm", text=text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param("dlc 1\n" + "# a\n" * 1_000_000, "D0106", marks=pytest.mark.long),
        ("dlc 1\nexport fn f(x: f32) -> f32 = " + "a" * 7_000_000, "D0201"),
        ("dlc 1\nexport fn f(x: f32) -> f32 = " + "1" * 7_000_000, "D0106"),
        ("dlc 1\nconst c = " + "$ " * 200_000, "D0101"),
    ],
    ids=["comments", "name", "number", "signs"],
)
def test_a_text_that_is_too_long_is_refused(text: str, code: str) -> None:
    with in_time(REFUSAL), pytest.raises(ModelError) as caught:
        elaborate("model.dlm", text=text)
    assert code in {d.code for d in caught.value.diagnostics}


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("export fn f(x: f32[{axes}]) -> f32 = sum(x)", 16),
        ("export fn f(x: f32) -> f32 = sum(zeros([{axes}]) + x)", 34),
        ("export fn f(x: f32) -> f32 = sum(reshape(x, [{axes}]))", 34),
    ],
)
def test_a_tensor_of_more_axes_than_there_are_is_refused_at_its_place(
    text: str, column: int
) -> None:
    with in_time(REFUSAL), pytest.raises(ModelError) as caught:
        elaborate("model.dlm", text=f"dlc 1\n{text.format(axes=', '.join(['1'] * 30_000))}\n")
    (found,) = caught.value.diagnostics
    assert (found.code, found.place and found.place.column) == ("D0338", column)
    assert found.message == (
        "a tensor of 30,000 axes given where one of at most 16 axes is expected"
    )
