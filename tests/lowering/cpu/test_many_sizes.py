"""Kernels with more sizes and strides than a call passes arguments."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest
from dlc.runtime.abi import MAX_ARGS

SHAPES = [tuple([3 + (number >> axis & 1) for axis in range(5)]) for number in range(12)]
"""Of the arrays whose corners are added: twelve with five strides each."""


def corners(*, named: bool) -> str:
    """A text that adds the corners of all arrays, whose sizes may have names."""
    names = {3: "A", 4: "B"} if named else {3: "3", 4: "4"}
    inputs = [
        f"x{number}: f32[{', '.join(names[size] for size in shape)}]"
        for number, shape in enumerate(SHAPES)
    ]
    parts = " + ".join(f"x{number}[:2, :2, :2, :2, :2]" for number in range(12))
    dims = "dim A = 3..9\ndim B = 3..9\n" if named else ""
    return f"dlc 1\n{dims}export fn f({', '.join(inputs)}) -> f32[2, 2, 2, 2, 2] = {parts}"


@pytest.mark.parametrize("named", [False, True])
def test_a_kernel_of_more_sizes_than_a_call_passes_computes_them(named: bool) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.integers(0, 9, shape).astype(np.float32) for shape in SHAPES]
    found = dlc.compile(text=corners(named=named))["f"](*arrays)
    np.testing.assert_array_equal(found, sum(x[:2, :2, :2, :2, :2] for x in arrays))


@pytest.mark.parametrize("named", [False, True])
def test_no_kernel_has_more_arguments_than_a_call_passes(named: bool) -> None:
    loops = show_stage(CompileRequest("m.dlm", text=corners(named=named)), Shown("loop"))
    heads = [line for line in loops.splitlines() if line.lstrip().startswith("^bb0(%first")]
    assert heads
    assert max(head.count(":") for head in heads) <= MAX_ARGS
