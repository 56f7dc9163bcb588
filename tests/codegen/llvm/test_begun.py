"""Object files that further processes make are found like those of the cache."""

from __future__ import annotations

import sys

import pytest

from dlc.codegen.engine import assemble
from dlc.codegen.engine.assemble import begin_engine, engine_image
from dlc.codegen.llvm.background import Background
from dlc.codegen.llvm.begun import BegunObjects
from dlc.codegen.llvm.target_machine import compile_object, machine_of
from dlc.target.cpu import CpuTarget

TARGET = CpuTarget.named("x86-64-v3")
TEXT = "define i64 @f(i64 %x) {\n  ret i64 %x\n}\n"


class Kept:
    """A cache in memory."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = objects

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data


@pytest.mark.parametrize("processes", [True, False])
def test_who_gets_an_object_that_was_begun_gets_that_of_its_text(
    processes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not processes:
        monkeypatch.setattr(sys, "executable", "")
    cache = Kept()
    with Background() as background:
        objects = BegunObjects(cache, background)
        objects.begin("f", lambda: TEXT, machine_of(TARGET))
        objects.begin("f", lambda: "not read again", machine_of(TARGET))
        assert objects.get("f") == cache.get("f") == compile_object(TEXT, TARGET)
        assert objects.get("g") is None


def test_what_is_in_the_cache_is_not_begun() -> None:
    with Background() as background:
        objects = BegunObjects(Kept(f=b"kept"), background)
        objects.begin("f", lambda: "not read", machine_of(TARGET))
        assert objects.get("f") == b"kept"


def test_the_engine_that_was_begun_is_the_one_that_is_compiled_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assemble, "_MADE", {})
    here = engine_image()
    monkeypatch.setattr(assemble, "_MADE", {})
    cache = Kept()
    with Background() as background:
        objects = BegunObjects(cache, background)
        begin_engine(objects)
        assert engine_image(objects).code == here.code
    assert len(cache.objects) == 1
