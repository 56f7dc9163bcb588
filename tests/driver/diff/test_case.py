"""A call of machine code in `dlc diff`: the bits of its results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.driver.diff.case import bits, case_of
from dlc.driver.diff.search import run_compiled
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.errors import ModelError
from dlc.runtime.arrays.dtypes import numpy_bfloat16

NARROW = "dlc 1\nexport fn f(x: bf16[3], y: bf16) -> (bf16[3], bf16) = (x + 0.5, y)\n"


def test_results_of_bf16_are_bits_where_numpy_has_the_dtype(tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes")
    path = tmp_path / "model.dlm"
    path.write_text(NARROW)
    call = CallRequest(str(path), inputs={"x": "[1, -2, 0.25]", "y": "3"})
    case, _ = case_of(CompileRequest(str(path)), call)
    results = run_compiled(case)
    expected = case.evaluate(case.open())
    assert [one.dtype for one in results] == [np.uint16, np.uint16]
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_array_of_bfloat16_is_its_bits() -> None:
    pytest.importorskip("ml_dtypes")
    array = np.array([1.0, -2.0], numpy_bfloat16())
    np.testing.assert_array_equal(bits(array), np.array([0x3F80, 0xC000], np.uint16))


def test_a_model_that_compiling_refuses_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.dlm"
    path.write_text("dlc 1\ndim N = 0..4\nexport fn f(x: f32[N]) -> f32[N - 1] = x[1:]\n")
    with pytest.raises(ModelError) as caught:
        case_of(CompileRequest(str(path)), CallRequest(str(path), seed=0))
    assert caught.value.diagnostics[0].code == "D0715"
