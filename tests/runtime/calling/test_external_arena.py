"""A caller may lend a call its working memory; then a steady call allocates nothing at all."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import CallError
from dlc.runtime.calling import frames
from dlc.runtime.calling.external_arena import give_back, lend
from dlc.runtime.model import Model
from dlc.runtime.system.buffers import address, aligned_bytes

F32 = NDArray[np.float32]

TEXT = """dlc 1
dim B = 1..4096
export fn f(x: f32[B, 64]) -> f32[B, 64] = cumsum(sort(cumsum(x, axis=1), axis=1), axis=1)
export fn double(x: f32[4]) -> f32[4] = x * 2
"""
FAILING = """dlc 1
dim B = 1..64
export fn pick(x: f32[B, 64], at: i64) -> f32[64] = cumsum(cumsum(x, axis=0), axis=1)[at]
"""
X = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with dlc.compile(text=TEXT, threads=2) as model:
        yield model


@pytest.fixture(scope="module")
def wanted(model: Model) -> F32:
    return cast("F32", model.f(X))


def test_a_call_works_in_the_memory_that_is_lent(model: Model, wanted: F32) -> None:
    arena = model.f.new_arena(B=64)
    arena[:] = 0
    np.testing.assert_array_equal(cast("F32", model.f(X, arena=arena)), wanted)
    assert arena.any()


def test_as_much_is_needed_as_is_said(model: Model, wanted: F32) -> None:
    needed = model.f.working_memory(B=64)
    assert needed >= 2 * X.nbytes
    assert model.f.working_memory(B=1) < needed <= max(model.f.memory_at_bounds())
    block = aligned_bytes(needed + 64)
    block[needed:] = 7
    np.testing.assert_array_equal(cast("F32", model.f(X, arena=block[:needed])), wanted)
    assert (block[needed:] == 7).all()


def test_one_arena_serves_calls_that_take_less(model: Model) -> None:
    arena = model.f.new_arena(B=64)
    for rows in (3, 64, 1):
        part = np.ascontiguousarray(X[:rows])
        found, own = model.f(part, arena=arena), model.f(part)
        np.testing.assert_array_equal(cast("F32", found), cast("F32", own))


def test_a_model_that_needs_no_memory_takes_an_empty_arena(model: Model) -> None:
    arena = model.double.new_arena()
    assert model.double.working_memory() == len(arena) == 0
    np.testing.assert_array_equal(cast("F32", model.double(np.ones(4, np.float32), arena=arena)), 2)


def test_a_steady_call_allocates_nothing(model: Model) -> None:
    arena, out = model.f.new_arena(B=64), np.empty_like(X)
    model.f(X, out=out, arena=arena)
    tracemalloc.start()
    try:
        for _ in range(5):
            model.f(X, out=out, arena=arena)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(50):
            model.f(X, out=out, arena=arena)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What Python itself takes for the arguments of a call, and frees again.
    assert peak - before < 4096
    assert after - before < 512


def test_with_lent_memory_the_runtime_takes_none_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []

    def counted(length: int) -> NDArray[np.uint8]:
        taken.append(length)
        return aligned_bytes(length)

    monkeypatch.setattr(frames, "aligned_bytes", counted)
    with dlc.compile(text=TEXT, threads=1) as fresh:
        arena, out = fresh.f.new_arena(B=64), np.empty_like(X)
        for _ in range(3):
            fresh.f(X, out=out, arena=arena)
        assert sum(taken) == 0
        fresh.f(X, out=out)
        assert sum(taken) == fresh.f.working_memory(B=64)


def test_calls_side_by_side_each_work_in_their_own_memory(model: Model, wanted: F32) -> None:
    wrong: list[int] = []

    def work(arena: NDArray[np.uint8] | None) -> None:
        for round in range(20):
            if not np.array_equal(cast("F32", model.f(X, arena=arena)), wanted):
                wrong.append(round)

    arenas = [model.f.new_arena(B=64), model.f.new_arena(B=64), None]
    threads = [threading.Thread(target=work, args=(arena,)) for arena in arenas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_that_another_call_works_in_is_refused(model: Model, wanted: F32) -> None:
    arena = model.f.new_arena(B=64)
    inside = address(arena) + 64
    lend("another", inside, 64)
    try:
        with pytest.raises(CallError, match="the memory that another call works in") as caught:
            model.f(X, arena=arena)
    finally:
        give_back(inside)
    assert caught.value.diagnostics[0].code == "D0819"
    np.testing.assert_array_equal(cast("F32", model.f(X, arena=arena)), wanted)


def test_lent_memory_is_free_again_when_a_call_has_failed() -> None:
    with dlc.compile(text=FAILING) as failing:
        arena = failing.pick.new_arena(B=2)
        for _ in range(2):
            with pytest.raises(CallError) as caught:
                failing.pick(np.ones((2, 64), np.float32), np.int64(99), arena=arena)
            assert caught.value.diagnostics[0].code != "D0819"


def read_only(length: int) -> NDArray[np.uint8]:
    block = aligned_bytes(length)
    block.flags.writeable = False
    return block


UNFIT: dict[str, Callable[[int], object]] = {
    "arena= is a bytearray, and no array": bytearray,
    "arena= has the dtype int8, not uint8": lambda length: aligned_bytes(length).view(np.int8),
    "bytes, the call works in": lambda length: aligned_bytes(length - 1),
    "arena= is read-only": read_only,
    "or not contiguous": lambda length: aligned_bytes(2 * length)[::2],
    "begins 8 bytes behind a multiple of 64": lambda length: aligned_bytes(length + 64)[8:-56],
}


@pytest.mark.parametrize("message", UNFIT)
def test_memory_that_does_not_fit_is_refused(model: Model, message: str) -> None:
    lent = UNFIT[message](model.f.working_memory(B=64))
    with pytest.raises(CallError, match=message) as caught:
        model.f(X, arena=lent)
    (told,) = caught.value.diagnostics
    assert told.code == "D0817"
    assert told.help


def test_memory_of_an_argument_is_no_working_memory(model: Model) -> None:
    needed = model.f.working_memory(B=64)
    block = aligned_bytes(needed + X.nbytes)
    inside = block[: X.nbytes].view(np.float32).reshape(X.shape)
    assert address(inside) == address(block)
    with pytest.raises(CallError, match="shares memory with an input or output"):
        model.f(inside, arena=block)
    with pytest.raises(CallError, match="shares memory with an input or output"):
        model.f(X, out=inside, arena=block)


@pytest.mark.parametrize(
    ("sizes", "code", "message"),
    [
        ({}, "D0801", "the size B is missing"),
        ({"B": 1, "C": 2}, "D0801", "the size C does not exist"),
        ({"B": 5000}, "D0804", "B is 5000"),
    ],
)
def test_sizes_that_a_call_could_not_have_are_refused(
    model: Model, sizes: dict[str, int], code: str, message: str
) -> None:
    with pytest.raises(CallError, match=message) as caught:
        model.f.new_arena(**sizes)
    assert caught.value.diagnostics[0].code == code
