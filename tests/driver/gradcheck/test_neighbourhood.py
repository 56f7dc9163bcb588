"""A function around a point: what is computed again when an argument moves, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.driver.compile.entries import find_function
from dlc.driver.gradcheck.neighbourhood import Neighbourhood
from dlc.driver.run.request import CompileRequest
from dlc.ir.core import Array, Value


class Watched(Neighbourhood):
    """Remembers the operations that were computed."""

    def __init__(self, text: str, *point: Array) -> None:
        self.names: list[str] = []
        body = find_function(CompileRequest("model.dlm", text=text).open().module, None).body
        super().__init__(body, point, {})

    def see(self, value: Value, array: Array) -> None:
        if value.op is not None:
            self.names.append(value.op.name)


def test_a_round_that_only_the_move_leads_to_is_no_place_for_a_slope() -> None:
    around = Watched(
        "dlc 1\nexport fn f(x: f64) -> f64 =\n"
        "  while y < 1 with y = x limit 9 { next y = y + stop_gradient(y) / y }\n",
        np.asarray(0.5),
    )
    assert around.here == 1.5
    assert around.moved(0, np.asarray(0.8)) == 0.8 + 0.5 / 0.8
    assert np.isnan(around.moved(0, np.asarray(-0.2)))


def test_what_the_moved_argument_does_not_reach_is_computed_once() -> None:
    around = Watched(
        "dlc 1\nexport fn f(x: f64[4], y: f64[4]) -> f64 = sum(exp(x)) + sum(sin(y) * y)\n",
        np.ones(4),
        np.ones(4),
    )
    around.names.clear()
    assert around.moved(0, np.zeros(4)) == pytest.approx(4 + 4 * np.sin(1), rel=1e-15)
    assert around.names == ["array.exp", "array.reduce_sum", "array.add"]
