"""`dlc memory` says what the plan is: amounts, moments, and the ops and lines that values come from."""

from __future__ import annotations

import dataclasses

import pytest

import dlc
from dlc.driver.call_memory.facts import entry_memory
from dlc.driver.memory.asked import MemoryRequest, memory_of
from dlc.driver.memory.report import memory_text
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import ArtifactError, CallError, DlcError, ModelError, UsageError
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.loaded_code import load_code
from tests.driver.memory.models import CHAIN, TRAINED, chain, found


def test_amounts_are_those_at_the_upper_bounds() -> None:
    entry, small = chain().entries
    assert (entry.name, entry.dims) == ("f", {"B": 64})
    assert entry.arena == entry.order_bound == entry.any_order_bound == 2 * 64 * 64
    assert (entry.order_gap, entry.any_order_gap) == (0.0, 0.0)
    assert (entry.need.given, entry.need.results) == (64 * 64, 64 * 64)
    assert (small.name, small.arena, small.roots, small.alive[:1]) == ("small", 0, (), (0,))


def test_amounts_are_those_at_the_sizes_that_are_given() -> None:
    assert chain(B=3).entries[0].arena == 2 * 64 * 3


def test_the_peak_is_the_moment_with_the_most_in_use() -> None:
    entry = chain().entries[0]
    assert entry.alive == (4096, 8192, 4096, 4096)
    assert entry.peak == 1
    assert [root.title for root in entry.at_peak] == ["sums: f32[B, 16]", "sorted: f32[B, 16]"]
    assert [work.what for work in entry.work_at_peak] == ["sort B×16"]


def test_a_root_knows_who_makes_it_who_needs_it_last_and_what_is_computed_over_it() -> None:
    sums, sorted_ = chain().entries[0].at_peak
    assert sums.maker is not None
    assert (sums.maker.what, sums.maker.wave, sums.maker.place) == (
        "prefix scan add B×16",
        0,
        "m.dlm:5:14",
    )
    assert sums.last_reader is not None
    assert (sums.last_reader.what, sums.last_reader.wave) == ("sort B×16", 1)
    assert [value.how for value in sorted_.values if value.made_by] == ["own", "in place"]
    assert len(sorted_.sharing) == 1


def test_places_are_lines_of_the_text() -> None:
    memory = chain()
    assert memory.line("m.dlm:5:14") == "let sums = cumsum(x, axis=1)"
    assert memory.line("") == memory.line("m.dlm:99:1") == memory.line("other.dlm:1:1") == ""


@pytest.mark.long
def test_a_text_with_a_train_block_shows_its_step_at_the_batch_of_the_text() -> None:
    memory = found(TRAINED)
    assert [(entry.name, entry.dims["B"]) for entry in memory.entries] == [
        ("best", 4096),
        ("train_step", 64),
        ("evaluate", 64),
    ]
    assert [entry.name for entry in found(TRAINED, "train_step", B=8).entries] == ["train_step"]
    assert [entry.name for entry in found(TRAINED, "best").entries] == ["best"]


def test_a_batch_that_is_set_is_the_one_of_the_step() -> None:
    wanted = CompileRequest("m.dlm", text=TRAINED, parameters={"batch": 16, "hidden": 8})
    assert memory_of(MemoryRequest(wanted, "train_step")).entries[0].dims == {"B": 16}


def test_the_plan_needs_no_weights() -> None:
    text = """dlc 1
module M() {
  param w: f32[8, 8] = file("gone.npz")
  export fn f(x: f32[4, 8]) -> f32[4, 8] = tanh(x @ w) @ w
}
"""
    assert found(text).entries[0].need.weights >= 256
    with pytest.raises(ModelError):
        dlc.compile(text=text)


def test_an_artifact_says_the_same_as_its_text() -> None:
    made = make_artifact(CompileRequest("m.dlm", text=CHAIN)).artifact
    again = Artifact.from_bytes(made.to_bytes())
    loaded = load_code(again, untrusted=True)
    assert entry_memory(again, loaded, again.manifest.entries[0], {"B": 64}) == chain().entries[0]


def test_an_artifact_without_a_list_of_values_still_has_its_plan() -> None:
    made = make_artifact(CompileRequest("m.dlm", text=CHAIN)).artifact
    kept = {k: v for k, v in made.sections.items() if not k.startswith("values/")}
    bare = dataclasses.replace(made, sections=kept)
    entry = entry_memory(bare, load_code(bare, True), bare.manifest.entries[0], {"B": 64})
    assert entry.arena == chain().entries[0].arena
    assert [root.title for root in entry.roots] == ["root 0", "root 1"]


def test_a_list_of_values_that_is_none_is_refused() -> None:
    made = make_artifact(CompileRequest("m.dlm", text=CHAIN)).artifact
    name = "values/cpu/f"
    broken = dataclasses.replace(made, sections={**made.sections, name: memoryview(b"[]")})
    with pytest.raises(ArtifactError, match="D0610"):
        entry_memory(broken, load_code(broken, True), broken.manifest.entries[0], {"B": 64})


@pytest.mark.parametrize(
    ("entry", "dims", "error", "code"),
    [
        ("g", {}, UsageError, "D0904"),
        (None, {"C": 3}, UsageError, "D0906"),
        (None, {"B": 65}, CallError, "D0804"),
    ],
)
def test_what_does_not_exist_is_refused(
    entry: str | None, dims: dict[str, int], error: type[DlcError], code: str
) -> None:
    with pytest.raises(error) as caught:
        found(CHAIN, entry, **dims)
    assert caught.value.diagnostics[0].code == code


def test_a_size_without_a_largest_must_be_given() -> None:
    text = "dlc 1\ndim N\nexport fn f(x: f32[N]) -> f32[N] = cumsum(sort(x, axis=0), axis=0)\n"
    with pytest.raises(UsageError, match="f has no largest N") as caught:
        found(text)
    assert caught.value.diagnostics[0].code == "D0906"
    assert found(text, N=100).entries[0].arena == 448


def test_the_table_of_the_peak_has_amounts_ops_and_lines() -> None:
    text = memory_text(chain())
    assert "f at B = 64\n  arena       8,192 bytes (8.0 KiB), 2 roots in 4 waves\n" in text
    assert "this order  8,192 bytes (8.0 KiB), met" in text
    assert "peak        wave 1: sort B×16 m.dlm:6:16" in text
    assert "4,096  50.0%  0-1    sums: f32[B, 16]" in text
    assert "m.dlm:5:14  let sums = cumsum(x, axis=1)" in text
    assert "small\n  arena       nothing" in text
