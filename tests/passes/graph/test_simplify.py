"""The order of passes, and what those of the graph make of derivatives."""

from __future__ import annotations

import pytest

from dlc.driver.compile.compile import lower
from dlc.driver.compile.pipelines import REASONS, pipeline
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.ir.passes import check_order, parse_passes
from dlc.text.ir.printer import print_module


def count(text: str, name: str) -> int:
    return text.count(f'"array.{name}"')


def test_a_pipeline_that_breaks_a_reason_is_refused() -> None:
    with pytest.raises(AssertionError, match="results of kernels"):
        check_order(parse_passes("plan_memory,lower_to_kernels"), REASONS)


def test_every_level_has_a_pipeline() -> None:
    assert pipeline("graph", "graph", 0) == parse_passes(
        "place,mixed_precision,autodiff,place,partition"
    )
    assert set(pipeline("graph", "loop", 0)) < set(pipeline("graph", "loop", 2))


POLY = """dlc 1
fn poly(x: f32[2, 2]) = 3 * x ** 2 + 2 * x + 3
export fn dy(x: f32[2, 2]) -> f32[2, 2] = vjp(poly, wrt=x)(x, dy=ones([2, 2]))
fn total(x: f32[2, 2]) -> f32 = sum(sin(x))
export fn slope(x: f32[2, 2]) -> f32[2, 2] = grad(total, wrt=x)(x)
"""


def test_gradients_of_the_classic_programs_are_as_short_as_by_hand() -> None:
    opened = open_model("poly.dlm", text=POLY)
    lower(opened, Settings(), "graph")
    polynomial, sine = print_module(opened.module).split('sym_name = "slope"')
    assert (count(polynomial, "multiply"), count(polynomial, "add")) == (1, 1)
    assert "value = 6.0" in polynomial
    assert (count(sine, "cos"), count(sine, "multiply")) == (1, 0)
