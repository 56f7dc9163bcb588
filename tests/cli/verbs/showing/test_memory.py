"""`dlc memory`: the plan of a model in a table, as data, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from tests.cli.conftest import Command
from tests.cli.test_json import documented, documented_in
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


def test_more_effort_finds_no_less_where_the_plan_is_the_best_there_is(
    dlc: Command, files: Path
) -> None:
    assert entries(dlc, "chain.dlm", "--plan-effort", "3") == entries(dlc, "chain.dlm")
    assert dlc("memory", "chain.dlm", "--plan-effort", "0").code == 2


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


def test_pictures_pages_and_traces_are_written_side_by_side(dlc: Command, files: Path) -> None:
    names = ["--html", "plan.html", "--svg", "plan.svg", "--trace", "plan.json"]
    done = dlc("memory", "chain.dlm", "--entry", "f", *names)
    assert (done.code, done.out) == (0, "")
    assert (files / "plan.html").read_text().startswith("<!doctype html>")
    assert (files / "plan.svg").read_text().startswith("<svg ")
    assert json.loads((files / "plan.json").read_text())["traceEvents"]
    assert entries(dlc, "chain.dlm", "--svg", "again.svg") == entries(dlc, "chain.dlm")


def test_two_plans_are_set_side_by_side(dlc: Command, files: Path) -> None:
    done = dlc("memory", "chain.dlm", "--compare", "small.dlm", "--entry", "f")
    assert done.code == 2, "small.dlm has no f"
    assert dlc("compile", "chain.dlm", "-O", "0").code == 0
    done = dlc("memory", "chain.dlm", "--compare", "chain.dlc")
    assert done.code == 0
    assert "chain.dlm  chain.dlc" in done.out
    data = cast("Data", dlc("memory", "chain.dlm", "--compare", "chain.dlc", "--json").data)
    (first, *_) = cast("list[Data]", data["entries"])
    assert {*data, *first} <= documented_in("Two plans side by side")


def test_the_largest_size_that_fits_is_found(dlc: Command, files: Path) -> None:
    done = dlc("memory", "small.dlm", "--max", "1MiB", "--entry", "train_step")
    assert done.code == 0
    assert "is the largest within 1,048,576 bytes (1.0 MiB)" in done.out
    named = dlc("memory", "chain.dlm", "--max", "8KiB", "--dim", "B", "--entry", "f", "--json")
    data = cast("dict[str, list[Data]]", named.data)
    (fit,) = data["fits"]
    assert fit["dim"] == "B"
    assert cast("int", fit["bytes"]) <= 8192 < cast("int", fit["above"])
    names = {*data, *fit, *cast("Data", fit["parts"])}
    assert names <= documented_in("The largest size that fits")
    assert dlc("memory", "chain.dlm", "--max", "100", "--entry", "f").code == 4


def test_the_buffers_of_a_table_are_placed(dlc: Command, files: Path) -> None:
    (files / "buffers.csv").write_text("id,lower,upper,size\n0,0,2,64\n1,1,3,32\n")
    data = cast("Data", dlc("memory", "--instance", "buffers.csv", "--json").data)
    assert (data["height"], data["lower_bound"]) == (96, 96)
    assert set(data) <= documented("memory")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "a model is missing"),
        ("chain.dlm --max 1MiB --svg x.svg", "--max and --svg ask for different things"),
        ("chain.dlm --compare chain.dlm --max 1MiB", "--compare and --max ask for"),
        ("chain.dlm --max much", "--max 'much' is not a size of memory"),
        ("chain.dlm --max 1MiB --dim B --dim C", "--dim B and --dim C cannot both grow"),
        ("chain.dlm --svg chain.dlm", "chain.dlm is read, and would be replaced"),
        ("chain.dlm --html gone/plan.html", "there is no folder gone"),
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
