"""What errors carry: diagnostics, and a help that is looked for when somebody reads them."""

from __future__ import annotations

import pickle

from dlc.errors import CallError


def test_a_help_that_takes_time_is_found_once_and_when_the_message_is_read() -> None:
    asked: list[int] = []

    def help() -> str:
        asked.append(1)
        return f"way {len(asked)}"

    error = CallError("it is so", code="D0804", help=help)
    same = error.anew()
    assert (asked, error.sources) == ([], {})
    assert "= help: way 1" in str(error)
    assert "= help: way 1" in str(error.anew())
    assert error.diagnostics[0].help == "way 1"
    assert same.diagnostics[0].help == "way 2"
    assert (type(same), same.diagnostics[0].code) == (CallError, "D0804")


def test_an_error_is_pickled_with_its_help() -> None:
    error = CallError("it is so", help=lambda: "go on")
    error.sources["net.dlm"] = "dlc 1"
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert "= help: go on" in str(copy)
    assert copy.sources == error.sources


def test_no_help_is_found() -> None:
    error = CallError("it is so", help=lambda: None)
    assert error.diagnostics[0].help is None
    assert "help" not in str(error)
