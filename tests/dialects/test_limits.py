"""Limits as an attribute of a module."""

from __future__ import annotations

import pytest

from dlc.dialects.builtin import Module
from dlc.dialects.limits import Limit, attach_limits, read_limits
from dlc.errors import SourceLocation
from dlc.ir.location import FileLocation


@pytest.mark.parametrize("file", ["net.dlm", "", "a b.dlm", "x:3:4-5.dlm"])
def test_limits_are_read_as_they_were_attached_whatever_the_file_is_called(file: str) -> None:
    limits = (
        Limit("exact", SourceLocation(file, 3, 1, 12)),
        Limit("memory", SourceLocation(file, 4, 1, 22), 1 << 29),
    )
    module = Module.empty(FileLocation("net.dlm", 1, 1))
    attach_limits(module, limits)
    assert read_limits(module) == limits
