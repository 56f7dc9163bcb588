"""The collector of text cases: a case that is wrong must fail, and --update must repair it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.errors import Diagnostic, ModelError, SourceLocation
from tests.cases import golden, runner

pytest_plugins = ["pytester"]

TWO_CASES = """\
// RUN: shout,shout
// words become loud
hello
// ---
HELLO!!
// -----
// PRINT
hello
// ---
hello
"""


def shout(case: golden.Case) -> str:
    """A stand-in for the compiler: the last line, in capitals with one `!` for each pass."""
    for number, line in enumerate(case.text.split("\n"), 1):
        if line.startswith("bad"):
            raise ModelError(
                [Diagnostic("D0101", "this is bad", SourceLocation("case.dlir", number, 1))]
            )
    word = case.text.split("\n")[-2]
    loud = case.options.get("mark", "!") * len(case.passes.split(","))
    return word.upper() + loud + "\n" if case.passes else word + "\n"


def only(text: str) -> golden.Case:
    [case] = golden.split(text)
    return case


def test_a_file_is_split_into_its_cases() -> None:
    loud, plain = golden.split(TWO_CASES)
    assert (loud.line, loud.title, loud.passes) == (1, "words become loud", "shout,shout")
    assert loud.expected == "HELLO!!"
    assert (plain.line, plain.title, plain.passes) == (7, "line 7", "")
    assert [golden.check(case, shout) for case in (loud, plain)] == [None, None]


def test_what_passes_are_told_follows_their_names() -> None:
    case = only("// RUN: shout --mark=?\nhello\n// ---\nHELLO?\n")
    assert (case.passes, case.options) == ("shout", {"mark": "?"})
    assert golden.check(case, shout) is None


def test_another_output_is_shown_as_a_difference() -> None:
    failure = golden.check(only("// RUN: shout\nhello\n// ---\nHELLO?\n"), shout)
    assert failure is not None
    assert failure.endswith("-HELLO?\n+HELLO!")


def test_a_case_that_states_nothing_fails() -> None:
    failure = golden.check(only("// RUN: shout\nhello\n"), shout)
    assert failure is not None
    assert "neither output nor error" in failure


def test_a_stated_error_is_met_at_its_line() -> None:
    assert golden.check(only("// PRINT\nbad  // error: is bad\n"), shout) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("// PRINT\nfine  // error: is bad\n", "no error was reported"),
        ("// PRINT\nfine  // error: is bad\nbad\n", "missing at line 2: is bad"),
        ("// PRINT\nbad  // error: is good\n", "missing at line 2: is good"),
        ("// PRINT\nbad  // error: is good\n", "unforeseen: case.dlir:2:1: error[D0101]"),
    ],
)
def test_an_error_elsewhere_or_of_another_kind_fails(text: str, complaint: str) -> None:
    failure = golden.check(only(text), shout)
    assert failure is not None
    assert complaint in failure


@pytest.mark.parametrize(
    "text", ["hello\n", "// RUN:\nhello\n", "// PRINT\nbad  // error: bad\n// ---\nbad\n"]
)
def test_a_badly_written_case_is_refused(text: str) -> None:
    with pytest.raises(golden.BadCase, match="line 1: a case"):
        golden.split(text)


def test_update_replaces_one_output_and_keeps_the_rest() -> None:
    assert golden.with_output(TWO_CASES, 0, "HELLO!!\n") == TWO_CASES
    changed = golden.with_output(TWO_CASES, 1, "bye\n")
    assert [case.expected for case in golden.split(changed)] == ["HELLO!!", "bye"]
    assert golden.with_output("// PRINT\nhello\n", 0, "hello\n").endswith("hello\n// ---\nhello\n")


def test_pytest_runs_and_updates_the_cases(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run_case", shout)
    pytester.makeconftest("from tests.conftest import *")
    file = pytester.mkdir("cases") / "words.dlir"
    file.write_text(TWO_CASES.replace("HELLO!!", "HELLO"), encoding="utf-8")
    before = pytester.runpytest_inprocess()
    before.assert_outcomes(passed=1, failed=1)
    before.stdout.fnmatch_lines(["*words.dlir:1: words become loud", "-HELLO", "+HELLO!!"])
    pytester.runpytest_inprocess("--update").assert_outcomes(passed=2)
    assert Path(file).read_text(encoding="utf-8") == TWO_CASES
    pytester.runpytest_inprocess().assert_outcomes(passed=2)
