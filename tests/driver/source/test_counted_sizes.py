"""Entry points whose results have sizes that the call counts: declared, called, saved, at every level."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.dialects.measured import measuring
from dlc.driver.compile.entries import find_function
from dlc.driver.compile.settings import Settings
from dlc.driver.report.check import check_model
from dlc.driver.report.inspect import inspect_file
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest, evaluate_model, make_artifact, run_model
from dlc.driver.run.watch import Watch
from dlc.driver.source.open import read_ir
from dlc.errors import CallError, ModelError, Unsupported
from dlc.runtime.artifact.spelling import dims_text
from dlc.runtime.calling.signature import signature_text
from dlc.runtime.model import Model, load

Floats: TypeAlias = NDArray[np.float32]
STAGES = ("graph", "kernel", "plan", "loop")
TEXT = """\
dlc 1
dim B = 1..64
## Where something stands, and how often.
export fn places(x: f32[B]) -> (idx: i64[_, 1], n: i64) {
  let (idx, n) = nonzero(x)
  return (idx=idx, n=n)
}
## Rows, and sums of some of them, of which nobody says how many there are.
export fn rows(x: f32[B, 3]) -> (kept: f32[_, 3], large: f32[_], both: f32[_], total: f32[3]) {
  let kept = compress(x, sum(x, axis=1) > 0)
  let sums = sum(kept, axis=1)
  let large = compress(sums, sums > 1)
  return (kept=2 * kept, large=large, both=concat([large, sums], axis=0), total=sum(kept, axis=0))
}
export fn few(x: f32[B]) -> i64[_, 1] {
  let (idx, n) = nonzero(x, bound=3)
  return idx
}
"""
X = np.asarray([[1, 2, 3], [-1, 0, 0], [0.25, 0.25, 0.25], [0, 0, 0]], np.float32)
KEPT = X[[0, 2]]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> CompileRequest:
    path = tmp_path_factory.mktemp("counted") / "counted.dlm"
    path.write_text(TEXT)
    return CompileRequest(str(path))


def check_rows(found: object) -> None:
    kept, large, both, total = map(np.asarray, cast("tuple[Floats, ...]", found))
    np.testing.assert_array_equal(kept, 2 * KEPT)
    np.testing.assert_array_equal(large, [6])
    np.testing.assert_array_equal(both, [6, 6, 0.75])
    np.testing.assert_array_equal(total, KEPT.sum(axis=0))


def check_calls(model: Model) -> None:
    """Results are as large as what was counted: some, nothing, and all that there is room for."""
    check_rows(model.rows(X))
    for x, where in ((X[0] - 2, [[0], [2]]), (np.zeros(5, np.float32), [])):
        idx, n = cast("tuple[NDArray[np.int64], np.int64]", model.places(x))
        assert (idx.shape, idx.tolist(), int(n)) == ((len(where), 1), where, len(where))
    assert np.asarray(model.few(np.ones(3, np.float32))).shape == (3, 1)


def test_a_caller_gets_as_much_as_was_counted(wanted: CompileRequest, tmp_path: Path) -> None:
    artifact = make_artifact(wanted).artifact
    artifact.write(tmp_path / "counted.dlc")
    for model in (Model(artifact), load(tmp_path / "counted.dlc")):
        check_calls(model)


@pytest.mark.parametrize("stage", STAGES)
def test_every_level_counts_the_same(wanted: CompileRequest, stage: str, tmp_path: Path) -> None:
    file = tmp_path / f"{stage}.dlir"
    file.write_text(show_stage(wanted, Shown(stage)))
    lowered = CompileRequest(str(file), trust_ir=True)
    artifact = make_artifact(lowered, stage=stage).artifact
    assert artifact.manifest.entries == make_artifact(wanted).artifact.manifest.entries
    check_calls(Model(artifact))
    request = CallRequest(str(file), "rows", inputs={"x": str(X.tolist())})
    for results, _ in (evaluate_model(lowered, request, Watch()), run_model(lowered, request)):
        check_rows(tuple(value.bits for value in results.named.values()))


def test_the_bound_is_shown_where_a_model_is_described(
    wanted: CompileRequest, tmp_path: Path
) -> None:
    make_artifact(wanted).artifact.write(tmp_path / "counted.dlc")
    for path in (wanted.path, str(tmp_path / "counted.dlc")):
        places, rows, few = inspect_file(CompileRequest(path)).entries
        assert signature_text(places) == "places(x: f32[B]) -> (idx: i64[n, 1], n: i64)"
        assert dims_text(places.dims) == "B = 1..64, n = 0..B"
        assert dims_text(rows.dims) == "B = 1..64, n = 0..B, n_1 = 0..B"
        assert dims_text(few.dims) == "B = 1..64, n = 0..3"
    assert [entry.name for entry in check_model(wanted).entries] == ["places", "rows", "few"]


def test_memory_for_what_is_not_counted_yet_is_refused(wanted: CompileRequest) -> None:
    model = Model(make_artifact(wanted).artifact)
    with pytest.raises(CallError, match="out= cannot be used: a size is known only after the call"):
        model.few(np.ones(3, np.float32), out=np.zeros((3, 1), np.int64))


def test_more_than_the_bound_fails_the_call(wanted: CompileRequest) -> None:
    model = Model(make_artifact(wanted).artifact)
    with pytest.raises(CallError, match="the computed size 4 exceeds its bound 3"):
        model.few(np.ones(4, np.float32))


def refused(result: str) -> str:
    text = f"dlc 1\ndim B = 1..64\ndim K = 0..64\nexport fn f(x: f32[B]) {result}\n"
    with pytest.raises(ModelError) as caught:
        CompileRequest("f.dlm", text=text).open()
    return caught.value.render()


def test_a_size_that_is_counted_has_no_name_in_a_type() -> None:
    said = refused("-> f32[K] = compress(x, x > 0)")
    assert "f32[n] returned where f32[K] is expected" in said
    assert "write _ for a size that is only known when its elements have been counted" in said


def test_a_missing_type_is_said_as_it_is_written() -> None:
    assert "it is f(...) -> f32[_, B]" in refused("= compress(x * x[:, new], x > 0)")
    assert "it is f(...) -> (places: i64[_, 1], count: i64)" in refused("= nonzero(x)")


TWICE = """\
dlc 1
export fn f(x: f32[3] = [1, 2, 0]) -> (y: f32, kept: f32[_], n: i64) {
  let (places, n) = nonzero(x > 0)
  let kept = x[places[:, 0]]
  let there = if sum(x) > 9 then 0.0 else f32(nonzero(x)[1])
  return (y=sum(kept * kept) / f32(n) + there, kept=kept, n=n)
}
"""


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_derivative_beside_what_is_counted_counts_apart(level: int) -> None:
    """Of y = (1 + 4) / 2 + 2 it is 2 x / 2 where x is counted."""
    wanted = CompileRequest("m.dlm", TWICE, settings=Settings(level), gradient=(None, "y", "x"))
    opened = wanted.open()
    assert list(measuring(find_function(opened.module, "f"))) == ["n", "n_1", "n_2", "n_1_1"]
    request = CallRequest("m.dlm")
    for results, _ in (evaluate_model(wanted, request, Watch()), run_model(wanted, request)):
        y, kept, n, gradient = [value.bits for value in results.named.values()]
        assert (float(y), kept.tolist(), int(n)) == (4.5, [1, 2], 2)
        assert gradient.tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    "counted",
    [
        "if sum(x) > 9 then 0.0 else sum(x[nonzero(x)[0][:, 0]])",
        "sum(scan r in stack([x, x]) { yield sum(sin(r[nonzero(r)[0][:, 0]])) })",
    ],
    ids=["branch", "loop"],
)
def test_what_is_counted_inside_is_not_kept_for_a_derivative(counted: str) -> None:
    text = f"dlc 1\nexport fn f(x: f32[3]) -> f32 {{\n  return {counted}\n}}\n"
    with pytest.raises(Unsupported, match=r"(?s)D0716.*is counted in a branch or a loop.*m.dlm:3"):
        make_artifact(CompileRequest("m.dlm", text, gradient=(None, "f", "x")))


def test_a_size_is_counted_once() -> None:
    counted = '"array.nonzero"(%x) <{dim = "n"}> : (tensor<3xf32>) -> '
    counted += '(tensor<?x1xi64, #dlc.dims<"n, 1">>, tensor<i64>)'
    text = (
        '"func.func"() <{sym_name = "f", function_type = (tensor<3xf32>) -> tensor<i64>}> ({\n'
        f"^bb0(%x: tensor<3xf32>):\n  %a:2 = {counted}\n  %b:2 = {counted}\n"
        '  "func.return"(%b#1) : (tensor<i64>) -> ()\n}) : () -> ()\n'
    )
    with pytest.raises(ModelError, match="counts n, which another operation counts already"):
        read_ir(text, "f.dlir")
