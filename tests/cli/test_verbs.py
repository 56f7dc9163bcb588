"""The verbs besides compile and run, and what every verb does with mistakes."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import cast

import pytest

from dlc import driver
from dlc.cli import main
from dlc.cli.app import GROUPS, VERBS
from dlc.errors.catalog import PAGES
from tests.cli.conftest import Command
from tests.suites import every, together


@together("verb", VERBS)
def test_every_verb_has_help_and_json(dlc: Command, verb: str) -> None:
    done = dlc(verb, "--help")
    assert done.code == 0
    assert "--json" in done.out


def test_without_a_verb_the_help_is_shown(dlc: Command) -> None:
    done = dlc()
    assert done.code == 0
    assert all(verb in done.out for verb in VERBS)


def test_the_help_lists_the_verbs_under_headings(dlc: Command) -> None:
    done = dlc("--help")
    places = [done.out.index(heading) for heading in GROUPS]
    assert places == sorted(places)
    assert len(set(VERBS)) == len(VERBS)


@together(
    ("command", "code", "said"),
    [
        ("run gone.dlm", 2, "cannot read gone.dlm"),
        ("run gone.dlc", 2, "cannot read gone.dlc: no such file or directory"),
        ("check .", 2, "'.' is not a model"),
        ("run rows.txt", 2, "D0903"),
        ("run rows.dlm --input x=[[1,2]]", 1, "D0803"),
        ("run rows.dlm --input x=[[1,2,3", 2, "D0907"),
        ("run rows.dlm --input x=apples", 2, "D0907"),
        ("run rows.dlm --input other=1", 2, "there are x, y"),
        ("run rows.dlm --input x", 2, "is not NAME=VALUE"),
        ("run rows.dlm --input x=zeros --dim B=100", 1, "outside its bounds"),
        ("run rows.dlm --input x=zeros --dim B=many", 2, "is not a size"),
        ("run rows.dlm --input x=zeros --output a=a.npy", 2, "has no result a"),
        ("run rows.dlm --input x=zeros --output rows=a.csv", 2, "D0909"),
        ("run rows.dlm --random-inputs 99999999999999999999999", 2, "is not a seed"),
        ("run rows.dlm --input x=zeros --dim B=9223372036854775807", 1, "outside its bounds"),
        ("run rows.dlm --input x=zeros --threads 0", 2, "threads is 0, outside 1.."),
        ("run rows.dlm --input x=zeros --threads 1000000", 2, "threads is 1000000, outside 1.."),
        ("run rows.dlm --input x=zeros --threads two", 2, "--threads 'two' is not a whole number"),
        ("run rows.dlm --random-inputs -1", 2, "-1, where 0 or more is expected"),
        ("run rows.dlm --input x=zeros --labels gone.txt", 2, "cannot read gone.txt"),
        ("run rows.dlm --grad rows", 2, "is not RESULT:INPUT"),
        ("run rows.dlm --grad rows:z", 2, "has no input 'z'"),
        ("run rows.dlm --inputs x=zeros", 2, "did you mean --input?"),
        ("compile rows.dlm -O7", 2, "-O7 is out of range"),
        ("compile rows.dlm --target gpu", 2, "--target is 'gpu'"),
        ("compile rows.dlm --target cuda:sm_12", 2, "no GPU is called"),
        ("compile rows.dlm --disable-pass nothing", 2, "there is no pass"),
        ("compile rows.dlm --from kernel", 2, "D0905"),
        ("compile rows.dlm -o missing/a.dlc", 2, "D0502"),
        ("compile", 2, "missing"),
        ("show rows.dlm --stage soup", 2, "there is no stage"),
        ("show rows.dlm --after fuse", 2, "does not run on the way"),
        ("show rows.dlm --stage loop --svg", 2, "is not a graph"),
        ("show rows.dlm --stage plan --svg", 2, "dlc memory MODEL --svg FILE draws the plan"),
        ("opt rows.dlm --passes nothing", 2, "there is no pass"),
        ("doc softmx", 2, "did you mean"),
        ("ops qqqqq", 2, "D0914"),
        ("explain D9999", 2, "D0917"),
        ("new 3d", 2, "D0913"),
        ("new ../../x", 2, "leads out of the current folder"),
        ("new folder/x", 2, "then: dlc new x"),
        ("fmt rows.txt", 2, "D0903"),
        ("frobnicate", 2, "D0901"),
        ("complie rows.dlm", 2, "did you mean compile?"),
        ("run rows.dlm --thread 2", 2, "did you mean --threads?"),
        ("--thread", 2, "dlc has no option --thread"),
        ("run", 2, "the argument MODEL is missing\n   = help: write dlc run MODEL"),
        ("run rows.dlm b.dlm", 2, "'b.dlm' is more than dlc run takes"),
        ("run rows.dlm x=zeros", 2, "did you mean --input x=zeros?"),
        ("run rows.dlm --input", 2, "--input has no value\n   = help: write --input NAME=VALUE"),
        ("reduce", 2, "FILE is missing\n   = help: write dlc reduce FILE --test COMMAND"),
        (
            "reduce rows.dlm",
            2,
            "--test is missing\n   = help: write dlc reduce FILE --test COMMAND",
        ),
        ("cache foo", 2, "has no action 'foo'\n   = help: it has ls, explain and prune"),
        ("cache pune", 2, "has no action 'pune'\n   = help: did you mean prune?"),
        ("profile rows.dlm --by op", 2, "--by is 'op', where kernel, layer or line is expected"),
        ("run rows.dlm --json=yes", 2, "--json takes no value"),
        ("run rows.dlm --top 1.5", 2, "--top '1.5' is not a whole number"),
        ("gradcheck rows.dlm --order 3", 2, "--order is 3, where 1 to 2 is expected"),
        ("bench rows.dlm --seconds nan", 2, "--seconds 'nan' is not a number"),
        ("bench rows.dlm --seconds -1", 2, "--seconds is -1, where 0 or more is expected"),
    ],
)
def test_a_mistake_gives_its_exit_code_and_a_message(
    dlc: Command, command: str, code: int, said: str
) -> None:
    done = dlc(*command.split())
    assert said in done.err
    assert "D0901" not in done.err or "\n   = help: " in done.err
    assert done.code == code
    assert done.out == ""


def test_the_help_of_a_verb_asks_for_nothing_else(dlc: Command) -> None:
    for given in (("run", "--help"), ("run", "--top", "x", "-h")):
        assert dlc(*given).code == 0


def test_a_damaged_artifact_is_refused_with_code_5(dlc: Command, folder: Path) -> None:
    dlc("compile", "rows.dlm")
    data = bytearray((folder / "rows.dlc").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "rows.dlc").write_bytes(data)
    for command in (("run", "rows.dlc"), ("inspect", "rows.dlc")):
        assert dlc(*command).code == 5


def test_a_wrong_model_is_told_at_its_line_and_as_json(dlc: Command, folder: Path) -> None:
    (folder / "bad.dlm").write_text("dlc 1\nexport fn f(x: f32[2]) -> f32[2] = x + nothing\n")
    done = dlc("check", "bad.dlm", "--json")
    assert done.code == 1
    assert "bad.dlm:2:40" in done.err
    errors = cast("dict[str, list[dict[str, object]]]", done.data)["errors"]
    assert [(e["code"], e["line"], e["column"]) for e in errors] == [("D0201", 2, 40)]


def test_several_models_are_checked_whatever_is_wrong_with_some(dlc: Command, folder: Path) -> None:
    (folder / "bad.dlm").write_text("dlc 1\nexport fn f(x: f32[2]) -> f32[2] = x + nothing\n")
    done = dlc("check", "bad.dlm", "rows.dlm", "gone.dlm")
    assert done.code == 2
    assert "bad.dlm:2:40" in done.err
    assert "rows.dlm is right" in done.err
    assert "cannot read gone.dlm" in done.err
    assert done.out.startswith("f(x: f32[B, 3]")
    assert dlc("check", "bad.dlm", "rows.dlm").code == 1
    models = cast(
        "dict[str, list[dict[str, object]]]", dlc("check", "bad.dlm", "rows.dlm", "--json").data
    )
    assert [list(model) for model in models["models"]] == [
        ["path", "errors"],
        ["path", "entries", "trainings", "warnings"],
    ]
    assert dlc("check", "rows.dlm", "rows.dlm", "--json").code == 0


def test_compile_says_one_time_which_is_that_of_all_its_work(
    dlc: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = driver.make_artifact

    def slow(
        wanted: driver.CompileRequest,
        *,
        stage: str | None = None,
        counts: driver.OpCounts | None = None,
    ) -> driver.CompileResult:
        time.sleep(1.2)  # as long as reading a large model takes, and then it is told twice
        return make(wanted, stage=stage, counts=counts)

    monkeypatch.setattr("dlc.driver.make_artifact", slow)
    said = dlc("compile", "rows.dlm").err
    first, last = [float(text) for text in re.findall(r"([0-9.]+) s$", said, re.MULTILINE)]
    assert first > 1
    assert (
        abs(last - first) < 0.25
    )  # one clock starts a little before the other, and both are rounded


def test_an_unforeseen_exception_is_an_internal_error(
    dlc: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("nobody thought of this")

    monkeypatch.setattr("dlc.driver.check_model", fail)
    done = dlc("check", "rows.dlm")
    assert done.code == 70
    assert "D0999" in done.err
    assert "ZeroDivisionError" in done.err


def test_an_interrupt_is_told_with_code_130(dlc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dlc.driver.check_model", interrupt)
    done = dlc("check", "rows.dlm")
    assert (done.code, done.err) == (130, "interrupted\n")


@pytest.mark.parametrize("stage", ["graph", "kernel", "plan", "loop", "llvm", "asm"])
def test_every_stage_is_shown(dlc: Command, stage: str) -> None:
    marks = {
        "graph": "array.multiply",
        "kernel": "kernel.",
        "plan": "mem.program",
        "loop": "loop.func",
        "llvm": "define ",
        "asm": ".text",
    }
    done = dlc("show", "rows.dlm", "--stage", stage)
    assert done.code == 0
    assert marks[stage] in done.out


def test_the_text_is_shown_as_fmt_lays_it_out(dlc: Command, folder: Path) -> None:
    text = (folder / "rows.dlm").read_text()
    (folder / "rows.dlm").write_text(text.replace("x * y", "x*y"))
    assert dlc("show", "rows.dlm", "--stage", "text").out == text
    assert dlc("fmt", "--check", "rows.dlm").code == 1
    assert (folder / "rows.dlm").read_text() != text
    assert dlc("fmt", "rows.dlm").out == "rows.dlm\n"
    assert (folder / "rows.dlm").read_text() == text
    assert dlc("fmt", "--check", ".").code == 0


def test_only_passes_that_change_something_are_shown(dlc: Command, folder: Path) -> None:
    done = dlc("show", "rows.dlm", "--stage", "kernel", "--changed", "--dump-dir", "steps")
    shown = [line for line in done.out.split("\n") if line.startswith("// after ")]
    assert "// after lower_to_kernels" in shown
    assert "// after autodiff" not in shown
    files = sorted(path.name for path in (folder / "steps").iterdir())
    assert len(files) == len(shown)
    assert any(name.endswith("-lower_to_kernels.dlir") for name in files)


def test_ir_that_was_shown_is_compiled_to_the_same_numbers(dlc: Command, folder: Path) -> None:
    (folder / "rows.dlir").write_text(dlc("show", "rows.dlm").out)
    assert dlc("compile", "rows.dlir", "--from", "graph", "-o", "rows.dlc").code == 0
    given = ("--input", "x=[[1, 2, 3]]")
    assert dlc("run", "rows.dlc", *given).out == dlc("run", "rows.dlm", *given).out


def unlabelled(text: str) -> str:
    """IR without what kernels are called: that comes from locations, which printed IR leaves out."""
    return re.sub(r'label = "[^"]*"', "", text)


def test_ir_goes_on_from_its_level_and_not_back(dlc: Command, folder: Path) -> None:
    for level, before in (("kernel", "graph"), ("plan", "kernel"), ("loop", "plan")):
        (folder / "rows.dlir").write_text(dlc("show", "rows.dlm", "--stage", level).out)
        refused = dlc("show", "rows.dlir", "--stage", before)
        assert refused.code == 2
        assert f"rows.dlir is at {level} level, past {before}" in refused.err
        for stage in ("loop", "llvm"):
            shown, whole = (
                dlc("show", f"rows.{kind}", "--stage", stage) for kind in ("dlir", "dlm")
            )
            assert unlabelled(shown.out) == unlabelled(whole.out)


def test_passes_run_on_ir_by_name(dlc: Command, folder: Path) -> None:
    (folder / "rows.dlir").write_text(dlc("show", "rows.dlm").out)
    done = dlc("opt", "rows.dlir", "--passes", "canonicalize,cse,dce", "--verify-each")
    assert done.code == 0
    assert '"func.func"' in done.out
    assert dlc("opt", "rows.dlir", "-o", "out.dlir").out == ""
    assert (folder / "out.dlir").read_text() == (folder / "rows.dlir").read_text()


def test_an_artifact_and_a_text_are_inspected(dlc: Command) -> None:
    dlc("compile", "rows.dlm")
    text, artifact = dlc("inspect", "rows.dlm").out, dlc("inspect", "rows.dlc").out
    assert "f(x: f32[B, 3], y: f32[3] = [1.0, 2.0, 3.0]) -> (total: f32, rows: f32[B])" in text
    assert "B = 1..64" in artifact
    assert "code/cpu" in artifact


def test_a_new_model_compiles_runs_and_is_laid_out(dlc: Command, folder: Path) -> None:
    before = set(folder.iterdir())
    assert dlc("new", "first_model").out.startswith("wrote first_model.dlm\n")
    assert set(folder.iterdir()) - before == {folder / "first_model.dlm"}
    assert "exists already" in dlc("new", "first_model").err
    assert dlc("fmt", "--check", "first_model.dlm").code == 0
    assert dlc("run", "first_model.dlm", "--random-inputs", "0").code == 0


def test_doctor_warns_of_a_forced_blas_core(dlc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    assert "OPENBLAS_CORETYPE" not in dlc("doctor").out
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    assert "OPENBLAS_CORETYPE=Prescott overrules" in dlc("doctor").out


def test_functions_and_operations_are_listed_and_documented(dlc: Command) -> None:
    listed = dlc("ops", "sum").out
    assert "sum(x: tensor" in listed
    assert "array.reduce_sum" in listed
    assert "gives  [4, 6]" in dlc("doc", "sum").out
    assert "derivative: by a rule of its own" in dlc("doc", "array.matmul").out
    assert "scan x in xs" in dlc("doc", "scan").out


@together("code", every(4, sorted(PAGES)))
def test_every_error_code_is_explained(capsys: pytest.CaptureFixture[str], code: str) -> None:
    assert main(["explain", code]) == 0
    assert PAGES[code].title in capsys.readouterr().out


def test_the_operations_that_each_pass_leaves_are_counted(dlc: Command) -> None:
    done = dlc("opt", "rows.dlm", "--passes", "decompose,lower_to_kernels,fuse", "--print-op-stats")
    assert done.code == 0, done.err
    assert done.out.startswith("before the first pass\n  array: ")
    assert "\nlower_to_kernels: " in done.out and "  kernel.generic  0 -> " in done.out
    assert "\nafter the last pass\n" in done.out
    data = cast("dict[str, object]", dlc("compile", "rows.dlm", "--print-op-stats", "--json").data)
    rows = cast("list[dict[str, object]]", data["ops"])
    assert rows[0]["pass"] is None and rows[-1]["pass"] == "lower_to_loops"
