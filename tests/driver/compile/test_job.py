"""A compilation's choices, resolved before its first pass."""

from __future__ import annotations

import pytest

from dlc.driver.compile.compile import lower
from dlc.driver.compile.job import CompileJob
from dlc.driver.compile.native_planner import machine_code
from dlc.driver.compile.pipelines import Device
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model, open_training
from dlc.errors import UsageError

PLAIN = "dlc 1\nexport fn f(x: f32[8]) -> f32[8] = 2 * x\n"
PROMISED = "dlc 1\nlimit deterministic\n" + PLAIN.removeprefix("dlc 1\n")


def test_a_job_keeps_what_the_text_promises() -> None:
    job = CompileJob.of(open_model("m.dlm", text=PROMISED), Settings())
    assert job.settings.matmul == job.options.matmul == "generated"


TRAINED = """dlc 1
dim B = 1..64
module Net() {
  param w: f32[4] = zeros()
  export fn scaled(x: f32[B, 4]) -> f32[B, 4] = x * w
}
train Net {
  data = npz("x.npz", x="x")
  loss(x: f32[B, 4]) = mean(scaled(x) ** 2)
  optimizer = sgd(lr=0.1)
  batch = 8
  epochs = 1
}
"""


@pytest.mark.parametrize(("limit", "planned"), [(None, 8), (1 << 20, None)])
def test_memory_is_planned_for_the_batch_unless_it_is_limited_and_costs_are_of_the_batch(
    limit: int | None, planned: int | None
) -> None:
    job = CompileJob.of(open_training("m.dlm", text=TRAINED), Settings(max_memory=limit))
    assert job.options.batch == 8
    assert job.options.planned_batch == planned


def test_choices_against_a_promise_are_refused_with_the_line_of_the_text() -> None:
    with pytest.raises(UsageError, match="limit deterministic and --matmul blas") as caught:
        CompileJob.of(open_model("m.dlm", text=PROMISED), Settings(matmul="blas"))
    assert "m.dlm:2" in caught.value.render()


@pytest.mark.parametrize(
    ("target", "device"), [("cpu", Device.CPU), ("cuda:sm_80", Device.CUDA)], ids=["cpu", "cuda"]
)
def test_a_job_is_for_the_device_of_its_target(target: str, device: Device) -> None:
    job = CompileJob.of(open_model("m.dlm", text=PLAIN), Settings(target=target))
    assert job.device is device


def test_a_second_try_recomputes_more_and_begins_with_the_model_as_it_was_read() -> None:
    job = lower(open_model("m.dlm", text=PLAIN), Settings(), "loop")
    again = job.with_recompute(0.25)
    assert (job.model.stage, again.model.stage) == ("loop", "graph")
    assert again.options.recompute == again.settings.recompute == 0.25


def test_passes_are_given_the_compiler_of_the_searches() -> None:
    assert lower(open_model("m.dlm", text=PLAIN), Settings(), "graph").model.context.compiler is (
        machine_code
    )
