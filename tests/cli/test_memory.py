"""`dlc memory`: the plan of a model in a table, as data, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.cli.conftest import Command
from tests.cli.test_json import documented_in
from tests.driver.memory.models import CHAIN, TRAINED

Data = dict[str, object]


@pytest.fixture
def files(folder: Path) -> Path:
    (folder / "chain.dlm").write_text(CHAIN)
    (folder / "small.dlm").write_text(TRAINED)
    return folder


def entries(dlc: Command, *arguments: str) -> list[Data]:
    """What the command says about each entry point."""
    done = dlc("memory", *arguments, "--json")
    assert done.code == 0, done.err
    return cast("dict[str, list[Data]]", done.data)["entries"]


def test_the_table_tells_amounts_and_who_holds_the_peak(dlc: Command, files: Path) -> None:
    done = dlc("memory", "chain.dlm", "--entry", "f", "--dim", "B=2")
    assert done.code == 0
    assert done.out.startswith("f at B = 2\n  arena       256 bytes, 2 roots in 4 waves\n")
    assert "alive in wave 1" in done.out


def test_an_artifact_has_the_same_memory_as_its_text(dlc: Command, files: Path) -> None:
    assert dlc("compile", "chain.dlm").code == 0
    assert entries(dlc, "chain.dlc") == entries(dlc, "chain.dlm")


def test_every_name_of_the_data_is_documented(dlc: Command, files: Path) -> None:
    (entry,) = entries(dlc, "chain.dlm", "--entry", "f")
    (first, *_) = cast("list[Data]", entry["roots"])
    (value, *_) = cast("list[Data]", first["values"])
    (op, *_) = cast("list[Data]", entry["ops"])
    names = {*entry, *first, *value, *op, *cast("Data", entry["peak"])}
    assert names <= documented_in("The memory of an entry point")


def test_training_is_shown_at_its_batch(dlc: Command, files: Path) -> None:
    found = entries(dlc, "small.dlm", "--set", "hidden=8")
    assert [(entry["name"], entry["dims"]) for entry in found] == [
        ("best", {"B": 4096}),
        ("train_step", {"B": 64}),
        ("evaluate", {"B": 64}),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "a model is missing"),
        ("chain.dlm --effort 3", "--effort is for the buffers of --instance"),
        ("chain.dlm --instance buffers.csv", "--instance has buffers of its own"),
        ("--instance buffers.csv -O 3", "--instance has buffers of its own"),
        ("chain.dlm --dim B", "--dim 'B' is not NAME=VALUE"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    dlc: Command, files: Path, arguments: str, message: str
) -> None:
    done = dlc("memory", *arguments.split())
    assert done.code == 2
    assert message in done.err
