"""Models that skl2onnx and Keras wrote give what scikit-learn and Keras themselves computed.

`recorded/record.py` made the files, which have at most 50 KB each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.source.importing import import_model
from tests.suites import every

Array: TypeAlias = "NDArray[Any]"
RECORDED = Path(__file__).parent / "recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.onnx"))


def recorded(name: str, kind: str) -> list[Array]:
    """The inputs or the outputs of a model, in their order."""
    with np.load(RECORDED / f"{name}.npz") as file:
        return [file[key] for key in sorted(file.files) if key.startswith(kind)]


def check(model: dlc.Model, name: str) -> None:
    """Compare the results of a call with what was recorded."""
    found = model["run" if "run" in model.entry_points else next(iter(model))](
        *recorded(name, "input")
    )
    results = cast("tuple[Array, ...]", found if isinstance(found, tuple) else (found,))
    for result, wanted in zip(results, recorded(name, "output"), strict=False):
        assert result.shape == wanted.shape
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=2e-5)
        else:
            np.testing.assert_array_equal(result, wanted)


def test_there_are_models_of_both() -> None:
    assert len([name for name in NAMES if name.startswith("keras")]) >= 8
    assert len(NAMES) >= 20


@pytest.mark.parametrize("name", every(8, NAMES))
def test_results_are_those_of_the_framework(name: str) -> None:
    check(dlc.compile(RECORDED / f"{name}.onnx"), name)


@pytest.mark.parametrize(
    "name", every(3, ["keras_lstm_torch", "keras_attention_tensorflow", "ridge"])
)
def test_the_text_of_an_import_gives_the_same(name: str, tmp_path: Path) -> None:
    text = tmp_path / f"{name}.dlm"
    import_model(RECORDED / f"{name}.onnx", text)
    check(dlc.compile(text), name)
