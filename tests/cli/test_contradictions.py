"""Options that contradict each other or have no meaning here are refused: nothing is ignored silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command

MODEL = """\
dlc 1
import nn (Linear)
dim B = 1..8
module Net(hidden = 4) {
  use a = Linear(3, hidden)
  param w: f32[hidden, 2] = ones()
  export fn f(x: f32[B, 3], n: i32[2]) -> (y: f32[B, 2], m: i32[2]) = (y = a(x) @ w, m = n)
}
"""
TWO = """\
dlc 1
dim B = 1..8
export fn twice(x: f32[2*B]) -> f32[2*B] = x + x
export fn taken(x: f32[2], i: i32[9]) -> f32[9] = x[i]
export fn shifted(x: f32[4], i: i32[9]) -> f32[9] = x[i + 1]
"""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("run m.dlm --weights init:1 --weights init:2", "--weights is given twice"),
        ("run m.dlm --entry f --random-inputs 0 --entry=f", "--entry is given twice"),
        ("run gone.dlc --threads 1 --threads 2", "--threads is given twice"),
        ("compile m.dlm -o a.dlc --out b.dlc", "--out is given twice"),
        ("run m.dlm --dim B=2 --input x=[[1,2,3]] --random-inputs 0", "but x has 1 for B"),
        ("run two.dlm --entry twice --dim B=2 --input x=[1,2]", "--dim B=2, but x has 1 for B"),
        ("run m.dlm f", "an entry point is named by --entry f"),
        ("run m.dlm --interpret --threads 1 --random-inputs 0", "--threads is about compiled code"),
        ("run m.dlm --check-nan --max-memory 1GiB --random-inputs 0", "--max-memory is about"),
        ("run m.dlm --check-nan --verify-each --random-inputs 0", "--verify-each is about"),
        ("run m.dlm --grad y:n --random-inputs 0", "n of f is i32[2], and integers and bools have"),
        ("run m.dlm --grad m:x --random-inputs 0", "m of f is i32[2], and integers and bools have"),
        ("show m.dlm --stage text --svg", "--svg is about passes"),
        ("show m.dlm --stage text --after cse", "--after is about passes"),
        ("show m.dlm --svg --changed", "--changed and --svg ask for different things"),
        ("show m.dlm --after cse --changed", "--after and --changed ask for different things"),
        ("show m.dlm --short --svg", "--short is a spelling of IR, and --svg shows none"),
        ("show m.dlm --short --stage llvm", "and --stage llvm shows none"),
        ("show m.dlm --after canonicalise", "did you mean canonicalize?"),
        ("show m.dlm --after fuse", "fuse does not run on the way to stage graph"),
        ("compile m.dlm --target gpu", "use cpu, cpu:NAME with one of host, x86-64,"),
        ("compile m.dlm --target cpu:abacus", "there are host, x86-64,"),
        ("compile m.dlm --disable-pass fuze", "did you mean fuse?"),
        ("opt m.dlm --passes fuze", "did you mean fuse?"),
        ("opt m.dlm --passes fuse{max_input=4}", "did you mean max_inputs?"),
        ("opt m.dlm --passes fuse{max_inputs=few}", "give it an integer of at least 1"),
        ("opt m.dlm --passes fuse", "put autodiff, decompose, lower_to_kernels before it"),
        ("opt m.dlm --passes plan_memory", "put autodiff, decompose, lower_to_kernels before it"),
        (
            "opt m.dlm --passes lower_to_loops",
            "put autodiff, decompose, lower_to_kernels, plan_memory before it",
        ),
        (
            "opt m.dlm --passes autodiff,decompose,lower_to_kernels,plan_memory,fuse",
            "fuse works at kernel level, and m.dlm is at plan level when its turn comes",
        ),
        (
            "opt m.dlm --passes autodiff,decompose,lower_to_kernels,algebra",
            "algebra works at graph level, and m.dlm is at kernel level when its turn comes",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(
    dlc: Command, folder: Path, command: str, said: str
) -> None:
    (folder / "m.dlm").write_text(MODEL)
    (folder / "two.dlm").write_text(TWO)
    done = dlc(*command.split())
    assert said in done.err
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize("command", ["run --random-inputs 0", "diff"])
def test_random_indices_that_are_out_of_range_have_a_way_out(
    dlc: Command, folder: Path, command: str
) -> None:
    (folder / "two.dlm").write_text(TWO)
    done = dlc(*command.split(), "two.dlm", "--entry", "shifted")
    assert "D0807" in done.err
    assert "--input NAME=zeros gives other integers" in done.err
    assert dlc(*command.split(), "two.dlm", "--entry", "taken").code == 0


def test_names_of_passes_may_have_blanks_between_them(dlc: Command) -> None:
    plain = dlc("opt", "rows.dlm", "--passes", "canonicalize,dce")
    assert plain.code == 0
    assert dlc("opt", "rows.dlm", "--passes", " canonicalize, dce ").out == plain.out


def test_what_is_printed_short_is_read_as_what_it_is(dlc: Command, folder: Path) -> None:
    short = dlc("opt", "rows.dlm", "--passes", "autodiff,decompose,lower_to_kernels", "--short")
    (folder / "short.dlir").write_text(short.out)
    assert short.out.lstrip().startswith("func @")
    full = dlc("opt", "rows.dlm", "--passes", "autodiff,decompose,lower_to_kernels")
    assert dlc("opt", "short.dlir").out == full.out != short.out
    assert dlc("show", "short.dlir", "--stage", "kernel").out == full.out
    assert dlc("show", "short.dlir", "--stage", "kernel", "--short").out == short.out


def test_every_pass_in_its_turn_is_ready(dlc: Command, folder: Path) -> None:
    (folder / "m.dlm").write_text(MODEL)
    passes = "autodiff,algebra,decompose,lower_to_kernels,fuse,pack,make_prepare"
    done = dlc("opt", "m.dlm", "--passes", f"{passes},lower_to_kernels,plan_memory,lower_to_loops")
    assert done.code == 0, done.err
    assert "loop." in done.out


@pytest.mark.parametrize("value", ["-3", "99999999999999999999"])
def test_a_wrong_setting_is_told_where_the_model_uses_it(
    dlc: Command, folder: Path, value: str
) -> None:
    (folder / "m.dlm").write_text(MODEL)
    done = dlc("check", "m.dlm", "--set", f"hidden={value}")
    assert done.code == 1
    assert "--> m.dlm:5:11" in done.err
    assert "note: found here: <layers/dense.dlm>" in done.err
    assert f"help: hidden is set to {value}: give another value" in done.err


def test_help_says_which_views_of_show_do_not_go_together(dlc: Command, folder: Path) -> None:
    for view in (("--after", "fuse"), ("--changed",)):
        refused = dlc("show", "rows.dlm", "--stage", "kernel", "--svg", *view)
        assert (refused.code, "D0915" in refused.err) == (2, True)
    said = " ".join(dlc("show", "--help").out.replace("│", " ").split())
    assert "without --after and --changed" in said
