"""Calls by ranks that have parts of the weights, as the text splits them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.dialects import array
from dlc.driver.compile import compile as compile_module
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import ArtifactError, ModelError, NumbersDiffer
from dlc.ir.core import Op
from dlc.ir.passes import Context
from dlc.ir.rewrite import EQUAL
from dlc.passes.sharding.partition import partition
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.weight_splits import SECTION, source_bytes, splits_bytes
from dlc.runtime.model import Model
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from tests.suites import every

TEXT = """\
dlc 1
MESH
dim B = 1..64

module Block(D = 64) {
  param up: f32[D, 4 * D] split (none, model) = normal(0.05)
  param down: f32[4 * D, D] = normal(0.05)
  param bias: f32[D] = normal(1)
  fn call(x: f32[B, D]) -> f32[B, D] = x + gelu(x @ up) @ down + bias
}

module Net() {
  use blocks = 3 * Block()
  param words: f32[40, 64] split (model, none) = normal(1)
  export fn predict(ids: i32[B]) -> f32[B, 64] = scan b in blocks with h = words[ids] { next h = b(h) }
  export fn whole(x: f32[8, 64]) -> f32[8, 64] = scan b in blocks with h = x { next h = b(h) }
}
"""
IDS = np.random.default_rng(1).integers(0, 40, 8).astype(np.int32)
X = np.random.default_rng(2).standard_normal((8, 64), np.float32)


def text(mesh: str) -> str:
    found = TEXT.replace("MESH", f"mesh {mesh}" if mesh else "")
    return (
        found
        if mesh
        else found.replace("split (none, model)", "").replace("split (model, none)", "")
    )


def made(mesh: str, ranks: int, **more: Any) -> Artifact:  # noqa: ANN401 - parts of a request
    request = CompileRequest("net.dlm", text=text(mesh), weights="init:1", ranks=ranks, **more)
    return make_artifact(request).artifact


@pytest.mark.parametrize(
    ("mesh", "axes"),
    every(
        2,
        [
            ("data = 2, model = 2", {"data": 2, "model": 2}),
            ("model = 4", {"model": 4}),
            ("model = 2, data = 1", {"model": 2, "data": 1}),
        ],
    ),
)
def test_each_rank_has_its_parts_and_the_whole_results(mesh: str, axes: dict[str, int]) -> None:
    alone: Any = dlc.compile(text=text(""), weights="init:1")
    artifact = made(mesh, Mesh(axes).size)

    def work(at: SimulatedRanks) -> tuple[Any, ...]:
        model: Any = Model(artifact, threads=1, comm=at)
        results = model.predict(IDS), model.whole(X), model.predict(IDS[:7])
        return (*results, {name: model.weights[name] for name in model.weights})

    own = axes["model"]
    for rank, (predicted, whole, odd, weights) in enumerate(run_simulated(Mesh(axes), work)):
        np.testing.assert_allclose(predicted, alone.predict(IDS), rtol=2e-5, atol=1e-5)
        np.testing.assert_allclose(whole, alone.whole(X), rtol=2e-5, atol=1e-5)
        np.testing.assert_allclose(odd, alone.predict(IDS[:7]), rtol=2e-5, atol=1e-5)
        place = Mesh(axes).coordinates(rank)["model"]
        part = alone.weights["words"][place * 40 // own : (place + 1) * 40 // own]
        np.testing.assert_array_equal(weights["words"], part)
        assert weights["blocks.up"].shape == (3, 64, 256 // own)
        assert weights["blocks.down"].shape == (3, 256 // own, 64)  # as its text leaves open
    assert source_bytes(artifact) < 0.6 * len(artifact.section("weights"))


def test_other_weights_are_split_alike(tmp_path: Path) -> None:
    alone: Any = dlc.compile(text=text(""), weights="init:2")
    artifact = made("model = 2", 2)
    artifact.write(tmp_path / "net.dlc")
    given = {name: np.array(value) for name, value in alone.weights.items()}

    def work(at: SimulatedRanks) -> NDArray[np.float32]:
        model: Any = dlc.load(tmp_path / "net.dlc", threads=1, comm=at)
        return model.with_weights(given).predict(IDS)

    for found in run_simulated(Mesh({"model": 2}), work):
        np.testing.assert_allclose(found, alone.predict(IDS), rtol=2e-5, atol=1e-5)


def test_every_pass_keeps_what_split_weights_compute() -> None:
    made("model = 2", 2, settings=Settings(verify_each=True))


def test_a_partition_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(module: Op, context: Context) -> None:
        partition.run(module, context)
        for op in list(module.walk()):
            if isinstance(op, array.Add) and op.parent is not None:
                context.rewriter.replace(op, [op.lhs], relation=EQUAL)

    monkeypatch.setattr(compile_module, "partition", replace(partition, function=wrong))
    with pytest.raises(NumbersDiffer, match="pass partition changes result 0 of predict"):
        made("model = 2", 2, settings=Settings(verify_each=True))


def test_another_number_of_ranks_than_the_mesh_has_is_refused() -> None:
    with pytest.raises(ModelError, match="D0936"):
        made("model = 2", 4)


def test_splits_that_do_not_fit_are_refused() -> None:
    artifact = made("model = 2", 2)
    for wrong in ({"nothing": {"model": 0}}, {"words": {"model": 2}}, {"words": {"data": 0}}):
        sections = {**artifact.sections, SECTION: splits_bytes(wrong)}
        changed = Artifact.of(artifact.manifest, sections)
        with pytest.raises(ArtifactError, match="D0607"):
            source_bytes(changed)
