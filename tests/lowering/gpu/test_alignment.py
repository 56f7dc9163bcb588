"""Registers are moved by one instruction where addresses are surely multiples of their size."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlc.dialects import array, mem, vec
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Shape, Size, known_multiple, symbol
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import BF16, F32, F64, U8, DType, TensorType, ViewType
from dlc.lowering.kernel_code.alignment import start_of, unit_of
from tests.lowering.everywhere import HERE, Program, function_of
from tests.targets import ON_GPU

B = symbol("B")


@pytest.mark.parametrize(
    ("size", "multiple"),
    [(0, 0), (12, 12), (B, 1), (16 * B, 16), (16 * B + 4, 4), (8 * B * B - 12 * B, 4)],
)
def test_a_size_is_a_multiple_of_what_all_its_terms_are(size: Size, multiple: int) -> None:
    assert known_multiple(size) == multiple


@pytest.mark.parametrize(
    ("offset", "steps", "start"),
    [(0, (), 16), (64, (), 16), (8, (), 8), (4 * B, (), 4), (32, (20,), 4), (0, (48 * B,), 16)],
)
def test_a_view_begins_where_its_offset_and_its_steps_let_it(
    offset: Size, steps: Shape, start: int
) -> None:
    emit = Builder(Block(), HERE)
    root = emit(mem.Root("arena", 0, 1024, offset=0))
    counters = tuple(range(len(steps)))
    view = emit(mem.View(root, ViewType(F32, (4,)), offset, counters, steps))
    assert start_of(view) == start


@pytest.mark.parametrize(
    ("dtype", "strides", "offset", "unit"),
    [
        (F32, (1,), 0, 16),
        (F32, (1,), 8, 8),
        (F32, (6, 1), 0, 8),
        (U8, (6, 1), 0, 2),
        (F32, (B, 4, 1), 16, 4),
        (F64, (), 0, 16),
    ],
)
def test_rows_of_a_view_begin_where_its_offset_and_its_strides_let_them(
    dtype: DType, strides: Shape, offset: int, unit: int
) -> None:
    emit = Builder(Block(), HERE)
    root = emit(mem.Root("arena", 0, 1024, offset=0))
    view = emit(mem.View(root, ViewType(dtype, (2,) * len(strides), strides), offset, (), ()))
    assert unit_of(view) == unit


def with_its_square(emit: Builder, x: Value) -> Sequence[Value]:
    return (emit(array.Add(x, emit(array.Multiply(x, x)))),)


def with_a_row(emit: Builder, x: Value) -> Sequence[Value]:
    row = emit(array.Reshape(emit(array.Slice(x, (0, 0), (1, 6), (1, 1))), (6,)))
    return (emit(array.Add(x, emit(array.Broadcast(row, (5, 6), (1,))))),)


@pytest.mark.parametrize(
    ("length", "dtype", "lanes"),
    [(100, F32, 4), (101, F32, 4), (101, F64, 2), (101, BF16, 8), (101, U8, 16)],
)
def test_dense_arrays_are_read_16_bytes_at_a_time(length: int, dtype: DType, lanes: int) -> None:
    assert {*registers(TensorType(dtype, (length,)), with_its_square)} == {(lanes, 16)}


def test_groups_end_with_their_row() -> None:
    assert {*registers(TensorType(F32, (5, 6)), with_a_row)} == {(2, 8)}


def test_long_rows_are_read_16_bytes_at_a_time_to_their_end() -> None:
    """The loop that takes what is left begins where the one before has ended."""

    def total(emit: Builder, x: Value) -> Sequence[Value]:
        return (emit(array.ReduceSum(x, (1,))),)

    found = registers(TensorType(F32, (2, 20004)), total)
    assert len(found) > 4
    assert {*found} == {(4, 16)}


def registers(type: TensorType, program: Program) -> list[tuple[int, int | None]]:
    """The lanes and the alignment of each load of a register in a program for a GPU."""
    module, _ = function_of(program, [type], {})
    manager = Manager(Context(options=Options(target=ON_GPU)))
    manager.run(module, pipeline("graph", "loop", 2, Device.CUDA))
    loads = [op for op in module.walk() if isinstance(op, vec.Load)]
    return [(op.type.lanes, op.alignment) for op in loads]
