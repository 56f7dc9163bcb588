"""IR of every level is a model: what `dlc show` prints at a stage is compiled and evaluated from there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.dialects.limits import read_limits
from dlc.driver.compile.entries import entry_points
from dlc.driver.compile.run_passes import optimise_text
from dlc.driver.compile.settings import Settings
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest, evaluate_model, make_artifact, run_model
from dlc.driver.run.results import Results
from dlc.driver.run.train import make_trainer
from dlc.driver.run.watch import Watch
from dlc.driver.source.stages import stages_of
from dlc.errors import ArtifactError, DlcError, ModelError, Unsupported, UsageError
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Entry
from dlc.runtime.model import load
from dlc.runtime.training.trainer import Trainer
from tests import example_models
from tests.suites import each_value, every

Float: TypeAlias = NDArray[np.float32]
STAGES = ("graph", "kernel", "plan", "loop")
QUICK = ("poly", "softmax")
INITIAL = "init:0"
"""Weights for every example, also those whose files are not in the repository."""
INPUTS = {"char_gpt": {"ids": "text:'First Citizen'"}}
"""For what random numbers would lead astray: its table has a row for each ASCII character only."""

TWO = """\
dlc 1
dim B = 1..64
module Two {
  param w: f32[3, 4] = normal(1)
  param v: f32[3, 4] = normal(1)
  ## The rows, scaled.
  export fn scaled(x: f32[B, 3], by: f32 = 2) -> (y: f32[B, 4], rows: f32[B]) {
    return (y=by * (x @ w), rows=sum(x, axis=1))
  }
  export fn plain(x: f32[B, 3]) -> f32[B, 4] = x @ v
}
"""

ATTENDING = """\
dlc 1
fn seen(q: f32[2, 4, 8], k: f32[2, 4, 8]) -> f32 = sum(attention(q, k, k) * q)
export fn f(q: f32[2, 4, 8], k: f32[2, 4, 8]) -> f32[2, 4, 8] = grad(seen, wrt=q)(q, k)
"""


def example(name: str) -> CompileRequest:
    """An example that is small enough to be compiled again and again."""
    path = example_models.FOLDER / f"{name}.dlm"
    text = path.read_text() + example_models.STAGE if name == "residual" else None
    settings = example_models.SMALLER.get(name, {})
    return CompileRequest(str(path), text=text, parameters=settings, weights=INITIAL)


def results(
    wanted: CompileRequest,
    entry: str | None,
    *,
    interpreted: bool = False,
    inputs: Mapping[str, str] | None = None,
) -> Results:
    request = CallRequest(wanted.path, entry, inputs or {}, seed=0)
    if interpreted:
        return evaluate_model(wanted, request, Watch())[0]
    return run_model(wanted, request)[0]


def bits(found: Results) -> Mapping[str, bytes]:
    return {name: value.bits.tobytes() for name, value in found.named.items()}


def dumped(
    wanted: CompileRequest, stage: str, folder: Path, entry: str | None = None
) -> CompileRequest:
    """What is shown of a model at a stage, as a model."""
    file = folder / f"{stage}.dlir"
    file.write_text(show_stage(wanted, Shown(stage, entry=entry)), encoding="utf-8")
    return CompileRequest(str(file), weights=wanted.weights, trust_ir=True)


def check_levels(name: str, folder: Path) -> None:
    wanted, inputs = example(name), INPUTS.get(name)
    for entry in [op.sym_name for op in entry_points(wanted.open().module)]:
        expected = bits(results(wanted, entry, inputs=inputs))
        for stage in STAGES:
            for alone in (None, entry):
                lowered = dumped(wanted, stage, folder, alone)
                assert lowered.open().stage in (stage, "graph")
                found = bits(results(lowered, entry, inputs=inputs))
                assert found == expected, (entry, stage, alone)


@pytest.mark.parametrize("name", every(2, QUICK))
def test_an_example_gives_the_same_bits_from_every_level(name: str, tmp_path: Path) -> None:
    check_levels(name, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*example_models.NAMES} - {*QUICK}))
def test_a_large_example_gives_the_same_bits_from_every_level(name: str, tmp_path: Path) -> None:
    check_levels(name, tmp_path)


@pytest.mark.parametrize(("name", "stage"), each_value(["softmax", "robust", "poly"], STAGES))
def test_every_level_is_evaluated_to_about_the_same(name: str, stage: str, tmp_path: Path) -> None:
    wanted = example(name)
    for entry in [op.sym_name for op in entry_points(wanted.open().module)]:
        expected = results(wanted, entry).named
        found = results(dumped(wanted, stage, tmp_path), entry, interpreted=True).named
        assert found.keys() == expected.keys()
        for key, value in found.items():
            one, other = value.bits.astype(np.float64), expected[key].bits.astype(np.float64)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> CompileRequest:
    path = tmp_path_factory.mktemp("two") / "two.dlm"
    path.write_text(TWO)
    return CompileRequest(str(path), weights=INITIAL)


@pytest.mark.parametrize("stage", every(2, STAGES))
def test_callers_see_the_same_of_an_artifact_from_any_level(
    two: CompileRequest, stage: str, tmp_path: Path
) -> None:
    first = make_artifact(two).artifact.manifest
    found = make_artifact(dumped(two, stage, tmp_path), stage=stage).artifact.manifest
    assert found.entries == first.entries
    assert [row.name for row in found.weights] == [row.name for row in first.weights]


@pytest.mark.parametrize("stage", every(2, STAGES))
def test_other_weights_are_given_to_an_artifact_from_any_level(
    two: CompileRequest, stage: str, tmp_path: Path
) -> None:
    make_artifact(dumped(two, stage, tmp_path)).artifact.write(tmp_path / "two.dlc")
    x = np.eye(3, dtype=np.float32)
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    with load(tmp_path / "two.dlc").with_weights({"w": w, "v": -w}) as model:
        assert np.array_equal(np.asarray(model.plain(x)), -w)
        y, _ = cast("tuple[Float, Float]", model.scaled(x))
        assert np.array_equal(y, 2 * w)


def entry_of(wanted: CompileRequest) -> Entry:
    (entry,) = make_artifact(wanted).artifact.manifest.entries
    return entry


@pytest.mark.parametrize("stage", every(2, STAGES))
def test_one_entry_point_comes_with_its_weights_and_kernels(
    two: CompileRequest, stage: str, tmp_path: Path
) -> None:
    alone = dumped(two, stage, tmp_path, "plain")
    assert entry_of(alone).name == "plain"
    assert bits(results(alone, None)) == bits(results(two, "plain"))


def test_the_level_is_that_of_the_highest_operation(two: CompileRequest, tmp_path: Path) -> None:
    for stage in STAGES:
        assert stages_of(dumped(two, stage, tmp_path).open().module) == (stage,)


def test_a_graph_without_operations_is_also_one_of_kernels(tmp_path: Path) -> None:
    same = CompileRequest("same.dlm", text="dlc 1\nexport fn same(x: f32[2]) -> f32[2] = x\n")
    lowered = dumped(same, "kernel", tmp_path)
    assert stages_of(lowered.open().module) == ("graph", "kernel")
    for stage in ("graph", "kernel"):
        make_artifact(lowered, stage=stage)


@pytest.mark.parametrize(("at", "said"), [("kernel", "graph"), ("graph", "plan"), ("loop", "plan")])
def test_a_level_that_is_said_and_another_that_is_found_are_a_mistake(
    two: CompileRequest, at: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"{at}.dlir is at {at} level, not at {said}") as caught:
        make_artifact(dumped(two, at, tmp_path), stage=said)
    assert caught.value.diagnostics[0].code == "D0905"


def test_kernels_that_were_written_for_a_gpu_are_refused_by_name_for_the_cpu(
    tmp_path: Path,
) -> None:
    attending = CompileRequest("a.dlm", text=ATTENDING, settings=Settings(target="cuda:sm_80"))
    path = tmp_path / "kernels.dlir"
    path.write_text(show_stage(attending, Shown("kernel")))
    with pytest.raises(Unsupported) as caught:
        make_artifact(CompileRequest(str(path), trust_ir=True))
    assert [found.code for found in caught.value.diagnostics] == ["D0701", "D0701"]
    assert "kernel.attention_gradient was written for a GPU" in str(caught.value)


def test_a_level_that_does_not_exist_is_refused(two: CompileRequest) -> None:
    with pytest.raises(UsageError, match="there is no stage 'soup' of IR"):
        make_artifact(two, stage="soup")


def test_values_of_a_plan_are_not_watched(two: CompileRequest, tmp_path: Path) -> None:
    request = CallRequest("plan.dlir", "plain", seed=0)
    with pytest.raises(UsageError, match="memory has no values of its own to watch"):
        evaluate_model(dumped(two, "plan", tmp_path), request, Watch(check_nan=True))


@pytest.mark.parametrize("stage", STAGES)
def test_only_a_graph_is_compiled_from_an_artifact_that_is_not_trusted(
    two: CompileRequest, stage: str, tmp_path: Path
) -> None:
    file = tmp_path / "foreign.dlc"
    make_artifact(dumped(two, stage, tmp_path)).artifact.write(file)
    foreign = CompileRequest(str(file), untrusted=True)
    if stage == "graph":
        assert bits(results(foreign, "plain")) == bits(results(two, "plain"))
        return
    with pytest.raises(ArtifactError, match="may use any memory") as caught:
        results(foreign, "plain")
    assert caught.value.diagnostics[0].code == "D0616"


@pytest.mark.parametrize("stage", STAGES)
def test_an_artifact_keeps_the_ir_that_it_was_made_from(
    two: CompileRequest, stage: str, tmp_path: Path
) -> None:
    file = tmp_path / "two.dlc"
    make_artifact(dumped(two, stage, tmp_path)).artifact.write(file)
    assert ("plan" in Artifact.read(file).sections) == (stage != "loop")
    assert CompileRequest(str(file)).open().stage == stage
    again = CompileRequest(str(file), weights=INITIAL, trust_ir=True)
    assert bits(results(again, "plain")) == bits(results(two, "plain"))


@pytest.mark.parametrize("stage", every(2, STAGES))
def test_general_passes_run_at_every_level_and_change_no_number(
    two: CompileRequest, stage: str
) -> None:
    text = show_stage(two, Shown(stage))
    optimise_text(text, "canonicalize,cse,dce", file="two.dlir", verify_each=True)
    assert optimise_text(text, "", file="two.dlir") == text


def test_what_a_text_promises_holds_for_one_entry_point_too(tmp_path: Path) -> None:
    promising = CompileRequest("f.dlm", text=TWO.replace("dlc 1\n", "dlc 1\nlimit deterministic\n"))
    for stage in STAGES:
        alone = dumped(promising, stage, tmp_path, "plain")
        module = alone.open().module
        assert [limit.name for limit in read_limits(module)] == ["deterministic"]
        assert [op.sym_name for op in entry_points(module)] == ["plain"]
        make_artifact(alone)


TRAINED = """\
dlc 1
dim B = 1..64
module Line {
  param w: f32[3] = normal(1)
  fn at(x: f32[B, 3]) -> f32[B] = x @ w
}
train Line {
  data = npz("points.npz", x="x", y="y")
  loss(x: f32[B, 3], y: f32[B]) = mean((at(x) - y) ** 2)
  optimizer = sgd(lr=0.1)
  batch = 4
  epochs = 2
  seed = 3
}
"""


@pytest.mark.parametrize("stage", every(2, STAGES))
def test_a_model_that_trains_does_so_from_any_level(stage: str, tmp_path: Path) -> None:
    points = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    np.savez(tmp_path / "points.npz", x=points[:, :3], y=points[:, 3])
    (tmp_path / "line.dlm").write_text(TRAINED)
    trainer, _ = make_trainer(CompileRequest(str(tmp_path / "line.dlm")))
    trainer.save(tmp_path / "line.dlc")
    lowered = dumped(CompileRequest(str(tmp_path / "line.dlc")), stage, tmp_path)
    again = Trainer(make_artifact(replace(lowered, weights="init:3")).artifact, folder=tmp_path)
    for one in (trainer, again):
        one.fit()
    assert again.history == trainer.history
    assert np.array_equal(again.trained()["w"], trainer.trained()["w"])


def test_a_training_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wrong.dlir"
    file.write_text('"builtin.module"() ({}) {dlc.training = "{}"} : () -> ()')
    with pytest.raises(ModelError, match="does not say how a model trains"):
        CompileRequest(str(file)).open()


@pytest.mark.parametrize(
    ("stage", "step"),
    [
        *every(2, [("kernel", 6), ("kernel", 2)]),
        *every(2, [("plan", 4), ("plan", 2)]),
        *every(2, [("loop", 35), ("loop", 7)]),
    ],
)
def test_wrong_ir_fails_with_an_error_of_its_own_when_it_is_evaluated(
    stage: str, step: int, tmp_path: Path
) -> None:
    """Of the numbers of a text, each `step`-th becomes another."""
    model = str(example_models.FOLDER / "softmax.dlm")
    text = show_stage(CompileRequest(model), Shown(stage))
    path = tmp_path / "wrong.dlir"
    codes: set[str] = set()
    for number in list(re.finditer(r"\b\d+\b", text))[::step]:
        for other in ("0", "2", "999"):
            path.write_text(text[: number.start()] + other + text[number.end() :], "utf-8")
            try:
                evaluate_model(CompileRequest(str(path)), CallRequest(str(path), seed=1), Watch())
            except DlcError as error:
                codes.add(error.diagnostics[0].code)
    assert "D0999" not in codes
    assert stage == "kernel" or "D0164" in codes
