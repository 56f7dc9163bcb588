"""Threads of a warp hold matrices as the PTX ISA says, and multiply them."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects import fragments, loop, scalar, simt, vec
from dlc.dialects.expr import Expr
from dlc.dialects.loop.memory import MemoryRange
from dlc.dialects.simt import WARP
from dlc.errors import DlcError
from dlc.evaluation.gpu.warps import Launch
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Array, Block, Builder, Value
from dlc.ir.location import FileLocation
from dlc.ir.types import BF16, F16, F32, F64, INDEX, POINTER, DType, Type, VectorType

HERE = FileLocation("kernel.dlm", 1, 1)

# The layouts, in the words of the PTX ISA (9.7.14.5.8 and 9.7.14.5.7, "Matrix Fragments for mma..."): for
# thread `lane`, groupID = lane >> 2 and threadID_in_group = lane % 4.


def rows_of_lhs(lane: int, i: int) -> int:
    """For .f16 and .bf16: groupID for ai where 0 <= i < 2 || 4 <= i < 6, groupID + 8 otherwise."""
    return (lane >> 2) + (0 if i < 2 or 4 <= i < 6 else 8)


def columns_of_lhs(lane: int, i: int) -> int:
    """(threadID_in_group * 2) + (i & 0x1), and 8 more for ai where i >= 4."""
    return lane % 4 * 2 + (i & 1) + (8 if i >= 4 else 0)


def rows_of_rhs(lane: int, i: int) -> int:
    """(threadID_in_group * 2) + (i & 0x1), and 8 more for bi where i >= 2."""
    return lane % 4 * 2 + (i & 1) + (8 if i >= 2 else 0)


def rows_of_sums(lane: int, i: int) -> int:
    """groupID for ci where i < 2, groupID + 8 for ci where i >= 2."""
    return (lane >> 2) + (0 if i < 2 else 8)


def columns_of_sums(lane: int, i: int) -> int:
    """(threadID_in_group * 2) + (i & 0x1)."""
    return lane % 4 * 2 + (i & 1)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_factors_of_16_bits_lie_as_the_isa_says(dtype: DType) -> None:
    random = np.random.default_rng(1)
    lhs, rhs = (encode(random.normal(size=size), dtype) for size in ((16, 16), (16, 8)))
    start = random.normal(size=(16, 8)).astype(np.float32)
    left = [lhs_register(lhs, number) for number in range(4)]
    right = [
        np.array([[rhs[rows_of_rhs(t, 2 * n + i), t >> 2] for i in (0, 1)] for t in range(WARP)])
        for n in range(2)
    ]
    sums = [sums_register(start, i) for i in range(4)]
    wanted = start + decode(lhs, dtype).astype(float) @ decode(rhs, dtype).astype(float)
    for i, found in enumerate(fragments.mma(left, right, sums, dtype)):
        assert np.allclose(found, sums_register(wanted, i), atol=1e-5)


def lhs_register(lhs: Array, number: int) -> Array:
    places = (2 * number, 2 * number + 1)
    return np.array(
        [[lhs[rows_of_lhs(t, i), columns_of_lhs(t, i)] for i in places] for t in range(WARP)]
    )


def sums_register(sums: Array, i: int) -> Array:
    return np.array([sums[rows_of_sums(t, i), columns_of_sums(t, i)] for t in range(WARP)])


def test_factors_of_tf32_lie_as_the_isa_says_and_are_rounded() -> None:
    """Row groupID for a0 and a2, + 8 for a1 and a3; column threadID_in_group, + 4 from a2 on."""
    random = np.random.default_rng(2)
    lhs, rhs = (random.normal(size=size).astype(np.float32) for size in ((16, 8), (8, 8)))
    threads = range(WARP)
    left = [
        np.array([lhs[(t >> 2) + 8 * (i % 2), t % 4 + 4 * (i // 2)] for t in threads])
        for i in range(4)
    ]
    right = [np.array([rhs[t % 4 + 4 * i, t >> 2] for t in threads]) for i in range(2)]
    nothing = [np.zeros(WARP, np.float32)] * 4
    wanted = fragments.to_tf32(lhs).astype(float) @ fragments.to_tf32(rhs).astype(float)
    for i, found in enumerate(fragments.mma(left, right, nothing, F32)):
        assert np.allclose(found, sums_register(wanted, i), atol=1e-6)


@pytest.mark.parametrize(
    ("number", "rounded"),
    [
        (1.0, 1.0),
        (1 + 2.0**-10, 1 + 2.0**-10),
        (1 + 2.0**-11, 1 + 2.0**-10),
        (-1 - 2.0**-11, -1 - 2.0**-10),
        (1 + 2.0**-12, 1.0),
        (float("inf"), float("inf")),
        (float("nan"), float("nan")),
    ],
)
def test_tf32_has_ten_bits_and_ties_go_away_from_zero(number: float, rounded: float) -> None:
    found = fragments.to_tf32(np.array([number], np.float32))
    assert np.array_equal(found, np.array([rounded], np.float32), equal_nan=True)


# From shared memory.


def loaded(dtype: DType, numbers: Array, *, transposed: bool) -> Array:
    """What each thread gets of four matrices, of 8 rows of 16 bytes each, that follow each other."""
    block = Block([INDEX, INDEX, POINTER, POINTER])
    _, thread, source, target = block.arguments
    emit, each = Builder(block, HERE), 16 // dtype.bytes
    room = emit(simt.Shared(numbers.size, dtype))
    row = (Expr(emit, thread) * each).value
    always = emit(scalar.Compare(thread, thread, "eq"))
    emit.place(simt.Copy(source, row, room, row, always, dtype, each))
    emit.place(simt.Commit())
    emit.place(simt.Wait(0))
    emit.place(simt.Barrier())
    width = 1 if dtype is F32 else 2
    for number, value in enumerate(emit.all(simt.LoadMatrix(room, row, dtype, transposed))):
        place = (Expr(emit, thread) * width + number * WARP * width).value
        emit.place((loop.Store if dtype is F32 else vec.Store)(value, target, place))
    emit.place(loop.Return())
    found = np.zeros(4 * WARP * width, dtype.numpy)
    views = [MemoryRange("x", np.ascontiguousarray(numbers).reshape(-1).view(np.uint8), False)]
    views.append(MemoryRange("y", found.view(np.uint8)))
    Launch(simt.Func(block, "kernel", WARP), views, ()).run(0)
    return found.reshape(4, WARP, width)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_threads_get_two_neighbours_of_each_matrix(dtype: DType, transposed: bool) -> None:
    matrices = encode(np.arange(256.0).reshape(4, 8, 8), dtype)
    found = loaded(dtype, matrices, transposed=transposed)
    for number, matrix in enumerate(matrices):
        seen = matrix.T if transposed else matrix
        wanted = [[seen[t >> 2, t % 4 * 2], seen[t >> 2, t % 4 * 2 + 1]] for t in range(WARP)]
        assert found[number].tolist() == np.array(wanted).tolist()


def test_threads_get_one_number_of_f32() -> None:
    matrices = np.arange(128, dtype=np.float32).reshape(4, 8, 4)
    found = loaded(F32, matrices, transposed=False)
    for number, matrix in enumerate(matrices):
        assert found[number, :, 0].tolist() == matrix.reshape(-1).tolist()


# What there is no instruction for.


def values(*types: Type) -> list[Value]:
    return Block(list(types)).arguments


def test_what_no_instruction_multiplies_is_refused() -> None:
    pair, other = VectorType(F16, 2), VectorType(BF16, 2)
    sums: list[Type] = [F32] * 4
    simt.Mma(*(values(*types) for types in ([pair] * 4, [pair] * 2, sums)))
    for lhs, rhs in (([pair] * 4, [other] * 2), ([pair] * 2, [pair] * 2), ([F64] * 4, [F64] * 2)):
        with pytest.raises(DlcError, match="4 and 2 registers"):
            simt.Mma(values(*lhs), values(*rhs), values(*sums))


def test_what_cannot_be_moved_at_once_is_refused() -> None:
    pointer, place = values(POINTER, INDEX)
    with pytest.raises(DlcError, match="3 f32: together they must have 4, 8 or 16 bytes"):
        simt.Load(pointer, place, F32, 3)
    with pytest.raises(DlcError, match="or f32 not transposed"):
        simt.LoadMatrix(pointer, place, F32, True)
    with pytest.raises(DlcError, match="is a bool, not a index"):
        simt.Copy(pointer, place, pointer, place, place, F32, 4)
    with pytest.raises(DlcError, match="two f16 or two bf16"):
        simt.Join(*values(F16, BF16))
