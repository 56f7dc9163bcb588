"""Each thread that the pool asks for fails to start in turn: calls go on with those there are."""

from __future__ import annotations

import ctypes
import errno
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dlc.codegen.engine.assemble import ENTRY, engine_image
from dlc.runtime.abi import CallWord, Status
from dlc.runtime.cpu import executable_memory, threads
from dlc.runtime.cpu.executable_memory import Engine, load_engine
from tests.codegen.assembly import Call, digest
from tests.codegen.engine.test_programs import chain, chained, words

THREADS = 6
WAVES = 20

_STARTER = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
_create = ctypes.CDLL(None).pthread_create
_create.argtypes = [ctypes.c_void_p] * 4


@dataclass
class Starts:
    """`pthread_create`, of which call number `at` fails, with `onwards` all after it, too."""

    at: int = 0
    onwards: bool = False
    made: int = 0
    started: int = 0
    callback: Any = field(init=False)

    def __post_init__(self) -> None:
        self.callback = _STARTER(self._start)

    def _start(self, *arguments: int) -> int:
        self.made += 1
        if self.made == self.at or (self.onwards and self.made > self.at):
            return errno.EAGAIN
        self.started += 1
        return _create(*arguments)

    @property
    def address(self) -> int:
        address = ctypes.cast(self.callback, ctypes.c_void_p).value
        assert address is not None
        return address


KEPT: list[Starts] = []
"""Threads of the pool may start others until the process ends."""


@pytest.fixture
def starts() -> Starts:
    KEPT.append(Starts())
    return KEPT[-1]


@pytest.fixture
def engine(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine of its own, whose threads `starts` starts."""
    find = executable_memory._function  # pyright: ignore[reportPrivateUsage]

    def address(name: str) -> int:
        return starts.address if name == "pthread_create" else find(name)

    monkeypatch.setattr(executable_memory, "_engines", {})
    monkeypatch.setattr(executable_memory, "_function", address)
    image = engine_image()
    return load_engine(image.code, digest(image.code), image.imports, image.entries[ENTRY])


def used(engine: Engine, call: Call) -> int:
    """How many threads a call has used, which gave the right answer."""
    call.arena[:] = words(32)
    call.words[CallWord.THREADS] = THREADS
    call.words[CallWord.STOP_AFTER] = -1
    assert engine.enter(call.words.ctypes.data) == Status.OK
    np.testing.assert_array_equal(call.arena, chained(WAVES))
    return int(call.words[CallWord.USED])


@pytest.mark.parametrize("onwards", [False, True], ids=["once", "onwards"])
def test_a_thread_that_does_not_start_costs_no_call(
    engine: Engine, starts: Starts, onwards: bool
) -> None:
    for at in range(1, THREADS + 1):
        call = Call(chain(WAVES), words(32))
        call.words[CallWord.POOL] = threads._new_pool()  # pyright: ignore[reportPrivateUsage]
        starts.at, starts.onwards, starts.made, starts.started = at, onwards, 0, 0
        assert used(engine, call) <= at  # the caller and those before the one that failed
        failed = at < THREADS
        assert starts.made == min(at, THREADS - 1)
        assert starts.started == starts.made - failed
        starts.at, starts.onwards = 0, False
        used(engine, call)
        assert starts.started == THREADS - 1  # the next call asks for those that are missing
        assert used(engine, call) == THREADS
        assert starts.made == THREADS - 1 + failed
