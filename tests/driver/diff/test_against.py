"""Networks from PyTorch with one layer changed, against the values of the original.

`recorded` has each network as `dlc import` wrote it after the change, the values that PyTorch 2 computed
with the original for these inputs, by the path of the module, and the module that was changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver.diff.against import Comparison, compare_with, with_file
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.errors import UsageError
from tests.suites import every

RECORDED = Path(__file__).parent / "recorded"
NETWORKS = sorted(path.stem for path in RECORDED.glob("*.dlm"))
MODEL = "dlc 1\nexport fn f(x: f32[3]) -> f32[3] {\n  let h = tanh(x)\n  return exp(h) - h\n}\n"


def compared(model: Path, against: str, inputs: Path) -> Comparison:
    request = CompileRequest(str(model))
    return compare_with(request, with_file(request, CallRequest(str(model)), str(inputs)), against)


@pytest.mark.parametrize("name", every(4, NETWORKS))
def test_the_changed_layer_is_named(name: str) -> None:
    inputs = RECORDED / f"{name}.inputs.npz"
    found = compared(RECORDED / f"{name}.dlm", str(RECORDED / f"{name}.npz"), inputs)
    layer = str(np.load(inputs)["layer"])
    departs = cast("dict[str, object]", found.data["departs"])
    assert layer in str(departs["other"])


def test_ten_networks_are_compared() -> None:
    assert len(NETWORKS) == 10


def recorded(
    folder: Path, **values: NDArray[np.float32]
) -> tuple[CompileRequest, CallRequest, str]:
    """The model with inputs, against these values."""
    (folder / "model.dlm").write_text(MODEL)
    np.savez(folder / "values.npz", **values)  # pyright: ignore[reportArgumentType]
    path = str(folder / "model.dlm")
    return (
        CompileRequest(path),
        CallRequest(path, inputs={"x": "[1, 2, 3]"}),
        str(folder / "values.npz"),
    )


def test_equal_values_agree(tmp_path: Path) -> None:
    h = np.tanh(np.array([1, 2, 3], np.float32))
    found = compare_with(*recorded(tmp_path, h=h, f=np.exp(h) - h))
    assert found.error is None
    assert found.data["compared"] == 2


def test_the_last_step_of_a_value_in_a_loop_is_compared(tmp_path: Path) -> None:
    model, values = tmp_path / "loop.dlm", tmp_path / "values.npz"
    model.write_text(
        "dlc 1\nexport fn f(x: f32[3]) -> f32 = scan row in x with s = 0.0 { next s = s + row }\n"
    )
    request, call = CompileRequest(str(model)), CallRequest(str(model), inputs={"x": "[1, 2, 3]"})
    rows, sums = np.array([1, 2, 3], np.float32), np.array([0, 1, 3], np.float32)
    np.savez(values, row=rows, s=sums, f=np.float32(6))
    assert compare_with(request, call, str(values)).data["compared"] == 3
    np.savez(values, row=np.array([1, 2, 4], np.float32))
    assert compare_with(request, call, str(values)).error is not None


def test_another_value_departs(tmp_path: Path) -> None:
    h = np.sin(np.array([1, 2, 3], np.float32))
    found = compare_with(*recorded(tmp_path, h=h))
    assert found.error is not None
    assert "departs" in found.text
    assert "model.dlm:3:11" in found.text


def test_an_input_that_departs_is_told_as_one(tmp_path: Path) -> None:
    found = compare_with(*recorded(tmp_path, x=np.array([1, 2, 4], np.float32)))
    assert found.error is not None
    assert "x is an input: give the numbers" in str(found.error)


def test_levels_agree(tmp_path: Path) -> None:
    request, call_request, _ = recorded(tmp_path)
    assert compare_with(request, call_request, "-O0").error is None


def test_what_is_nothing_to_compare_with_is_refused(tmp_path: Path) -> None:
    request, call_request, _ = recorded(tmp_path)
    with pytest.raises(UsageError, match="nothing to compare with"):
        compare_with(request, call_request, "values.txt")
