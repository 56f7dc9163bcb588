"""Weight files of others: other float dtypes, several files by their index, arrays that nobody uses."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import DlcError, DlcWarning, ModelError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor

TEXT = """dlc 1
module Net(F: dtype = f32) {
  param w: F[2, 3] = zeros()
  param b: F[3] = zeros()
  export fn f(x: F[2]) -> F[3] = x @ w + b
}
"""
VALUES = np.arange(6).reshape(2, 3) / 3


def written(folder: Path, dtype: str, **more: Tensor) -> str:
    tensors = {"w": Tensor(VALUES, dtype), "b": Tensor(np.ones(3), dtype), **more}
    safetensors.write(folder / "net.safetensors", tensors)
    return str(folder / "net.safetensors")


def sharded(folder: Path) -> Path:
    for name, values in (("w", VALUES), ("b", np.ones(3))):
        safetensors.write(folder / f"{name}.safetensors", {name: Tensor(values, "bf16")})
    weight_map = {"w": "w.safetensors", "b": "b.safetensors"}
    path = folder / "net.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 18}, "weight_map": weight_map}))
    return path


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_narrow_floats_are_widened_without_asking(tmp_path: Path, dtype: str) -> None:
    path = written(tmp_path, dtype)
    exact = np.asarray(Tensor(VALUES, dtype).values(), np.float32)
    model = dlc.compile(text=TEXT, weights=path)
    assert (np.asarray(model.weights["w"]) == exact).all()
    other = dlc.compile(text=TEXT, weights="init:0").with_weights(path)
    assert (np.asarray(other.weights["w"]) == exact).all()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_wide_floats_are_rounded_on_request_only(tmp_path: Path, dtype: str) -> None:
    path = written(tmp_path, "f32")
    settings: dict[str, int | str] = {"F": dtype}
    with pytest.raises(ModelError, match=r"(?s)D0505.*write narrow:FILE for the file to round"):
        dlc.compile(text=TEXT, settings=settings, weights=path)
    model = dlc.compile(text=TEXT, settings=settings, weights=f"narrow:{path}")
    rounded = Tensor(VALUES, dtype).tolist()
    assert Tensor(model.weights["w"]).tolist() == rounded
    again = model.with_weights(f"narrow:{path}")
    assert Tensor(again.weights["w"]).tolist() == rounded


def test_integers_are_never_converted(tmp_path: Path) -> None:
    tensors = {"w": Tensor(np.ones((2, 3), np.int32)), "b": Tensor(np.ones(3), "f32")}
    safetensors.write(tmp_path / "net.safetensors", tensors)
    for prefix in ("", "narrow:"):
        with pytest.raises(ModelError, match="D0505"):
            dlc.compile(text=TEXT, weights=f"{prefix}{tmp_path / 'net.safetensors'}")


def test_several_files_are_found_by_their_index(tmp_path: Path) -> None:
    model = dlc.compile(text=TEXT, weights=sharded(tmp_path))
    assert Tensor(model.weights["w"]).tolist() == Tensor(VALUES, "bf16").tolist()
    text = TEXT.replace("(F: dtype = f32)", '(F: dtype = f32) from "net.safetensors.index.json"')
    (tmp_path / "net.dlm").write_text(text)
    assert Tensor(dlc.compile(tmp_path / "net.dlm").weights["b"]).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "not JSON"),
        ("[]", "no weight_map"),
        ('{"weight_map": {"w": 3, "b": "b.safetensors"}}', "no .safetensors file"),
        (
            '{"weight_map": {"w": "b.safetensors", "b": "b.safetensors"}}',
            "w is not in b.safetensors",
        ),
        ('{"weight_map": {"w": "../b.safetensors", "b": "b.safetensors"}}', "may lead out"),
    ],
)
def test_a_damaged_index_is_refused(tmp_path: Path, index: str, message: str) -> None:
    path = sharded(tmp_path)
    path.write_text(index)
    with pytest.raises(DlcError, match=message):
        dlc.compile(text=TEXT, weights=path)


def test_arrays_that_nobody_uses_are_named_again_where_the_code_comes_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLC_CACHE", str(tmp_path / "cache"))
    path = written(tmp_path, "f32")
    # What no entry point reads is a weight of the model all the same.
    text = TEXT.replace("  export", "  param c: f32[1] = ones()\n  export")
    safetensors.write(
        Path(path),
        {
            "w": Tensor(VALUES, "f32"),
            "b": Tensor(np.ones(3), "f32"),
            "c": Tensor(np.ones(1), "f32"),
            "old": Tensor(np.zeros(1), "f32"),
        },
    )
    for recalled in (False, True):
        with pytest.warns(DlcWarning) as told:
            made = make_artifact(CompileRequest("net.dlm", text=text, weights=str(path)))
        assert made.report.recalled == recalled
        assert [str(each.message) for each in told] == [f"{path}: the model does not use old"]


def test_arrays_that_nobody_uses_are_named_once(tmp_path: Path) -> None:
    more = {f"old.{k}": Tensor(np.zeros(1), "f32") for k in range(7)}
    path = written(tmp_path, "f32", **more)
    names = "old.0, old.1, old.2, old.3, old.4 and 2 more"
    model = dlc.compile(text=TEXT, weights="init:0")
    arrays = {**{name: array.numpy() for name, array in more.items()}, **model.weights}
    for call, where in (
        (lambda: dlc.compile(text=TEXT, weights=path), path),
        (lambda: dlc.compile(text=TEXT, weights=arrays), "the arrays given"),
        (lambda: model.with_weights(path), path),
    ):
        with pytest.warns(DlcWarning) as told:
            call()
        (warning,) = told
        assert str(warning.message) == f"{where}: the model does not use {names}"
        assert warning.filename == __file__, "it is told where dlc is called"


def test_what_only_training_needs_is_no_array_that_nobody_uses(tmp_path: Path) -> None:
    more = {"$optimizer.w.m": Tensor(np.zeros(1), "f32")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dlc.compile(text=TEXT, weights=written(tmp_path, "f32", **more))
