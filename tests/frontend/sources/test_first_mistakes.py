"""What somebody's first mistakes are told: the place, what disagrees, and how to write it."""

from __future__ import annotations

import pytest

from dlc.errors import Diagnostic, ModelError
from dlc.frontend.elaborate import elaborate

TEXT = """dlc 1
dim B = 1..64
import nn (Linear)
module Net(h = 8) {
  param w: f32[4, h] = normal(0.1)
  use head = Linear(h, 2)
  export fn f(x: f32[B, 4], ids: i32[B]) -> f32[B, 2] {
    BODY
  }
}
"""


def told(body: str) -> list[Diagnostic]:
    """The errors of a text with this function body."""
    with pytest.raises(ModelError) as caught:
        elaborate("model.dlm", text=TEXT.replace("BODY", body))
    return [d for d in caught.value.diagnostics if d.severity == "error"]


MISTAKES = [
    ("return head(x @ W)", "D0201", "nothing is called W here", "did you mean w?"),
    ("return softmx(x @ w)", "D0201", "nothing is called softmx here", "did you mean softmax?"),
    ("return head(float(x) @ w)", "D0201", "nothing is called float here", "write f32(x)"),
    ("return x @ self.w", "D0201", "nothing is called self here", "write w alone"),
    ("return head(x * w)", "D0301", "the sizes B and 4 differ", "is written @"),
    ("return where(ids > 0, x @ w[:, :2], 0)", "D0301", "differ", "x[:, new]"),
    ("return head(x @ w) + ids", "D0322", "do not mix", "convert one of them"),
    ("return head(x @ w, 3)", "D0208", "head takes 1 argument, found 2", "it is head(x)"),
    ("return softmax(head(x @ w), dim=-1)", "D0208", "has no parameter dim", "did you mean axis?"),
    ("return softmax(head(x @ w), axis=2)", "D0305", "has no axis 2", "the axes 0 to 1"),
    ("return head(x.T @ w)", "D0206", "f32[B, 4] has no `.T`", "write transpose(x)"),
    ("return x.sum() * head(x @ w)", "D0206", "has no `.sum`", "write sum(x)"),
    ("return head(concat(x, x) @ w)", "D0320", "xs of concat is a list", "concat([a, b])"),
    ("return head(x @ w)[:, 5]", "D0329", "index 5 is out of range", "the places 0 to 1"),
    ("return head(w[x])", "D0337", "an index is a whole number", "convert it: i32(...)"),
    ("return if x > 0 then x else x", "D0401", "a condition is one bool", "where(...)"),
    ("return head(x @ w) if true else 0", "D0113", "no statement begins with `if`", "if c then a"),
    ("for i in 0..3 { }", "D0113", "no statement begins with `for`", "scan x in xs"),
    ("y = x @ w", "D0113", "no statement begins with `y`", "let y ="),
    ("print(x)", "D0113", "no statement begins with `print`", "debug x"),
    ("return head(x @ w);", "D0101", "`;` is not an operator", "leave the `;` out"),
    ("return x && ids", "D0101", "`&&` is not an operator", "write `and`"),
    ("return Linear(4, 2)(x)", "D0219", "instances are members of a module", "use layer = "),
    ("return grad(head)(x @ w)", "D0423", "needs a function to one float", "sum it up"),
    ("return torch.relu(head(x @ w))", "D0201", "nothing is called torch", "write relu alone"),
    ("return torch.nn.Linear(4, 2)(x)", "D0201", "nothing is called torch", "write Linear alone"),
    (
        "return nn.Dropout(0.1)(x)",
        "D0201",
        "nothing is called nn",
        "import it: import nn (Dropout)",
    ),
    ("return BatchNorm2d(4)(x)", "D0201", "nothing is called BatchNorm2d", "import nn (BatchNorm)"),
    ("return torch.cat([x, x])", "D0201", "nothing is called torch", "write concat([a, b])"),
    ("return head(mul(x, x))", "D0201", "nothing is called mul", "write a * b"),
    ("return x.detach() @ w", "D0206", "has no `.detach`", "stop_gradient(x)"),
    ("return head(masked_fill(x, x > 0, 1))", "D0201", "masked_fill", "where(mask, value, x)"),
    ("return take(x, w[:, 0])", "D0308", "an index is made of whole numbers", "i32(...)"),
    ("return head(x[:, None] @ w)", "D0201", "nothing is called None", "x[:, new]"),
    ("let a = x  b = a", "D0110", "the next statement, found `b`", "write let b = ..."),
    ("return x, w", "D0110", "the end of the result", "return (a, b)"),
    ("return head(cross_entropy(x, x[:, 0]))", "D0302", "are distributions", "i32(labels)"),
    ("set w = w + 1  return head(x @ w)", "D0223", "w is a param", "declare it: state w"),
]


@pytest.mark.parametrize(
    ("body", "code", "message", "help"), MISTAKES, ids=[body for body, *_ in MISTAKES]
)
def test_a_mistake_is_told_with_a_way_out(body: str, code: str, message: str, help: str) -> None:
    first = told(body)[0]
    assert first.code == code
    assert message in first.message
    assert first.help is not None and help in first.help
    assert first.place is not None and first.place.line == 8


def test_one_run_reports_every_mistake_in_order() -> None:
    errors = told("let a = x @ W\n    let b = softmx(x)\n    return head(x @ w, 3) + a + b")
    assert [(d.code, d.place.line if d.place else 0) for d in errors] == [
        ("D0201", 8),
        ("D0201", 9),
        ("D0208", 10),
    ]


@pytest.mark.parametrize(
    ("name", "dtype"), [("int", "i32"), ("float", "f32"), ("uint8", "u8"), ("bfloat16", "bf16")]
)
def test_what_other_languages_call_a_dtype_is_known(name: str, dtype: str) -> None:
    with pytest.raises(
        ModelError, match=rf"no dtype is called {name}(?s:.)*did you mean {dtype}\?"
    ):
        elaborate("model.dlm", text=f"dlc 1\nexport fn f(x: {name}) -> f32 = 1\n")


@pytest.mark.parametrize(
    ("text", "code", "message", "help"),
    [
        ("module M(nn.Module) { }", "D0110", "found `.`", "no base class"),
        ("import torch.nn as nn", "D0110", "`(` and the names", "write import nn (A, B)"),
        (
            "import nn (Linear)\nmodule M {\n  fc = Linear(4, 2)\n}",
            "D0113",
            "no member begins with `fc`",
            "use fc = ...",
        ),
        (
            "import nn (Conv2d)\nmodule M {\n  use c = Conv2d(3, 8, 3)\n"
            "  export fn f(x: f32[2, 3, 9, 9]) -> f32[2, 8, 7, 7] = c(x)\n}",
            "D0320",
            "f32[_, _, _, 3] is expected",
            "permute(x, [0, 2, 3, 1])",
        ),
    ],
)
def test_declarations_as_in_pytorch(text: str, code: str, message: str, help: str) -> None:
    with pytest.raises(ModelError) as caught:
        elaborate("model.dlm", text=f"dlc 1\n{text}\n")
    first = caught.value.diagnostics[0]
    assert first.code == code
    assert message in first.message
    assert help in (first.help or "")
