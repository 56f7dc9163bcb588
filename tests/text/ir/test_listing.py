"""The lines of operations in a printed text."""

from __future__ import annotations

import pytest

from dlc.driver.compile.compile import lower
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest
from dlc.text.ir.short import list_short, print_short

TEXT = """\
dlc 1
export fn f(x: f32[5]) -> f32 = scan a in x with s = 0 { next s = s + sin(a) }
export fn g(x: f32[5]) -> f32[5] = if sum(x) > 0 then sin(x) else cos(x)
"""


@pytest.mark.parametrize("stage", ["graph", "kernel", "plan", "loop"])
def test_each_operation_has_the_lines_on_which_it_stands(stage: str) -> None:
    model = CompileRequest("f.dlm", text=TEXT).open()
    lower(model, Settings(), stage)
    listing = list_short(model.module)
    assert listing.text == print_short(model.module)
    lines = listing.text.splitlines()
    for op, (first, last) in listing.lines.items():
        assert op.name.rpartition(".")[2] in lines[first - 1]
        if op.regions:
            indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
            assert lines[last - 1][indent] == "}"
        else:
            assert first == last
