"""`dlc why`: what passes did and refused, beside the lines of the text."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.cli.conftest import Command
from tests.cli.test_json import documented
from tests.driver.memory.models import TRAINED

TEXT = """dlc 1
export fn f(x: f32[4, 8], w: f32[8, 8]) -> f32[4, 8] {
  let scores = 3 * x
  let best = softmax(scores @ w)
  return best @ w + best @ exp(w)
}
"""
Data = dict[str, object]


@pytest.fixture
def model(folder: Path) -> Path:
    (folder / "f.dlm").write_text(TEXT)
    return folder


def decisions(dlc: Command, *arguments: str) -> list[Data]:
    done = dlc("why", *arguments, "--json")
    assert done.code == 0, done.err
    return cast("dict[str, list[Data]]", done.data)["decisions"]


def test_each_line_of_the_text_is_followed_by_what_was_done_with_it(
    dlc: Command, model: Path
) -> None:
    done = dlc("why", "f.dlm")
    assert done.code == 0
    headings = [line for line in done.out.splitlines() if " | let" in line or "| return" in line]
    assert headings == [
        "f.dlm:3 | let scores = 3 * x",
        "f.dlm:4 | let best = softmax(scores @ w)",
        "f.dlm:5 | return best @ w + best @ exp(w)",
    ]
    assert "  + canonicalize  array.multiply %scores: `2 + x` is written `x + 2`\n" in done.out


def test_words_choose_what_is_shown(dlc: Command, model: Path) -> None:
    found = decisions(dlc, "f.dlm", "pack", "f.dlm:5")
    assert {(each["pass"], str(each["place"])[:7]) for each in found} == {("pack", "f.dlm:5")}
    refused = decisions(dlc, "f.dlm", "refused", "BESIDE", "product")
    assert {each["kind"] for each in refused} == {"refused"}


def test_a_word_is_not_part_of_another(dlc: Command, model: Path) -> None:
    fused = decisions(dlc, "f.dlm", "fuse")
    assert fused
    assert {each["pass"] for each in fused} == {"fuse"}
    assert decisions(dlc, "f.dlm", "refused")
    assert decisions(dlc, "f.dlm", "refuse") == []
    assert decisions(dlc, "f.dlm", "kernel.gemm") == decisions(dlc, "f.dlm", "KERNEL.GEMM")
    assert decisions(dlc, "f.dlm", "kernel.gem") == []


def test_an_entry_point_alone_is_told_of(dlc: Command, folder: Path) -> None:
    one = "export fn one(x: f32[8]) -> f32[8] = exp(2 * x) + 1\n"
    other = "export fn other(x: f32[8, 8]) -> f32[8, 8] = softmax(x @ x)\n"
    (folder / "one.dlm").write_text(f"dlc 1\n{one}")
    (folder / "two.dlm").write_text(f"dlc 1\n{one}{other}")
    told = dlc("why", "two.dlm", "--entry", "one").out
    assert told.replace("two.dlm", "one.dlm") == dlc("why", "one.dlm").out
    assert "two.dlm:3 |" in dlc("why", "two.dlm").out
    assert "D0904" in dlc("why", "two.dlm", "--entry", "non").err
    assert dlc("compile", "two.dlm").code == 0
    refused = dlc("why", "two.dlc", "--entry", "one")
    assert (refused.code, "D0905" in refused.err) == (2, True)
    assert dlc("compile", "one.dlm").code == 0
    assert dlc("why", "one.dlc", "--entry", "one").out == dlc("why", "one.dlm").out


def test_words_that_occur_nowhere_have_an_answer(dlc: Command, model: Path) -> None:
    assert dlc("why", "f.dlm", "nowhere").out == "nothing was decided about that\n"
    assert decisions(dlc, "f.dlm", "nowhere") == []


def test_an_artifact_tells_the_same(dlc: Command, model: Path) -> None:
    assert dlc("compile", "f.dlm").code == 0
    assert decisions(dlc, "f.dlc") == decisions(dlc, "f.dlm")


def test_without_optimisation_little_is_decided(dlc: Command, model: Path) -> None:
    assert len(decisions(dlc, "f.dlm", "-O0")) < len(decisions(dlc, "f.dlm"))


def test_training_is_among_it(dlc: Command, folder: Path) -> None:
    (folder / "small.dlm").write_text(TRAINED)
    assert decisions(dlc, "small.dlm", "differentiate")
    assert decisions(dlc, "small.dlm", "--entry", "train_step", "differentiate")


def test_every_name_of_the_data_is_documented(dlc: Command, model: Path) -> None:
    (first, *_) = decisions(dlc, "f.dlm")
    assert set(first) <= documented("why")
