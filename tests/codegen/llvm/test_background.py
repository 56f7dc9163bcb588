"""Object files that further processes make are those that this one would make."""

from __future__ import annotations

import os
import subprocess

import pytest

from dlc.codegen.llvm import background
from dlc.codegen.llvm.background import Background
from dlc.codegen.llvm.target_machine import compile_object, machine_of
from dlc.driver.compile import compile as compiling
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import InternalError
from dlc.target.cpu import HOST, CpuTarget

TARGET = CpuTarget.named(HOST)
MACHINE = machine_of(TARGET)
MODEL = """dlc 1
export fn f(x: f32[8, 8]) -> f32[8, 8] = softmax(x @ x) + tanh(sum(x, axis=0))
"""


def text(number: int) -> str:
    """A function that returns a number."""
    return f"define i64 @f{number}() {{\n  ret i64 {number}\n}}\n"


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were a processor to spare, on any machine."""

    def two(_: int) -> set[int]:
        return {0, 1}

    monkeypatch.setattr(os, "sched_getaffinity", two)
    monkeypatch.setattr(background, "MOST_PROCESSES", 1)


def test_they_are_the_same_in_any_order() -> None:
    with Background() as compiling:
        jobs = [compiling.add(text(number), MACHINE) for number in range(20)]
        made = [compiling.result(job) for job in reversed(jobs)][::-1]
    assert made == [compile_object(text(number), TARGET) for number in range(20)]


def test_a_refused_text_gets_the_error_that_it_gets_here() -> None:
    with Background() as compiling:
        job = compiling.add("define void @f() { nonsense }", MACHINE)
        with pytest.raises(InternalError, match="LLVM refuses line 1"):
            compiling.result(job)


def test_what_an_ended_process_was_given_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PROGRAM", "raise SystemExit  # {folders}")
    with Background() as compiling:
        jobs = [compiling.add(text(number), MACHINE) for number in range(5)]
        assert [compiling.result(job) for job in jobs] == [
            compile_object(text(number), TARGET) for number in range(5)
        ]


def test_where_no_process_starts_it_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with Background() as compiling:
        assert compiling.result(compiling.add(text(7), MACHINE)) == compile_object(text(7), TARGET)


def test_the_processes_end_with_it_whatever_is_left_to_do() -> None:
    with Background() as compiling:
        for number in range(20):
            compiling.add(text(number), MACHINE)
        processes = list(compiling.processes)
    assert processes
    assert all(process.poll() is not None for process in processes)


def test_an_artifact_has_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_CACHE", "")
    request = CompileRequest("f.dlm", text=MODEL)
    here = make_artifact(request).artifact.to_bytes()
    monkeypatch.setattr(compiling, "MANY_OPERATIONS", 1)
    assert make_artifact(request).artifact.to_bytes() == here
