"""Compiled code writes no byte of the arena but those of its values, and reads no others that matter.

AddressSanitizer puts red zones around arrays. Here the planner does: every buffer lies apart from the next,
with poison between them. The poison must be there after a call, and the results must have the same bits as
with the usual plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.fuzz import texts
from dlc.dialects.expr import Expr
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.errors import CallError
from dlc.lowering.cpu import generic
from dlc.planning import kernel_to_plan
from dlc.planning.arena import align
from dlc.planning.offset_assignment import ArenaOffsets, LiveBuffer
from dlc.runtime.model import Model
from dlc.runtime.system.buffers import aligned_bytes
from tests.runtime.cpu.guard_pages import POISON
from tests.runtime.cpu.guarded_runs import bits_of
from tests.suites import every

RED = 256
"""Bytes between two buffers: more than a vector, so that code does not step over them."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The bits of the results of an entry point, and its working memory, which was poisoned before."""

    results: Sequence[NDArray[np.generic]]
    memory: NDArray[np.uint8]


def placed_apart(patch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    """Let the planner place buffers apart; gives the spans of bytes of each function that is planned."""
    spans: list[list[tuple[int, int]]] = []

    def apart(
        buffers: Sequence[LiveBuffer], cases: Sequence[Mapping[str, int]], *_: object
    ) -> ArenaOffsets:
        offsets: dict[int, int] = {}
        spans.append([])
        end = start = 0
        for live in buffers:
            size = live.buffer.bytes
            assert isinstance(size, int)
            offsets[live.buffer.number] = start
            spans[-1].append((start, start + size))
            end = start + align(max(1, size))
            start = end + RED
        return ArenaOffsets(offsets, {}, end)

    patch.setattr(kernel_to_plan, "assign_offsets", apart)
    return spans


def run(case: texts.Case, level: int) -> list[Ran]:
    """What the entry points of a program give."""
    source = open_model("m.dlm", text=case.text(case.dtype))
    model = Model(compile_model(source, Settings(level)), threads=1)
    found: list[Ran] = []
    for entry in model.entry_points.values():
        memory = aligned_bytes(entry.working_memory())
        memory[:] = POISON
        given = case.arrays(0, case.dtype)
        found.append(Ran(bits_of(entry(*given, arena=memory)), memory))
    return found


def check(seed: int) -> int:
    """Run a random program with both plans; how many of its buffers lay apart."""
    case, level = texts.random_case(seed), seed % 4
    if case.program.dims:
        return 0
    try:
        usual = run(case, level)
    except CallError:  # an element that is not there
        return 0
    with pytest.MonkeyPatch.context() as patch:
        spans = placed_apart(patch)
        patch.setenv("DLC_CACHE", "")
        found = run(case, level)
    for one, other, buffers in zip(usual, found, spans, strict=True):
        for wanted, result in zip(one.results, other.results, strict=True):
            np.testing.assert_array_equal(result, wanted)
        # Behind the last buffer lies the scratch of the threads.
        between = np.zeros(len(other.memory), np.bool_)
        between[: max([end for _, end in buffers], default=0)] = True
        for first, end in buffers:
            between[first:end] = False
        written = np.flatnonzero(between & (other.memory != POISON))
        assert not len(written), f"byte {written[0]} was written between the buffers {buffers}"
    return sum(map(len, spans))


@pytest.mark.parametrize("first", every(20, range(0, 200, 10)))
def test_programs_write_nothing_between_the_values_of_the_arena(first: int) -> None:
    assert sum(map(check, range(first, first + 10))) > 5


def test_a_row_too_many_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = generic.minimum

    def wrong(one: Expr, other: Expr) -> Expr:
        return right(one, other) + 1

    monkeypatch.setattr(generic, "minimum", wrong)
    monkeypatch.setenv("DLC_CACHE", "")
    with pytest.raises(AssertionError, match="was written between the buffers"):
        list(map(check, range(10)))
