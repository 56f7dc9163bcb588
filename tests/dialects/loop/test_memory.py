"""The memory of evaluated loops: what a kernel may reach, and what is there before it writes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dlc.dialects import loop, scalar, vec
from dlc.dialects.loop.memory import BadAccess, MemoryRange
from dlc.evaluation.loop import run_tile
from dlc.ir.core import Block, Builder, Value
from dlc.ir.types import F32, INDEX, POINTER, VectorType
from tests.lowering.everywhere import HERE


def run(write: Callable[[Builder, Value], object], memory: MemoryRange) -> None:
    """Run a kernel that does one thing with a pointer to a memory."""
    block = Block([INDEX, INDEX, POINTER])
    emit = Builder(block, HERE)
    write(emit, block.arguments[2])
    emit.place(loop.Return())
    run_tile(loop.Func(block, "kernel"), [memory], (), 0)


def index(emit: Builder, place: int) -> Value:
    return emit(scalar.Constant(place, INDEX))


def number(emit: Builder, value: float) -> Value:
    return emit(scalar.Constant(value, F32))


def memory(*values: float, writable: bool = True) -> MemoryRange:
    return MemoryRange("x", np.array(values, np.float32).view(np.uint8), writable)


@pytest.mark.parametrize("place", [-1, 4, 1 << 20])
def test_an_access_outside_its_memory_names_the_operation_and_the_memory(place: int) -> None:
    with pytest.raises(BadAccess, match=rf"loop\.store at program.*reaches bytes {4 * place} .* x"):
        run(
            lambda emit, x: emit.place(loop.Store(number(emit, 1), x, index(emit, place))),
            memory(0, 0, 0, 0),
        )


def test_a_register_that_is_half_outside_is_outside() -> None:
    with pytest.raises(BadAccess, match=r"vec\.load"):
        run(
            lambda emit, x: emit(vec.Load(x, index(emit, 2), VectorType(F32, 4))),
            memory(0, 0, 0, 0),
        )


def test_memory_that_is_only_read_is_not_written() -> None:
    with pytest.raises(BadAccess, match="which is only read"):
        run(
            lambda emit, x: emit.place(loop.Store(number(emit, 1), x, index(emit, 0))),
            memory(0, writable=False),
        )


def test_what_nothing_has_written_is_not_a_number() -> None:
    def copy_from_room(emit: Builder, x: Value) -> None:
        room = emit(loop.Buffer(4, F32))
        emit.place(loop.Store(number(emit, 5), room, index(emit, 1)))
        emit.place(
            vec.Store(emit(vec.Load(room, index(emit, 0), VectorType(F32, 4))), x, index(emit, 0))
        )

    x = memory(1, 2, 3, 4)
    run(copy_from_room, x)
    assert np.array_equal(x.data.view(np.float32), [np.nan, 5, np.nan, np.nan], equal_nan=True)


def test_lanes_are_combined_by_halves() -> None:
    def total(emit: Builder, x: Value) -> None:
        register = emit(vec.Load(x, index(emit, 0), VectorType(F32, 4)))
        emit.place(loop.Store(emit(vec.Reduce(register, "add")), x, index(emit, 0)))

    x = memory(1e8, 1, -1e8, 3)
    run(total, x)
    # (1e8 - 1e8) + (1 + 3): the order in which f32 loses nothing.
    assert x.data.view(np.float32)[0] == 4
