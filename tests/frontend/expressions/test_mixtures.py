"""What a message about types names: a conversion where dtypes mix, and every function of nested calls."""

from __future__ import annotations

import pytest

from dlc.errors import Diagnostic, ModelError
from dlc.frontend.elaborate import elaborate


def refused(text: str) -> Diagnostic:
    """The first error of a text."""
    with pytest.raises(ModelError) as caught:
        elaborate("model.dlm", text=f"dlc 1\n{text}")
    return caught.value.diagnostics[0]


@pytest.mark.parametrize(
    "call",
    [
        "x + y",
        "x < y",
        "x @ y",
        "where(x > 0, x, y)",
        "maximum(x, y)",
        "lerp(x, y, 0.5)",
        "concat([x, y])",
        "stack([x, y])",
        'einsum("ij,ij->ij", x, y)',
        "update(x, at=[0:3], y)",
        "update(x, at=[0], y[0])",
        "layer_norm(x, y[0])",
        "rms_norm(x, y[0])",
        "linear(x, y)",
        "attention(x, y, y)",
        "attention(x, x, x, mask=y)",
        "cross_entropy(x, y)",
        "searchsorted(x[0], y)",
        "scatter_add(x, [0, 1, 2], y)",
        "scan t in 0..3 with h = x { next h = y }",
        "if x[0, 0] > 0 then x else y",
        "vjp(sin, wrt=x)(x, dy=y)",
        "own(y)",
        "y",
    ],
)
def test_every_error_of_mixed_dtypes_has_a_way_out(call: str) -> None:
    error = refused(
        "fn own(x: f32[3, 3]) -> f32[3, 3] = x\n"
        f"export fn f(x: f32[3, 3], y: f16[3, 3]) -> f32[3, 3] = {call}\n"
    )
    assert error.help is not None
    assert "convert" in error.help or "dtype" in error.help


@pytest.mark.parametrize("call", ["b(relu(a(x)))", "x |> a |> relu |> b"])
def test_a_mismatch_in_nested_calls_names_each_with_its_declaration(call: str) -> None:
    error = refused(f"""import nn (Linear)
module M() {{
  use a = Linear(3, 4)
  use b = Linear(5, 2)
  export fn f(x: f32[7, 3]) -> f32[7, 2] = {call}
}}
""")
    assert [(label.text, label.place.line) for label in error.labels[1:]] == [
        ("b is declared here", 5),
        ("a is declared here", 4),
    ]


def test_a_tuple_yielded_is_a_result_for_each_of_its_items() -> None:
    elaborate(
        "model.dlm",
        text="""dlc 1
export fn f(x: f32[5, 3]) -> (last: f32, twice: f32[5, 3], sums: f32[5]) {
  let (h, p, q) = scan r in x with h = 0 { next h = h + sum(r)  yield (2 * r, sum(r)) }
  return (last = h, twice = p, sums = q)
}
export fn g(x: f32[5, 3]) -> (twice: f32[5, 3], sums: f32[5]) {
  let y = scan r in x { yield (twice = 2 * r, sums = sum(r)) }
  return (twice = y.twice, sums = y.sums)
}
""",
    )


def test_a_submodule_may_have_the_name_of_a_builtin() -> None:
    text = """import nn (LayerNorm)
module M() {{
  use norm = LayerNorm(3)
  {member}
  export fn f(x: f32[5, 3]) -> f32[5, 3] = relu(norm(x))
}}
"""
    elaborate("model.dlm", text="dlc 1\n" + text.format(member="fn relu(x) = 2 * x"))
    assert refused(text.format(member="param relu: f32[3] = zeros()")).code == "D0212"


def test_a_tuple_with_other_names_says_how_to_name_its_items() -> None:
    error = refused("export fn f(x: f32[8]) -> (v: f32[4], p: i32[4]) = top_k(x, 4)\n")
    assert error.help is not None
    assert "(v = t.values, p = t.places)" in error.help
