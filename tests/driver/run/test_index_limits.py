"""Random integers are indices that there are, as far as the graph tells what they index."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.driver.report.bench import measure
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.index_limits import limits_of
from dlc.driver.run.inputs import random_value
from dlc.driver.run.request import CompileRequest, run_model
from dlc.driver.source.open import open_model
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Input

TEXT = """dlc 1
dim N = 4..100
export fn f(table: f32[5, 3], ids: u8[6], steps: i64[7], rows: f32[N, 2], k: i32[N], n: i32) -> f32 {
  let a = sum(table[i64(ids[::-1])])
  let b = scan step in steps with s = 0.0 { next s = s + table[step, 0] }
  let c = sum(rows[k])
  return a + b + c + f32(n)
}
"""


def test_an_index_is_below_the_size_of_what_it_indexes() -> None:
    module = open_model("model.dlm", text=TEXT).module
    assert limits_of(module, "f") == {"ids": "5", "steps": "5", "k": "N"}


@pytest.mark.parametrize(("limit", "most"), [("3", 2), ("2*B", 5), ("", 9), ("1000", 255)])
def test_random_integers_are_below_the_limit(limit: str, most: int) -> None:
    found = random_value(Input("x", "u8", ("4000",)), {"B": 3}, 0, limit)
    assert Tensor(found).bits.max() == most


def test_calls_on_random_inputs_of_every_command_are_in_range(tmp_path: Path) -> None:
    path = tmp_path / "model.dlm"
    path.write_text(TEXT)
    request = CompileRequest(str(path))
    for seed in range(3):
        call = CallRequest(str(path), seed=seed)
        assert run_model(request, call)[0].values
        assert measure(request, call, seconds=0).calls
