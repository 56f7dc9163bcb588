"""What is told of a model on a processor and a GPU: its target, its memory, its code."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.driver.compile.settings import Settings
from dlc.driver.memory.asked import MemoryRequest, memory_of
from dlc.driver.memory.report import memory_text
from dlc.driver.report.inspect import inspect_file
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.report.why import decisions_of, decisions_text
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import UsageError
from dlc.runtime.abi import Root
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.gpu.steps import StepTable
from dlc.runtime.hetero.host_segments import HostSegments
from dlc.runtime.system.buffers import as_bytes

TEXT = """dlc 1
export fn f(x: f32[64, 8]) -> f32[64, 8] {
  let a = sin(x)
  let b = on cuda:0 { exp(a) * a }
  return tanh(b) + a
}
"""
WANTED = CompileRequest("model.dlm", text=TEXT)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("two") / "model.dlc"
    make_artifact(WANTED).artifact.write(path)
    return str(path)


def test_an_artifact_names_both_kinds_of_code_and_the_memory_of_each_device(file: str) -> None:
    compiled = inspect_file(CompileRequest(file)).compiled
    assert compiled is not None
    (target,) = compiled.targets
    assert target.name == "cpu+cuda:sm_80"
    assert target.processor.endswith(" + sm_80")
    assert {row.device: row.bytes for row in compiled.memory} == {"cpu:0": 4096, "cuda:0": 2048}
    assert {"code/cpu", "engine/cpu", "code/cuda/ptx"} <= dict(compiled.sections).keys()


def test_what_is_for_a_gpu_alone_works_in_memory_of_the_gpu(tmp_path: Path) -> None:
    path = tmp_path / "f.dlc"
    text = "dlc 1\nexport fn f(x: f32[8, 8]) -> f32[8, 8] = x @ sin(x @ x)"
    wanted = CompileRequest("model.dlm", text=text, settings=Settings(target="cuda"))
    make_artifact(wanted).artifact.write(path)
    compiled = inspect_file(CompileRequest(str(path))).compiled
    assert compiled is not None
    assert [row.device for row in compiled.memory] == ["cuda:0"]


def test_the_kind_of_gpu_may_be_named() -> None:
    made = make_artifact(
        CompileRequest("model.dlm", text=TEXT, settings=Settings(target="cpu+cuda:sm_90"))
    )
    assert made.artifact.manifest.targets[0].name == "cpu+cuda:sm_90"
    for wrong in ("cpu+npu", "cuda+cpu"):
        with pytest.raises(UsageError, match="--target is"):
            make_artifact(CompileRequest("model.dlm", text=TEXT, settings=Settings(target=wrong)))


def test_a_model_for_a_gpu_alone_runs_there_as_a_whole() -> None:
    made = make_artifact(CompileRequest("model.dlm", text=TEXT, settings=Settings(target="cuda")))
    (target,) = made.artifact.manifest.targets
    assert (target.name, target.cpu) == ("cuda:sm_80", None)
    assert '"comm.send"' not in str(made.artifact.section("plan"), "utf-8")


def test_memory_is_told_by_device(file: str) -> None:
    text = memory_text(memory_of(MemoryRequest(CompileRequest(file))))
    assert "devices     cpu:0 4.0 KiB, met; cuda:0 2.0 KiB, met: each has" in text


def test_each_stage_shows_the_code_of_both() -> None:
    plan = show_stage(WANTED, Shown("plan"))
    assert plan.count('device = "cuda:0"') == plan.count('"comm.send"') // 2 == 1
    loops = show_stage(WANTED, Shown("loop"))
    assert '"simt.func"' in loops
    assert '"loop.func"' in loops
    assert ".visible .entry" in show_stage(WANTED, Shown("ptx"))
    assert ".visible .entry" not in show_stage(WANTED, Shown("asm"))


def test_the_log_says_what_is_sent_where() -> None:
    said = decisions_text(decisions_of(WANTED, ["send"]))
    assert "send (to cuda:0)" in said
    assert "send (to cpu:0)" in said


def test_the_processor_does_by_itself_what_no_copy_waits_for(file: str) -> None:
    artifact = Artifact.read(file)
    program = artifact.manifest.targets[0].programs["f"]
    steps = StepTable(as_bytes(artifact.section(program.section)), Root.INPUTS + 2)
    sizes = [int(size) for size in program.sizes]
    found = HostSegments(steps, sizes, 4096)
    calls = [call for stretch in found.whole.values() for call in stretch.calls]
    # sin before the copy there, tanh behind the copy back: two stretches of one call each
    assert len(found.whole) == len(calls) == 2
    assert not found.in_waves
