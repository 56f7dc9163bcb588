"""All-reduces under way: each is waited for once, with what it began."""

from __future__ import annotations

import pytest

from dlc.driver.source.open import read_ir
from dlc.errors import ModelError
from dlc.ir.verify import verify


@pytest.mark.parametrize(
    "ends",
    [
        "return %a",
        "%b = comm.wait %a, %r\n    %c = comm.wait %a, %r\n    return %b, %c",
        "%b = comm.wait %a, %r\n    return %a",
    ],
)
def test_a_start_is_waited_for_once(ends: str) -> None:
    text = f"""\
func @f(%x: f32[8]) {{
    %a, %r = comm.start_all_reduce %x {{mesh_axis="data", ranks=2}}
    {ends}
}}
"""
    with pytest.raises(ModelError, match=r"is waited for by one comm\.wait of its block"):
        verify(read_ir(text, "f.dlir"))


def test_a_wait_takes_what_was_begun() -> None:
    text = """\
func @f(%x: f32[8], %r: i64[1]) {
    %a = comm.wait %x, %r
    return %a
}
"""
    with pytest.raises(ModelError, match=r"takes the requests of a comm\.start_all_reduce"):
        verify(read_ir(text, "f.dlir"))
