"""What is said while something takes long, and how failures nobody foresaw are told."""

from __future__ import annotations

import errno
import io
import json
import sys
import time
import warnings

import pytest

from dlc.cli.report import Interrupted, guarded, print_json, progress
from dlc.errors import Diagnostic, Label, ModelError, SourceLocation, diagnostic_data
from dlc.errors.warn import warn


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


def test_a_warning_is_a_note_and_one_of_others_is_as_ever(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def warns() -> None:
        for _ in range(2):
            warn("the cache folder is not used")
        warnings.warn("of NumPy", RuntimeWarning, stacklevel=1)

    with pytest.warns(RuntimeWarning, match="of NumPy"):
        assert guarded(warns, as_json=False) == 0
    assert capsys.readouterr() == ("", "the cache folder is not used\n")


def test_an_error_is_also_an_object_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        declared = Label(SourceLocation("a.dlm", 1, 5, 6), "declared here")
        raise ModelError(
            [
                Diagnostic(
                    "D0321",
                    "f32[3] returned where i32[3] is expected",
                    SourceLocation("a.dlm", 2, 3, 9),
                    (declared,),
                    "yes",
                )
            ]
        )

    assert guarded(fails, as_json=True) == 1
    out, err = capsys.readouterr()
    assert "error[D0321]: f32[3] returned" in err
    assert json.loads(out) == {
        "errors": [
            {
                "code": "D0321",
                "severity": "error",
                "message": "f32[3] returned where i32[3] is expected",
                "file": "a.dlm",
                "line": 2,
                "column": 3,
                "end": 9,
                "found": "f32[3]",
                "expected": "i32[3]",
                "notes": [
                    {"message": "declared here", "file": "a.dlm", "line": 1, "column": 5, "end": 6}
                ],
                "help": "yes",
            }
        ]
    }


@pytest.mark.parametrize(
    ("message", "found", "expected"),
    [
        ("f32[B, 26] given where f32[B] is expected", "f32[B, 26]", "f32[B]"),
        ("f: x is f64[3], where f32[3] is expected", "f64[3]", "f32[3]"),
        ("a tuple of 2 set where f32[8] is expected", "a tuple of 2", "f32[8]"),
        ("f: input x has 17 axes where at most 16 are expected", "17 axes", "at most 16"),
        ("expected a tensor, found the number 3", "the number 3", "a tensor"),
        ("expected `)`, found the keyword let", "the keyword let", "`)`"),
        (
            "axis of sum is an axis or a list of axes, found f32[2]",
            "f32[2]",
            "an axis or a list of axes",
        ),
        ("limit is a number of examples; found 'x'", "'x'", "a number of examples"),
        ("relu takes 1 argument, found 2", "2", "1 argument"),
        ("300 does not fit i8, which holds -128 to 127", "300", "i8"),
        ("cannot multiply f32[2] by f32[3]: the inner sizes 2 and 3 differ", None, None),
    ],
)
def test_what_was_found_and_expected_is_told_where_a_message_says_so(
    message: str, found: str | None, expected: str | None
) -> None:
    data = diagnostic_data(Diagnostic("D0320", message))
    assert (data["found"], data["expected"]) == (found, expected)


def test_numbers_that_json_lacks_are_texts(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"loss": float("nan"), "rows": [(1.5, float("-inf"))]})
    assert json.loads(capsys.readouterr().out) == {"loss": "nan", "rows": [[1.5, "-inf"]]}


def test_an_interruption_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise Interrupted

    assert guarded(fails, as_json=True) == 130
    assert json.loads(capsys.readouterr().out) == {"errors": [], "interrupted": True}


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


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "D0998"),
        (OSError("Could not find/load shared object file 'libllvmlite.so'"), "D0921"),
    ],
)
def test_what_the_system_does_not_give_is_no_mistake_of_ours(
    error: OSError, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise error

    assert guarded(fails, as_json=False) != 0
    said = capsys.readouterr().err
    assert f"error[{code}]" in said and "mistake in dlc" not in said
