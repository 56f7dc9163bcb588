"""`dlc fmt` on several files, some of which cannot be read."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command

WRONG = "dlc 1\nfn a(x = x\n"
UGLY = "dlc 1\nfn b(x)=x\n"


def test_a_wrong_text_keeps_no_other_from_being_laid_out(dlc: Command, folder: Path) -> None:
    models = folder / "models"
    (models / "deep").mkdir(parents=True)
    (models / "a.dlm").write_text(WRONG)
    (models / "deep" / "b.dlm").write_text(UGLY)
    (models / "deep" / "c.dlm").write_text(WRONG)
    done = dlc("fmt", "models")
    assert (done.code, done.out) == (1, "models/deep/b.dlm\n")
    assert (models / "deep" / "b.dlm").read_text() == "dlc 1\nfn b(x) = x\n"
    assert "--> a.dlm:2:11" in done.err
    assert "--> deep/c.dlm:2:11" in done.err
    assert done.err.count("2 | fn a(x = x") == 2


def test_checking_and_laying_out_call_a_file_alike(dlc: Command, folder: Path) -> None:
    (folder / "models").mkdir()
    (folder / "models" / "a.dlm").write_text(WRONG)
    assert dlc("fmt", "models/a.dlm").err == dlc("check", "models/a.dlm").err
