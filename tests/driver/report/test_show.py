"""`dlc show`: one entry point at every stage, and nothing of the others."""

from __future__ import annotations

import pytest

from dlc.driver.compile.settings import Settings
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.open import read_ir
from dlc.errors import ModelError
from dlc.text.ir.printer import print_module

TWO = """\
dlc 1
export fn tripled(x: f32[4]) -> f32[4] = 3 * x
export fn floored(x: f32[4]) -> f32[4] = floor(x)
"""


def shown(stage: str, entry: str | None) -> str:
    settings = Settings(target="cpu:x86-64-v3")
    return show_stage(
        CompileRequest("two.dlm", text=TWO, settings=settings), Shown(stage, entry=entry)
    )


@pytest.mark.parametrize(
    ("stage", "of_tripled", "of_floored"),
    [
        ("graph", "array.multiply", "array.floor"),
        ("kernel", "scalar.multiply", "scalar.floor"),
        ("plan", "scalar.multiply", "scalar.floor"),
        ("loop", "vec.broadcast", "scalar.floor"),
        ("llvm", "fmul", "llvm.floor"),
        ("asm", "vmulps", "vroundps"),
    ],
)
def test_an_entry_point_is_shown_without_the_others(
    stage: str, of_tripled: str, of_floored: str
) -> None:
    both, first = shown(stage, None), shown(stage, "tripled")
    assert of_tripled in both and of_floored in both
    assert of_tripled in first and of_floored not in first


@pytest.mark.parametrize("stage", ["graph", "kernel", "plan", "loop"])
def test_what_is_shown_of_one_entry_point_is_read_again(stage: str) -> None:
    text = shown(stage, "tripled")
    module = read_ir(text, "tripled.dlir")
    assert "\n".join(print_module(op) for op in module.body) == text


def test_operations_that_follow_each_other_are_verified_as_one_module() -> None:
    text = shown("graph", "tripled")
    with pytest.raises(ModelError, match="tripled"):
        read_ir(text + text, "twice.dlir")


def test_bounds_of_sizes_are_narrowed_before_a_stage_is_shown() -> None:
    text = "dlc 1\ndim N = 1..64\nexport fn f(x: f32[N]) -> f32[N] = softmax(x)\n"
    request = CompileRequest("narrowed.dlm", text=text, settings=Settings(dims={"N": (8, 8)}))
    assert 'dlc.dims = ["N = 8..8"]' in show_stage(request, Shown("graph"))
