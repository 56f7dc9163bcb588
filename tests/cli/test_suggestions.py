"""A command that lacks something is answered with one that works, with all that was given."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Command, Done

MODEL = """\
dlc 1
dim B = 1..8
module Other() {
  export fn other(x: f32[3]) -> f32[3] = x
}
module Net(D, scale = 1.0) from "a file that is missing.npz" {
  param w: f32[D, 2] = normal(1.0)
  export fn f(x: f32[B, D], y: f32[2]) -> f32[B, 2] = scale * (x @ w) + y
  export fn g(x: f32[D]) -> f32[2] = x @ w
}
"""
SUGGESTION = re.compile(r"help: (?P<command>dlc .*) works;")


def pasted(dlc: Command, refused: Done) -> Done:
    """What the command gives that was suggested, as a shell reads it."""
    assert refused.code == 2
    found = SUGGESTION.search(refused.err)
    assert found is not None, refused.err
    name, *words = shlex.split(found["command"])
    assert name == "dlc"
    return dlc(*words)


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("--input", "y=[1, 2]", "--dim", "B=2", "--set", "scale=0.5"),
        ("--interpret", "-O1"),
        ("--json",),
        ("--output", "f=a file of results.npy"),
        ("--grad", "f:x"),
        ("--weights", "own.npz"),
    ],
)
def test_what_is_suggested_has_all_that_was_given_and_works(
    dlc: Command, folder: Path, given: tuple[str, ...]
) -> None:
    (folder / "a model.dlm").write_text(MODEL)
    if "--weights" in given:
        np.savez(folder / "own.npz", w=np.ones((3, 2), np.float32))
    chosen = ("--module", "Net", "--set", "D=3", "--entry", "f", *given)
    done = pasted(dlc, dlc("run", "a model.dlm", *chosen))
    assert done.code == 0, done.err
    if "--dim" in given:
        assert "f32[2, 2]" in done.out
    if "--output" in given:
        assert (folder / "a file of results.npy").exists()


def test_the_run_of_an_artifact_is_suggested_as_it_was_written(dlc: Command) -> None:
    assert dlc("compile", "rows.dlm").code == 0
    for given in ((), ("--dim", "B=2"), ("--dim=B=2",), ("--threads", "1", "--json")):
        done = pasted(dlc, dlc("run", *given, "rows.dlc"))
        assert done.code == 0
        assert ("f32[2]" in done.out) == ("B=2" in "".join(given))


def test_a_weight_that_only_a_missing_file_can_give_is_said_first(
    dlc: Command, folder: Path
) -> None:
    (folder / "only.dlm").write_text(
        'dlc 1\nmodule M() from "w.npz" {\n  param w: f32[2]\n'
        "  export fn f(x: f32[2]) -> f32[2] = x * w\n}\n"
    )
    done = dlc("run", "only.dlm")
    assert done.code == 1
    assert "w begins with a file: cannot read w.npz" in done.err
    assert "help: --weights FILE names another\n" in done.err


def test_what_is_inspected_has_the_chosen_parameters(dlc: Command, folder: Path) -> None:
    (folder / "a model.dlm").write_text(MODEL)
    refused = dlc("inspect", "a model.dlm", "--module", "Net")
    assert "help: give it: --set D=..." in refused.err
    done = dlc("inspect", "a model.dlm", "--module", "Net", "--set", "D=7")
    assert done.code == 0
    assert "f32[7, 2]" in done.out
    assert dlc("compile", "rows.dlm").code == 0
    refused = dlc("inspect", "rows.dlc", "--set", "D=7")
    assert (refused.code, refused.out) == (2, "")
    assert "no parameters any more" in refused.err
