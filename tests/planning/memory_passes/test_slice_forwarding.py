"""Parts of arrays that products read where they lie."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlc.dialects import array, kernel, mem
from dlc.dialects.kernel.pieces import Join, Subview
from dlc.ir.core import Builder, Value
from dlc.ir.dims import symbol
from dlc.ir.types import F32, TensorType
from tests.lowering.everywhere import Program, check
from tests.lowering.gpu.on_gpu import ROUNDING, compiled
from tests.planning.memory_passes.kernels import kernels
from tests.suites import every

X = TensorType(F32, (6, 8))
W = TensorType(F32, (8, 40))
V = TensorType(F32, (20, 16))


def product(emit: Builder, x: Value, w: Value) -> Value:
    return emit(array.MatMul(x, w))


def columns(emit: Builder, x: Value, start: int, width: int) -> Value:
    rows, _ = kernel.array_type(x).shape
    return emit(array.Slice(x, (0, start), (rows, start + width), (1, 1)))


def parts(program: Program, *types: TensorType) -> int:
    return sum(isinstance(op, Subview) for op in kernels(program, *types))


def halves(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
    both = emit(array.Tanh(product(emit, x, w)))
    return [product(emit, columns(emit, both, start, 20), v) for start in (0, 20)]


def test_the_halves_of_an_array_are_operands_where_they_lie() -> None:
    assert parts(halves, X, W, V) == 2
    check(halves, X, W, V)


@pytest.mark.parametrize(("second", "copied"), every(2, [(20, 0), (18, 1)]))
def test_a_gpu_reads_what_stays_in_units_of_16_bytes(second: int, copied: int) -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        both = emit(array.Tanh(product(emit, x, w)))
        return [product(emit, columns(emit, both, start, 20), v) for start in (0, second)]

    made = compiled(program, F32, (6, 8), (8, 40), (20, 16))
    calls = [op for op in made.all(mem.Call) if isinstance(op, mem.Call)]
    assert sum(call.kernel.name.startswith("generic") for call in calls) == copied
    assert made.error() <= ROUNDING[F32]


def test_rows_of_any_number() -> None:
    rows = TensorType(F32, (symbol("T"), 8))
    assert parts(halves, rows, W, V) == 2
    check(halves, rows, W, V, dims={"T": (1, 40)}, at=[{"T": 1}, {"T": 7}])


def test_a_part_of_what_may_be_empty_is_copied() -> None:
    rows = TensorType(F32, (symbol("E"), 8))
    assert parts(halves, rows, W, V) == 0
    check(halves, rows, W, V, dims={"E": (0, 40)}, at=[{"E": 0}, {"E": 7}])


def test_a_part_of_an_input_is_read_where_the_caller_has_it() -> None:
    def program(emit: Builder, x: Value, v: Value) -> Sequence[Value]:
        return (product(emit, columns(emit, x, 7, 20), v),)

    assert parts(program, TensorType(F32, (6, 33)), V) == 1
    check(program, TensorType(F32, (6, 33)), V)


def test_rows_in_the_middle_are_operands_where_they_lie() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        both = emit(array.Exp(product(emit, x, w)))
        some = emit(array.Slice(both, (2, 0), (5, 40), (1, 1)))
        return (product(emit, some, v), emit(array.ReduceSum(both, (0,))))

    wide = TensorType(F32, (40, 16))
    assert parts(program, X, W, wide) == 1
    check(program, X, W, wide)


def test_the_channels_of_a_picture_are_split_without_a_copy() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        picture = emit(array.Reshape(emit(array.Tanh(product(emit, x, w))), (2, 5, 5, 40)))
        halves = [
            emit(array.Slice(picture, (0, 0, 0, at), (2, 5, 5, at + 20), (1, 1, 1, 1)))
            for at in (0, 20)
        ]
        return [product(emit, emit(array.Reshape(half, (50, 20))), v) for half in halves]

    types = TensorType(F32, (50, 8)), W, V
    assert parts(program, *types) == 2
    check(program, *types)


def test_a_part_of_what_is_joined_from_pieces() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value, u: Value) -> Sequence[Value]:
        whole = emit(array.Concatenate([product(emit, x, w), product(emit, x, u)], 1))
        part = columns(emit, whole, 30, 20)
        return (product(emit, part, v), emit(array.ReduceSum(whole, (1,))))

    types = X, W, V, TensorType(F32, (8, 24))
    ops = kernels(program, *types)
    assert [sum(isinstance(op, kind) for op in ops) for kind in (Subview, Join)] == [1, 1]
    check(program, *types)


def test_every_other_column_is_copied() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        both = emit(array.Tanh(product(emit, x, w)))
        return (product(emit, emit(array.Slice(both, (0, 0), (6, 40), (1, 2))), v),)

    assert parts(program, X, W, V) == 0
    check(program, X, W, V)


def test_what_would_hold_a_large_array_for_longer_is_copied() -> None:
    def program(emit: Builder, x: Value, w: Value, v: Value) -> Sequence[Value]:
        large = emit(array.Tanh(product(emit, x, w)))
        total = emit(array.ReduceSum(large, (0, 1)))
        slow = product(emit, emit(array.Exp(x)), w)
        other = emit(array.Tanh(emit(array.Multiply(slow, wide(emit, total)))))
        weights = emit(array.Multiply(v, emit(array.Broadcast(most(emit, other), (20, 16), ()))))
        return (product(emit, columns(emit, large, 3, 20), weights),)

    def wide(emit: Builder, number: Value) -> Value:
        return emit(array.Broadcast(number, (64, 400), ()))

    def most(emit: Builder, x: Value) -> Value:
        return emit(array.ReduceMax(x, (0, 1)))

    types = TensorType(F32, (64, 8)), TensorType(F32, (8, 400)), V
    assert parts(program, *types) == 0
    check(program, *types)
