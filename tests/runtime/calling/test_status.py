"""Failures of a call as people read them: the line of the text, or the value's name; never a kernel's."""

from __future__ import annotations

import pytest

import dlc
from dlc.errors import CallError
from dlc.runtime.abi import CallWord, Status
from dlc.runtime.artifact.manifest import Op
from dlc.runtime.calling.status import call_error


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (Op("y", "m.dlm:2:1", "generic_0"), "f: the index 9 is"),
        (Op("generic_0", "m.dlm:2:1", "generic_0"), "f: the index 9 is"),
        (Op("y", "", "generic_0"), "f: y: the index 9 is"),
        (Op("generic_0", "", "generic_0"), "f: the index 9 is"),
        (Op("y", "other.dlm:2:1", "generic_0"), "other.dlm:2:1: f: y: the index 9 is"),
    ],
)
def test_a_failure_names_the_line_or_else_the_value(op: Op, said: str) -> None:
    words = [0] * CallWord.COUNT
    words[CallWord.STATUS], words[CallWord.STATUS_STEP] = Status.INDEX, 0
    words[CallWord.STATUS_A], words[CallWord.STATUS_B] = 9, 4
    (found,) = call_error("f", words, [op], lambda: {"m.dlm": "dlc 1\ny = x[i]"}).diagnostics
    assert found.message.startswith(said)
    assert (found.place is None) == (op.place != "m.dlm:2:1")


def test_a_failure_in_what_weights_alone_decide_shows_the_line() -> None:
    model = dlc.compile(
        text="dlc 1\n"
        "module M() {\n"
        "  param table: f32[4, 3] = zeros()\n"
        "  param ids: i32[2] = constant(9)\n"
        "  export fn f(x: f32) -> f32[2, 3] = table[ids * 2] * 2 + x\n"
        "}\n"
    )
    with pytest.raises(CallError) as caught:
        model["f"](1)
    (found,) = caught.value.diagnostics
    assert found.message.startswith("computing from the weights alone: the index 18 is out of")
    assert "table[ids * 2]" in caught.value.render()
    assert found.place is not None and found.place.line == 5
