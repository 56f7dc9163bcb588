"""Linking object files into an image, and what an image may not hold."""

from __future__ import annotations

import pytest

from dlc.codegen.image import Image, link
from dlc.codegen.llvm import Target, compile_object
from dlc.errors import InternalError

X86_64 = Target.named("x86-64")


def image(*texts: str, target: Target = X86_64) -> Image:
    return link({f"kernel{n}": compile_object(text, target) for n, text in enumerate(texts)})


def test_a_function_needs_nothing_but_its_bytes() -> None:
    found = image("define i64 @two() { ret i64 2 }")
    assert found.imports == ()
    assert dict(found.entries) == {"two": 0}
    assert found.code == bytes.fromhex("b802000000c3")
