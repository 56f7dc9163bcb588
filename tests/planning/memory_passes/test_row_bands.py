"""Depthwise convolutions of large pictures and their neighbours, a band of rows at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_model
from tests.suites import every

TEXT = """dlc 1
import nn (Conv2d)

module Block {{
  use up = Conv2d(4, 512, kernel=1)
  use depth = Conv2d(512, 512, kernel=3, padding=1, stride={stride}, groups=512)
  use down = Conv2d(512, 4, kernel=1)
  fn narrow(x) = x |> up |> relu |> depth |> relu |> down
  export fn f(x: f32[1, 65, 51, 4]) -> f32[1, _, _, 4] = {result}
}}
"""


@pytest.mark.parametrize(
    ("stride", "result"), every(3, [(1, "x + narrow(x)"), (2, "relu(narrow(x))"), (3, "narrow(x)")])
)
def test_no_bit_changes(stride: int, result: str, tmp_path: Path) -> None:
    path = tmp_path / "block.dlm"
    path.write_text(TEXT.format(stride=stride, result=result))
    x = np.random.default_rng(0).standard_normal((1, 65, 51, 4)).astype(np.float32)
    results: list[bytes] = []
    for disabled in (frozenset[str](), frozenset({"row_bands"})):
        settings = Settings(disabled=disabled)
        for threads in (1, 2):
            request = CompileRequest(str(path), weights="init:0", settings=settings)
            model, _ = make_model(request, threads)
            results.append(np.asarray(model.f(x)).tobytes())
    assert len(set(results)) == 1
