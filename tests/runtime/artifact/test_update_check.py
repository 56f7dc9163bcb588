"""The independent checker of updates in place refuses mistakes of the planner and of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import dlc
from dlc.dialects import kernel, mem
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model, read_ir
from dlc.errors import ArtifactError, ModelError
from dlc.ir.core import Op
from dlc.runtime.artifact.certificate import (
    Certificate,
    UpdateRecord,
    certificate_bytes,
    read_certificate,
)
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.model import Model
from dlc.text.ir.short import print_short

READ_BEFORE = """dlc 1
export fn f(inout s: f32[4, 4], x: f32[4, 4]) -> f32[4, 4] {
  let before = cumsum(s, axis=1)
  set s = s + x
  return cumsum(before, axis=0)
}
"""


def compiled(text: str) -> Artifact:
    return compile_model(open_model("m.dlm", text=text), Settings(2), "init:0")


def certificate_of(artifact: Artifact) -> Certificate:
    program = artifact.manifest.targets[0].programs["f"]
    return read_certificate(bytes(artifact.section(program.certificate)))


def with_certificate(artifact: Artifact, change: Callable[[Certificate], Certificate]) -> Artifact:
    program = artifact.manifest.targets[0].programs["f"]
    changed = certificate_bytes(change(certificate_of(artifact)))
    sections = {**artifact.sections, program.certificate: memoryview(changed)}
    return Artifact.of(artifact.manifest, sections, artifact.name)


def test_the_certificate_says_who_reads_what_an_argument_was_and_who_overwrites_it() -> None:
    (record,) = certificate_of(compiled(READ_BEFORE)).updates
    assert record.input == 0
    assert record.reads[0] < record.writes[0] == record.reads[-1]


def test_a_model_that_updates_nothing_has_no_records() -> None:
    text = "dlc 1\nexport fn f(x: f32[4]) -> f32[4] = sort(x)\n"
    assert certificate_of(compiled(text)).updates == ()


def planned(folder: Path, change: Callable[[list[mem.Wave]], None]) -> Artifact:
    """The artifact of the plan of `READ_BEFORE`, after a change of its waves."""
    plan = bytes(compiled(READ_BEFORE).section("plan")).decode()
    module = read_ir(plan, "plan.dlir")
    change([op for op in module.walk() if isinstance(op, mem.Wave)])
    path = folder / "plan.dlir"
    path.write_text(print_short(module), encoding="utf-8")
    return dlc.compile(path, trust_ir=True).artifact


def update_in(wave: mem.Wave) -> Op:
    return next(op for op in wave.body if isinstance(op, kernel.Generic))


def update_beside_the_read(waves: list[mem.Wave]) -> None:
    first, second = waves
    first.body.move(update_in(second), first.body.first)


def update_before_the_read(waves: list[mem.Wave]) -> None:
    first, second = waves
    update, (read, _) = update_in(second), list(first.body)
    first.body.move(update, read)
    second.body.move(read, second.body.first)


def test_a_plan_that_nobody_changed_is_right(tmp_path: Path) -> None:
    planned(tmp_path, lambda waves: None)


@pytest.mark.parametrize("mistake", [update_beside_the_read, update_before_the_read])
def test_a_plan_that_updates_before_the_last_read_is_refused(
    mistake: Callable[[list[mem.Wave]], None], tmp_path: Path
) -> None:
    """Who reads what an argument was is a fact of the plan, whatever the order of its waves."""
    with pytest.raises(
        ModelError, match=r"D0164.*: s is overwritten in wave 0, and its value from"
    ):
        planned(tmp_path, mistake)


WRITES = "the calls that write s are not those that it lists"


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (UpdateRecord(0, "64", (), (2,)), "reads s before it is written"),
        (UpdateRecord(0, "64", (0, 2), ()), WRITES),
        (UpdateRecord(0, "64", (0, 2), (0,)), WRITES),
        (UpdateRecord(0, "64", (0, 1, 2), (2,)), "call 1 does not read s"),
        (
            UpdateRecord(1, "64", (0, 2), (2,)),
            "does not list each input that an output updates once",
        ),
    ],
)
def test_a_file_that_says_something_else_is_refused(lie: UpdateRecord, message: str) -> None:
    artifact = compiled(READ_BEFORE)
    (record,) = certificate_of(artifact).updates
    assert (record.reads, record.writes) == ((0, 2), (2,))
    with pytest.raises(ArtifactError, match=message):
        Model(with_certificate(artifact, lambda certificate: certificate._replace(updates=(lie,))))


def test_a_file_without_its_records_is_refused() -> None:
    artifact = compiled(READ_BEFORE)
    with pytest.raises(ArtifactError, match="it does not list each input"):
        Model(with_certificate(artifact, lambda certificate: certificate._replace(updates=())))


def test_every_update_of_a_training_step_is_certified() -> None:
    trainer = dlc.trainer("examples/digits_mlp.dlm")
    program = trainer.model.artifact.manifest.targets[0].programs["train_step"]
    certificate = read_certificate(bytes(trainer.model.artifact.section(program.certificate)))
    entry = trainer.model.entry_points["train_step"]
    updated = {output.updates for output in entry.outputs if output.updates}
    names = [item.name for item in entry.inputs]
    assert {names[record.input] for record in certificate.updates} == updated
    assert all(record.writes for record in certificate.updates)
