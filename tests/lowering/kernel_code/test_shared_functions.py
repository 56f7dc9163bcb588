"""Kernels that differ in sizes, lengths and distances only are one function."""

from __future__ import annotations

import pytest

from dlc.dialects import loop
from dlc.driver.compile.compile import lower
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model

LAYERS = {
    "winograd": (
        "export fn {name}(x: f32[1, 28, 28, {n}], w: f32[3, 3, {n}, {n}]) -> f32[1, 28, 28, {n}] ="
        " conv(x, w, padding=1)",
        (64, 128),
    ),
    "packed rows": (
        "export fn {name}(x: f32[{n}, 512]) -> f32[{n}, 512] = x @ weight",
        (60, 196),
    ),
    "blocks of a product": (
        "export fn {name}(x: f32[96, {n}], w: f32[{n}, 640]) -> f32[96, 640] = x @ w",
        (1024, 1152),
    ),
    "blocks of a sum": (
        "export fn {name}(x: f32[600, {n}, 20]) -> f32[20] = sum(x, axis=(0, 1))",
        (16, 64),
    ),
    "distance": (
        "export fn {name}(x: f32[{n}, 40]) -> f32[60, 40] = concat([x, sin(x[0:60 - {n}])], axis=0)",
        (31, 44),
    ),
    "padding": (
        "export fn {name}(x: f32[50, 50]) -> f32[50 + {n}, 50] = sin(pad(x, [({n}, 0), (0, 0)]))",
        (3, 7),
    ),
}
"""A layer, and two sizes."""


def functions(layer: str, *sizes: int) -> int:
    """The functions of a program with this layer in each of the sizes."""
    entries = [LAYERS[layer][0].format(name=f"f{n}", n=n) for n in sizes]
    lines = ["dlc 1", "module Layers {", "param weight: f32[512, 512]", *entries, "}", ""]
    model = open_model("sizes.dlm", text="\n".join(lines))
    settings = Settings(target="cpu:x86-64-v3", matmul="generated", conv="winograd")
    module = lower(model, settings, "loop").model.module
    return sum(isinstance(op, loop.Func) for op in module.walk())


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_of_two_sizes_have_the_functions_of_one(layer: str) -> None:
    one, other = LAYERS[layer][1]
    assert functions(layer, one, other) == functions(layer, one) == functions(layer, other)
