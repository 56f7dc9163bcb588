"""`--costs`: a table of costs is a word, rows or a file; an artifact says by which one it was compiled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dlc
from dlc.driver.compile import cost_table
from dlc.driver.compile.cost_table import (
    BUILT_IN,
    CostTable,
    parse_table,
    table_text,
    tuned_here,
)
from dlc.driver.compile.settings import Settings
from dlc.driver.report.doctor import examine
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import UsageError
from dlc.target.cpu import CpuTarget
from tests.suites import together

TEXT = """dlc 1
export fn f(x: f32[512, 64]) -> f32[512] = sum(exp(x), axis=1)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache of one's own, and the current folder beside it."""
    folder = tmp_path / "cache"
    folder.mkdir(0o700)
    monkeypatch.setenv("DLC_CACHE", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def flags(settings: Settings, path: str = "model.dlm") -> list[str]:
    """What an artifact says about its costs."""
    text = None if path.endswith(".dlc") else TEXT
    made = make_artifact(CompileRequest(path, text=text, settings=settings)).artifact
    return [flag for flag in made.manifest.compiler.flags if "costs" in flag]


def tuned(cache: Path, rows: dict[str, int], processor: str | None = None) -> None:
    """Put a table into the cache."""
    text = table_text(rows)
    if processor is not None:
        text = json.dumps({**json.loads(text), "processor": processor})
    path = cache / "costs.json"
    path.write_text(text)
    path.chmod(0o600)


def test_rows_change_the_code_and_the_artifact_tells_them(cache: Path) -> None:
    usual = make_artifact(CompileRequest("m.dlm", text=TEXT)).artifact
    other = Settings(costs=cost_table.cost_table("tile=80000"))
    changed = make_artifact(CompileRequest("m.dlm", text=TEXT, settings=other)).artifact
    assert "--costs=tile=80000" in changed.manifest.compiler.flags
    assert bytes(usual.section("plan")) == bytes(changed.section("plan"))
    assert usual.to_bytes() != changed.to_bytes()
    assert flags(Settings()) == []


def test_the_tuned_table_counts_for_this_machine_and_no_other(cache: Path) -> None:
    tuned(cache, {"tile": 80_000})
    assert flags(Settings()) == ["--costs=tile=80000"]
    assert flags(Settings(target="cpu:x86-64-v3")) == []
    assert flags(Settings(costs=BUILT_IN)) == []
    tuned(cache, {"tile": 80_000}, "Another, 256 bits")
    assert flags(Settings()) == []


def test_rows_that_are_those_of_the_processor_leave_no_flag(cache: Path) -> None:
    tuned(cache, {"tile": CpuTarget.named("host").costs.tile})
    assert flags(Settings()) == []


def test_an_artifact_that_is_compiled_again_keeps_its_costs(cache: Path) -> None:
    made = dlc.compile(text=TEXT, costs="tile=90000")
    made.save("m.dlc")
    dlc.compile(text=TEXT, costs="default").save("usual.dlc")
    tuned(cache, {"tile": 80_000})
    assert flags(Settings(3), "m.dlc") == ["--costs=tile=90000"]
    assert flags(Settings(3), "usual.dlc") == []
    assert flags(Settings(3, costs=CostTable("", {"tile": 70_000})), "m.dlc") == [
        "--costs=tile=70000"
    ]
    assert flags(Settings(target="cpu:x86-64-v2"), "m.dlc") == []


def test_a_damaged_table_is_said_and_the_built_in_one_is_used(cache: Path) -> None:
    (cache / "costs.json").write_text("{")
    with pytest.warns(UserWarning, match=r"costs\.json is not a table of costs.*built-in"):
        assert flags(Settings()) == []
    (finding,) = [each for each in examine() if each.what == "costs"]
    assert finding.level == "warning"


def test_a_table_that_others_may_write_is_said_and_not_used(cache: Path) -> None:
    tuned(cache, {"tile": 80_000})
    assert tuned_here() is not None
    (cache / "costs.json").chmod(0o666)
    with pytest.warns(UserWarning, match="other users may write it"):
        assert tuned_here() is None


def test_doctor_tells_which_table_counts(cache: Path) -> None:
    def told() -> str:
        (finding,) = [each.text for each in examine() if each.what == "costs"]
        return finding

    assert told().startswith("the built-in table; dlc tune")
    tuned(cache, {"tile": 80_000, "product": 5}, "Another, 256 bits")
    assert "is of another processor, Another, 256 bits" in told()
    tuned(cache, {"tile": 80_000, "product": 5})
    assert told().endswith("costs.json, 2 rows of dlc tune")
    assert any(each.what == "cpu cost" and "80,000" in each.text for each in examine())


def test_a_file_needs_no_ending(cache: Path) -> None:
    Path("table").write_text(table_text({"product": 5}))
    assert cost_table.cost_table("table").rows == {"product": 5}
    assert dlc.compile(text=TEXT, costs=Path("table")).f is not None


@together(
    ("asked", "message", "way_out"),
    [
        ("product", "--costs is 'product'", "--costs default or tuned, rows such as --costs prod"),
        ("prodct=5", "no cost is called 'prodct'", "did you mean product?"),
        ("product=0", "the cost product is 0, and not a whole number from 1 to 12,000", ""),
        ("product=5,", "no cost is called ''", ""),
        ("product=x", "the cost product is 'x'", ""),
        ("product=99999999", "from 1 to 12,000", ""),
        ("gone.json", "gone.json", ""),
        ("./product", "product", ""),
        ("tuned", "there is none in the cache", "run dlc tune"),
    ],
)
def test_what_is_no_table_is_refused_with_a_way_out(
    asked: str, message: str, way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLC_CACHE", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        cost_table.cost_table(asked)
    assert message in str(caught.value)
    assert way_out in str(caught.value)


@together(
    ("text", "why"),
    [
        ("", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ('{"costs": ' + "9" * 5000 + "}", "it is not JSON"),
        ("[1]", "it has not the fields"),
        ('{"format": "dlc costs 1", "costs": {}}', "it has not the fields"),
        ('{"format": "dlc costs 2", "processor": "", "costs": {}}', "its format is 'dlc costs 2'"),
        ('{"format": "dlc costs 1", "processor": "", "costs": {"x": 1}}', "no cost is called 'x'"),
        (table_text({"tile": -1}), "the cost tile is -1"),
        (table_text({"tile": True}), "the cost tile is True"),
        (table_text({"tile": 10**12}), "the cost tile is 1000000000000"),
    ],
)
def test_a_damaged_file_is_refused_with_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(UsageError, match="D0928") as caught:
        parse_table(text, "costs.json")
    assert why in str(caught.value)


def test_gpus_have_no_such_table() -> None:
    with pytest.raises(UsageError, match=r"D0902.*--costs is for processors"):
        Settings(target="cuda:sm_80", costs=CostTable("", {"tile": 1}))
    assert (
        Settings(target="cuda:sm_80", costs=BUILT_IN).flags == Settings(target="cuda:sm_80").flags
    )
