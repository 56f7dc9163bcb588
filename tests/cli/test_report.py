"""What is said while something takes long, and how failures nobody foresaw are told."""

from __future__ import annotations

import io
import json
import sys
import time

import pytest

from dlc.cli.report import guarded, progress
from dlc.errors import ModelError, Place


class Terminal(io.StringIO):
    """A stream that a person watches."""

    def isatty(self) -> bool:
        return True


def test_what_takes_more_than_a_second_is_said_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress("compiling a.dlm"):
        pass
    assert capsys.readouterr() == ("", "")
    with progress("compiling a.dlm"):
        time.sleep(1.02)
    out, err = capsys.readouterr()
    assert (out, err[:17]) == ("", "compiling a.dlm 1")


def test_a_person_sees_it_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("compiling a.dlm"):
        time.sleep(1.7)
    lines = terminal.getvalue().split("\r")
    assert len(lines) >= 3
    assert all(line.startswith("compiling a.dlm") for line in lines[1:])
    assert lines[-1].endswith(" s\n")


def test_an_error_is_also_an_object_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise ModelError("no", code="D0301", place=Place("a.dlm", 2, 3), help="yes")

    assert guarded(fails, as_json=True) == 1
    out, err = capsys.readouterr()
    assert "error[D0301]: no" in err
    assert json.loads(out) == {
        "errors": [
            {
                "code": "D0301",
                "severity": "error",
                "message": "no",
                "file": "a.dlm",
                "line": 2,
                "column": 3,
                "help": "yes",
            }
        ]
    }


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RuntimeError("odd"), 70, "error[D0999]: RuntimeError at dlc"),
        (RecursionError("deep"), 70, "error[D0999]: RecursionError at dlc"),
        (MemoryError(), 70, "error[D0998]: the system has no more memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ModuleNotFoundError("no", name="llvmlite.binding"), 2, "llvmlite is not installed"),
        (ModuleNotFoundError("no", name="dlc.nothing"), 70, "error[D0999]: ModuleNotFoundError"),
        (OSError(5, "Input/output error"), 2, "cannot write the output: input/output error"),
        (OSError(13, "Permission denied"), 70, "error[D0999]: PermissionError"),
    ],
)
def test_every_failure_has_a_code_and_no_traceback(
    capfd: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    def fails() -> None:
        raise error

    assert guarded(fails, as_json=False) == code
    err = capfd.readouterr().err
    assert said in err
    assert "Traceback" not in err
