"""Ranks with a GPU each compute what those with processors do; the GPUs are the evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import dlc
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import CallError, Unsupported
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpus
from tests.runtime.ranks.on_gpus import GPU, NET, each, of_text, results, trained, training
from tests.runtime.ranks.trainings import WORDS

TWO = Mesh({"data": 2})


@pytest.fixture(scope="module")
def gpus() -> Iterator[Sequence[FakeGpu]]:
    with fake_gpus((8, 0), (8, 0)) as found:
        yield found


def test_every_collective_gives_what_it_gives_on_processors(gpus: Sequence[FakeGpu]) -> None:
    on_cpu, on_gpu = each("cpu"), each(GPU)
    wanted = run_simulated(TWO, lambda comm: results(on_cpu, comm))
    found = run_simulated(TWO, lambda comm: results(on_gpu, comm))
    for own, other in zip(found, wanted, strict=True):
        for one, another in zip(own, other, strict=True):
            np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize("split", [pytest.param(None, marks=pytest.mark.long), "weights"])
def test_ranks_with_a_gpu_each_train_as_one_process(
    gpus: Sequence[FakeGpu], split: Shard | None
) -> None:
    """Steps after the first launch graphs, between which ranks exchange arrays."""
    _, wanted = trained(training("cpu", 1), None)
    made = training(GPU, 2, split)
    found = run_simulated(TWO, lambda comm: trained(made, comm))
    assert [device for device, _ in found] == ["cuda:0", "cuda:1"]
    assert found[0][1] == found[1][1] == pytest.approx(wanted, rel=1e-5)
    assert all(any(graph.launches for graph in gpu.graphs) for gpu in gpus)


def test_a_call_is_shared_and_begins_on_all_ranks_or_on_none(gpus: Sequence[FakeGpu]) -> None:
    request = CompileRequest(path="", text=NET, settings=Settings(target=GPU), ranks=2)
    made, x = make_artifact(request).artifact, np.ones((4, 3), np.float32)
    alone = dlc.compile(text=NET).guess(x)

    def call(comm: SimulatedRanks) -> tuple[str, object]:
        model = dlc.Model(made, threads=1, comm=comm)
        with pytest.raises(CallError) as told:
            model.guess(x if comm.rank else x[:, :2])
        return told.value.diagnostics[0].code, model.guess(x)

    found = run_simulated(TWO, call)
    assert [code for code, _ in found] == ["D0803", "D0824"]
    for _, value in found:
        np.testing.assert_allclose(np.asarray(value), np.asarray(alone), rtol=1e-5)


def test_all_ranks_are_told_of_a_kernel_that_failed_on_one(gpus: Sequence[FakeGpu]) -> None:
    request = CompileRequest(path="", text=WORDS, settings=Settings(target=GPU), ranks=2)
    made = make_artifact(request).artifact
    right, wrong = np.arange(4, dtype=np.int32), np.array([0, 1, 2, 99], np.int32)

    def call(comm: SimulatedRanks) -> str:
        model = dlc.Model(made, threads=1, comm=comm)
        with pytest.raises(CallError, match="the index 99 is out of range") as told:
            model.at(wrong)
        assert np.asarray(model.at(right)).shape == (4, 8)
        return told.value.diagnostics[0].code

    assert run_simulated(TWO, call) == ["D0824", "D0807"]


def test_a_profile_has_the_times_of_collectives(gpus: Sequence[FakeGpu]) -> None:
    made, x = each(GPU), np.ones((2, 3), np.float32)

    def profile(comm: SimulatedRanks) -> list[str]:
        model = dlc.Model(made, threads=1, comm=comm)
        return [row.kernel for row in model.each.profile(x, rounds=1).rows if row.ms > 0]

    for kernels in run_simulated(TWO, profile):
        names = {name.rpartition("_")[0] for name in kernels}
        assert names >= {"all_reduce", "all_gather", "reduce_scatter", "permute"}


@pytest.mark.parametrize(
    "line",
    ["comm.all_reduce %0", "comm.reduce_scatter %0"],
)
def test_sums_of_what_nccl_does_not_add_are_refused(line: str) -> None:
    text = f"""module {{dlc.mesh=["data = 2"]}} {{
  func @total {{dlc.inputs=["x"]}} (%0: i16[2, 3]) {{
    %1 = {line} {{mesh_axis="data", ranks=2}}
    return %1
  }}
}}
"""
    with pytest.raises(Unsupported, match="of i16 has no form on a GPU") as told:
        of_text(text, GPU)
    assert told.value.diagnostics[0].code == "D0741"
