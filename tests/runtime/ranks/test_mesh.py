"""Training by the mesh of a text, whose weights say how they are split: as one process trains."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.dialects import func
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.comm import Collective
from dlc.dialects.text_mesh import read_text_mesh
from dlc.driver.compile.rank_programs import compile_for_mesh
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import plan_training
from dlc.driver.source.source_model import SourceModel
from dlc.errors import ModelError, UsageError
from dlc.ir.passes import Manager
from dlc.passes.graph.autodiff import autodiff
from dlc.passes.sharding.partition import partition
from dlc.runtime.artifact.manifest import STEP
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from dlc.text.model.fmt import format_source
from tests.runtime.ranks.networks import GPT, MLP
from tests.runtime.ranks.trainings import artifact, batches_of, losses


def compare(text: str, mesh: dict[str, int], split: Shard | None = None) -> None:
    """Compare the losses of 20 steps among simulated ranks with those of one process."""
    batches = batches_of(text)
    alone = losses(artifact(text, 1), batches, None)
    ranks = Mesh(mesh)
    made = artifact(text, ranks.size, split)

    def work(at: SimulatedRanks) -> list[float]:
        return losses(made, batches, at)

    by_rank = run_simulated(ranks, work)
    assert all(found == by_rank[0] for found in by_rank)
    np.testing.assert_allclose(by_rank[0], alone, rtol=1e-6)


@pytest.mark.parametrize(
    ("mesh", "a", "b", "split"),
    [
        pytest.param("model = 2", "(none, model)", "(model, none)", None, marks=pytest.mark.long),
        ("data = 2, model = 2", "(data, model)", "(model, data)", None),
        ("data = 2, model = 2", "(none, model)", "(model, none)", "weights"),
        pytest.param(
            *("data = 2, model = 2", "(none, model)", "(model, none)", None), marks=pytest.mark.long
        ),
        pytest.param(
            *("model = 2, data = 2", "(model, none)", "(none, model)", "optimizer"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_weights_split_by_the_text(mesh: str, a: str, b: str, split: Shard | None) -> None:
    sizes = {name: int(size) for name, size in (each.split(" = ") for each in mesh.split(", "))}
    compare(MLP.format(mesh=mesh, a=a, b=b), sizes, split)


@pytest.mark.long
@pytest.mark.parametrize(
    ("vocabulary", "mesh"),
    [(16, {"model": 2}), (16, {"data": 2, "model": 2}), (4096, {"data": 2, "model": 2})],
)
def test_a_gpt_with_split_blocks(vocabulary: int, mesh: dict[str, int]) -> None:
    axes = ", ".join(f"{name} = {size}" for name, size in mesh.items())
    compare(GPT.format(mesh=axes, vocabulary=vocabulary), mesh)


@pytest.mark.long
def test_the_average_of_a_split_weight_is_split_as_it_is() -> None:
    text = MLP.format(mesh="data = 2", a="(data, none)", b="(none, none)")
    text = text.replace("sgd(lr=0.1)", "adam(lr=0.01)\n  average = ema(0.9)")
    compare(text, {"data": 2}, "optimizer")


def step_for(text: str, ranks: int, split: Shard | None = None) -> func.Func:
    """The training step of a rank."""
    planned = plan_training(CompileRequest(path="", text=text))
    model = planned.source
    assert isinstance(model, SourceModel)
    mesh = read_text_mesh(model.module)
    assert mesh is not None
    compile_for_mesh(model, planned.facts, mesh.axes, split)
    Manager(model.context).run(model.module, (autodiff, partition))
    step = model.module.symbol(STEP)
    assert isinstance(step, func.Func)
    return step


def test_columns_and_rows_need_one_sum() -> None:
    text = MLP.format(mesh="model = 2", a="(none, model)", b="(model, none)")
    text = text.replace("if sum(x) > 0 then h @ b else (2 * h) @ b", "h @ b")
    found = [op for op in step_for(text, 2).walk() if isinstance(op, Collective)]
    of_arrays = [op for op in found if tensor_type(op.operands[0]).rank]
    assert [op.name for op in of_arrays] == ["comm.all_reduce"]


@pytest.mark.parametrize("mesh", ["data = 2", "model = 2", "data = 1"])
def test_another_number_of_ranks_is_refused_where_the_mesh_stands(mesh: str) -> None:
    text = MLP.format(mesh=mesh, a="(none, none)", b="(none, none)")
    with pytest.raises(ModelError, match=r"D0936.*ranks, and 3 run") as caught:
        artifact(text, 3)
    place = caught.value.diagnostics[0].place
    assert place is not None
    assert place.line == 3


def test_states_are_split_along_the_axis_data_only() -> None:
    text = MLP.format(mesh="model = 2", a="(none, model)", b="(none, none)")
    with pytest.raises(UsageError, match=r"D0901.*axis data of the mesh"):
        artifact(text, 2, "optimizer")


@pytest.mark.parametrize(
    ("mesh", "a", "message"),
    [
        ("data = 2, data = 2", "(none, none)", "D0229.*two axes data"),
        ("data = 0", "(none, none)", "D0229.*found 0"),
        ("none = 2", "(none, none)", "D0229.*stands for no axis"),
        ("data = 2\nmesh model = 2", "(none, none)", "D0229.*one mesh"),
        ("model = 3", "(none, model)", "D0382.*axis 1 of a is 8"),
        ("model = 2", "(none, modle)", "D0382.*no axis modle"),
        ("model = 2", "(model)", "D0382.*its split has 1 name"),
        ("model = 2", "(model, model)", "D0382.*splits two axes"),
        ("stage = 2", "(none, stage)", "D0382.*a is on one stage as a whole"),
        ("model = 2", "none", "D0110.*the axes"),
    ],
)
def test_a_split_that_cannot_be_is_refused(mesh: str, a: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        dlc.compile(text=MLP.format(mesh=mesh, a=a, b="(none, none)"))


def test_one_process_computes_the_whole() -> None:
    text = MLP.format(mesh="data = 2, model = 2", a="(none, model)", b="(model, none)")
    model = dlc.compile(text=text, weights="init:0")
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("mesh"))
    other = dlc.compile(
        text=plain.replace(" split (none, model)", "").replace(" split (model, none)", ""),
        weights="init:0",
    )
    x = np.ones((3, 6), np.float32)
    np.testing.assert_array_equal(model.predict(x), other.predict(x))


def test_the_formatter_keeps_mesh_and_splits() -> None:
    text = MLP.format(mesh="data  =  2,model = 1 + 1", a="( none,model )", b="(model, none)")
    wanted = MLP.format(mesh="data = 2, model = 1 + 1", a="(none, model)", b="(model, none)")
    assert "mesh data = 2, model = 1 + 1" in format_source(text, "mesh.dlm")
    assert "split (none, model) = normal(0.5)" in format_source(text, "mesh.dlm")
    assert format_source(wanted, "mesh.dlm") == format_source(text, "mesh.dlm")


def test_what_a_rank_hands_over_may_be_overwritten_afterwards() -> None:
    def work(ranks: SimulatedRanks) -> list[float]:
        own = np.array([1.0 + ranks.rank])
        taken = ranks.exchange("data", own)
        own[:] = 0
        ranks.allgather(None)  # all have overwritten theirs
        return [float(each[0]) for each in taken]

    assert run_simulated(Mesh({"data": 2}), work) == [[1.0, 2.0]] * 2
