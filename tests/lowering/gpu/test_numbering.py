"""Kernels find the index of an element by divisions of 32 bits; what these do not number is refused."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from benchmarks.gpu.kernels import OPTIONS, divides_positions, lowered
from dlc.codegen.nvptx.ptx import kernel_ptx
from dlc.codegen.nvptx.simt import kernel_text
from dlc.dialects import simt
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.driver.source.open import open_model
from dlc.errors import CallError
from dlc.ir.passes import Context, Manager
from dlc.runtime.abi import MOST_NUMBERED
from dlc.runtime.cuda.driver import Kernel
from dlc.runtime.gpu.graphs import arguments_of
from dlc.runtime.gpu.steps import IMMEDIATE
from tests.op_examples.every import OPERATORS
from tests.op_examples.example import EXAMPLES
from tests.runtime.gpu.fake_gpu import fake_gpu

BODIES = {
    "convolution": (
        "(x: f16[B, H, W, 32], w: f16[3, 3, 32, 64]) -> f16[B, H, W, 64]",
        "conv(x, w, padding=1)",
    ),
    "depthwise convolution": (
        "(x: f32[B, H, W, 8], w: f32[3, 3, 1, 8]) -> f32[B, H, W, 8]",
        "conv(x, w, padding=1, groups=8)",
    ),
    "elements": ("(x: f32[B, H, 3], y: f32[H, 3]) -> f32[B, H, 3]", "x * y"),
    "rows": ("(x: f32[B, H, 100]) -> f32[B, H]", "sum(x, axis=2)"),
    "long rows": ("(x: f32[B, H, W]) -> f32[B, H]", "sum(exp(x) * x, axis=2)"),
    "inner axes": ("(x: f32[B, H, W]) -> f32[W]", "sum(exp(x), axis=(0, 1))"),
    "running totals": ("(x: f32[B, H, W]) -> f32[B, H, W]", "cumsum(x, axis=2)"),
    "sorted rows": ("(x: f32[B, H, W]) -> f32[B, H, W]", "sort(x, axis=2)"),
    "attention": (
        "(q: f16[B, H, W, 64], k: f16[B, H, W, 64]) -> f16[B, H, W, 64]",
        "attention(q, k, k)",
    ),
    "product": ("(x: f16[B, H, W, 64], y: f16[B, H, 64, W]) -> f16[B, H, W, W]", "x @ y"),
}


def kernels(body: str, dims: str = "dim B, H, W") -> list[simt.Func]:
    of, formula = BODIES[body]
    text = f"dlc 1\n{dims}\nexport fn f{of} = {formula}\n"
    return lowered(open_model("f.dlm", text=text))


SIGNED = ("div.s32", "rem.s32", "cvt.s64.s32", "mul.wide.s32", "mad.wide.s32")
"""By these a number of 32 bits from 2³¹ on is negative. Attention divides that of a block, below 2³¹."""


@pytest.mark.parametrize("body", BODIES)
def test_without_bounds_positions_are_divided_in_32_bits_without_a_sign(body: str) -> None:
    refused = ("div.s64", "div.u64", *(() if body == "attention" else SIGNED))
    for function in kernels(body):
        assert not divides_positions(function)
        text = kernel_ptx(kernel_text(function, "k"), "sm_90a")
        assert not [word for word in refused if word in text]


@pytest.mark.parametrize("most", [1, pytest.param(None, marks=pytest.mark.long)])
def test_no_kernel_of_an_operation_divides_in_64_bits(most: int | None) -> None:
    """The models' kernels are looked at where they are assembled (`tests/codegen/nvptx/test_ptx.py`)."""
    examples = [example for name in OPERATORS for example in EXAMPLES[name][:most]]
    for example in examples:
        module = example.module()
        manager = Manager(Context(options=OPTIONS))
        manager.run(module, pipeline("graph", "loop", OPTIONS.level, Device.CUDA))
        for function in module.body:
            if isinstance(function, simt.Func):
                assert not divides_positions(function), function.location.place


@pytest.mark.parametrize("body", ["convolution", "elements", "inner axes"])
def test_what_every_call_has_more_of_is_divided_in_64_bits(body: str) -> None:
    rest = "dim H = 1..100\ndim W = 1..100"
    large = kernels(body, f"dim B = 5000000000..6000000000\n{rest}")
    assert any(divides_positions(function) for function in large)
    small = kernels(body, f"dim B = 1..50\n{rest}")
    assert not any(divides_positions(function) for function in small)
    assert not any(function.narrow for function in (*large, *small))
    either = kernels(body, f"dim B = 1..6000000000\n{rest}")
    assert not any(divides_positions(function) for function in either)
    assert any(function.narrow for function in either)


def test_a_launch_with_more_elements_is_refused() -> None:
    kernel = Kernel("function", 32, narrow=(1,))
    words = [(IMMEDIATE, MOST_NUMBERED + 1), (IMMEDIATE, MOST_NUMBERED)]
    assert arguments_of(kernel, words, ()) == [MOST_NUMBERED + 1, MOST_NUMBERED]
    with pytest.raises(CallError, match=r"D0818.*would number 4294967296 elements"):
        arguments_of(kernel, words[::-1], ())


TEXT = """dlc 1
dim N
export fn f(x: f32[N]) -> f32 = sum(exp(x[:, new] - x[new, :]))
"""


def test_a_call_with_more_elements_is_refused_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says what is too much; here that is little, since arrays of the real bound fill machines."""
    monkeypatch.setattr("dlc.runtime.gpu.graphs.MOST_NUMBERED", 9)
    with fake_gpu():
        model = dlc.compile(text=TEXT, target="cuda:sm_80")
        x = np.arange(3, dtype=np.float32)
        np.testing.assert_allclose(np.asarray(model.f(x)), np.exp(x[:, None] - x).sum(), rtol=1e-6)
        with pytest.raises(CallError, match="D0818") as refused:
            model.entry_points["f"](np.zeros(4, np.float32))
        assert "would number 16 elements" in str(refused.value)
        assert "dim B = 16..16" in str(refused.value)
