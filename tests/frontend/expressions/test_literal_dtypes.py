"""Numbers as arguments of functions that take several tensors: they have the dtype of what they meet."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import dlc
from dlc.errors import ModelError
from dlc.frontend.builtins.registry import BUILTINS
from tests.suites import every, together

ROW, SQUARE = "[0.1, 0.2]", "[[0.1, 0.2], [0.3, 0.4]]"
PICTURE = f"[{SQUARE}]"
CALLS = {
    "linear": ["linear(x, @)", "linear(x, @, ROW)", "linear(@, x)"],
    "conv": ["conv(x[new], [@])", "conv(x[new], [@], ROW)", "conv([@], x[new])"],
    "conv_transpose": ["conv_transpose(x[new], [@], ROW)", "conv_transpose([@], x[new])"],
    "layer_norm": ["layer_norm(x, ROW)", "layer_norm(x, ROW, ROW)", "layer_norm(x, shift=ROW)"],
    "rms_norm": ["rms_norm(x, ROW)"],
    "group_norm": ["group_norm(x, ROW, ROW, 1)"],
    "batch_norm": ["batch_norm(x, ROW, ROW, ROW, ROW)", "batch_norm(x, [1, 2], [1, 2], [0, 0], [1, 1])"],
    "einsum": ['einsum("ij,jk->ik", x, @)', 'einsum("ij,jk->ik", @, x)', 'einsum("ij,j->i", x, [1, 2])'],
    "attention": ["attention(x, @, @)", "attention(@, @, x)", "attention(x, x, x, @)",
                  "attention(x, x, @, [true, false])"],
    "cross_entropy": ["cross_entropy(x, @)", "cross_entropy(x, [0, 1])", "cross_entropy(@, x)"],
    "lstm": ["lstm(x[new], [[1, 2, 3, 4], [1, 2, 3, 4]], [[1, 2, 3, 4]], [0, 0, 0, 0], [[0]], [[0.1]]).y"],
    "searchsorted": ["f64(searchsorted(ROW, x))", "f64(searchsorted(x[0], ROW))",
                     "f64(searchsorted([1, 2], x))"],
    "sort_pairs": ["sort_pairs(x, @)[1]", "sort_pairs(@, x)[1]"],
    "scatter_add": ["scatter_add(x, [0, 1], @)", "scatter_add([[0, 0], [0, 0]], [0, 1], x)"],
    "where": ["where(x > 0, x, 0.1)", "where(x > 0, @, x)"],
    "clip": ["clip(x, 0.1, @)"],
    "prelu": ["prelu(x, 0.1)"],
    "lerp": ["lerp(x, 0.1, @)"],
    "concat": ["concat([x, @])"],
    "stack": ["stack([x, @])"],
    "pad": ["pad(x, [(1, 1), (0, 0)], 0.1)"],
    "take": ["take(x, [1, 0])"],
    "take_along": ["take_along(x, [[1, 0], [0, 1]])"],
    "compress": ["compress(x, [true, false])"],
    "maximum": ["maximum(x, 0.1)", "maximum(@, x)"],
    "minimum": ["minimum(x, 0.1)"],
    "atan2": ["atan2(x, 0.1)", "atan2(@, x)"],
}  # fmt: skip
TENSORS = ("tensor", "float", "alike")
"""The kinds of parameters that are tensors."""


def calls() -> list[str]:
    every = [call for written in CALLS.values() for call in written]
    return [call.replace("ROW", ROW).replace("@", SQUARE) for call in every]


@together(("number", "call"), every(6, enumerate(calls())))
def test_numbers_of_a_call_have_the_dtype_of_the_tensors_that_they_meet(
    number: int, call: str
) -> None:
    x = np.array([[0.7, -1.3], [2.1, 0.4]])
    double = np.asarray(compiled("f64")[f"call{number}"](x))
    assert double.dtype == np.float64
    rounded = np.asarray(compiled("f32")[f"call{number}"](x.astype(np.float32)))
    np.testing.assert_allclose(rounded, double, rtol=1e-5, atol=1e-6, err_msg=call)


@cache
def compiled(dtype: str) -> dlc.Model:
    """A model whose entry points are the calls in a dtype."""
    lines = ["dlc 1"]
    for number, call in enumerate(calls()):
        made = call.replace("f64(", f"{dtype}(")
        lines += [
            f"fn value{number}(x: {dtype}[2, 2]) = {made}",
            f"export fn call{number}(x: {dtype}[2, 2]) -> {dtype} = sum(value{number}(x))",
        ]
    return dlc.compile(text="\n".join(lines))


def test_every_function_of_several_tensors_is_called() -> None:
    several = {
        name
        for name, function in BUILTINS.items()
        if sum(p.kind in TENSORS for p in function.parameters) > 1
        or any(p.name.startswith("*") and p.kind in TENSORS for p in function.parameters)
    }
    assert several <= CALLS.keys()


def test_numbers_alone_have_one_dtype_for_all() -> None:
    text = 'dlc 1\nexport fn f(x: f32) -> f32[1] = x * einsum("ij,j->i", [[1, 2]], [0.5, 1])'
    assert np.asarray(dlc.compile(text=text)["f"](2.0)) == 5


def test_tensors_are_not_converted() -> None:
    text = "dlc 1\nexport fn f(x: f64[2, 2], w: f32[2, 2]) -> f64[2, 2] = linear(x, w)"
    with pytest.raises(ModelError, match="f64"):
        dlc.compile(text=text)


def test_whole_numbers_become_the_floats_of_a_group_norm() -> None:
    text = "dlc 1\nexport fn f(x: f32[2, 3]) -> f32[2, 3] = group_norm(x, [1, 2, 3], [1, 2, 3], 1)"
    found = np.asarray(dlc.compile(text=text)["f"](np.ones((2, 3), np.float32)))
    np.testing.assert_array_equal(found, [[1, 2, 3]] * 2)


@pytest.mark.parametrize(
    "call", ["group_norm(x, ROW, ROW, 1)", "batch_norm(x, ROW, ROW, ROW, ROW)"]
)
def test_a_wrong_number_of_channels_is_said_in_words_of_the_text(call: str) -> None:
    made = call.replace("ROW", ROW)
    with pytest.raises(ModelError, match=r"the channels are f32\[3\], found f32\[2\]"):
        dlc.compile(text=f"dlc 1\nexport fn f(x: f32[2, 3]) -> f32[2, 3] = {made}")
