"""Element-wise kernels move 16 bytes by one instruction of PTX, wherever addresses are multiples of 16."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest

from benchmarks.gpu.kernels import ARCHITECTURES, OPTIONS, Assembler
from dlc.codegen.nvptx.ptx import kernel_ptx
from dlc.codegen.nvptx.simt import kernel_text
from dlc.dialects import array, simt
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.driver.source.open import open_model
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager
from dlc.ir.types import BF16, BOOL, F16, F32, F64, I8, I64, U8, DType, TensorType
from tests.lowering.everywhere import Program, function_of
from tests.suites import every

ACCESS = re.compile(r"(?:ld|st)\.global\.(?:v\d\.)?\w+")


def accesses(program: Program, *types: TensorType, kind: str = "generic") -> Counter[str]:
    """How often PTX of a program's kernel of a kind has each load and store; nothing may spill."""
    module, _ = function_of(program, types, {})
    Manager(Context(options=OPTIONS)).run(
        module, pipeline("graph", "loop", OPTIONS.level, Device.CUDA)
    )
    functions = [op for op in module.body if isinstance(op, simt.Func)]
    (function,) = [op for op in functions if op.sym_name.startswith(kind)]
    return accesses_of(function)


def accesses_of(function: simt.Func) -> Counter[str]:
    """How often PTX of a kernel has each load and store; nothing may spill."""
    for architecture in ARCHITECTURES:
        (usage,) = Assembler(architecture).usage([function])
        assert usage.spilled == usage.stack == 0, usage
    return Counter(ACCESS.findall(kernel_ptx(kernel_text(function, "kernel"), "sm_80")))


def tensor(dtype: DType, *shape: int) -> TensorType:
    return TensorType(dtype, shape)


def larger(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    return (emit(array.Maximum(x, y)),)


def less(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    return (emit(array.Compare(x, y, "lt")),)


def chosen(emit: Builder, condition: Value, x: Value, y: Value) -> Sequence[Value]:
    return (emit(array.Select(condition, x, y)),)


def cast(dtype: DType) -> Program:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        return (emit(array.Cast(x, dtype)),)

    return program


@pytest.mark.parametrize("dtype", every(2, [BOOL, U8, I8, F16, BF16, F32, I64, F64]), ids=str)
def test_arrays_of_one_width_are_moved_16_bytes_at_a_time(dtype: DType) -> None:
    wide = "v2.b64" if dtype.bytes == 8 else "v4.b32"
    found = accesses(larger, *[tensor(dtype, 300, 48)] * 2)
    assert {*found} == {f"ld.global.{wide}", f"st.global.{wide}"}


@pytest.mark.parametrize(
    ("program", "types", "found"),
    [
        pytest.param(less, [U8, U8], {"ld.global.v4.b32", "st.global.v4.b32"}, id="both-narrow"),
        pytest.param(less, [F32, F32], {"ld.global.v4.b32", "st.global.b32"}, id="result"),
        pytest.param(cast(F32), [U8], {"ld.global.b32", "st.global.v4.b32"}, id="operand"),
        pytest.param(cast(BF16), [U8], {"ld.global.v2.b32", "st.global.v4.b32"}, id="half"),
        pytest.param(
            chosen,
            [BOOL, F32, F32],
            {"ld.global.b32", "ld.global.v4.b32", "st.global.v4.b32"},
            id="mask",
        ),
    ],
)
def test_of_several_widths_the_widest_is_moved_16_bytes_at_a_time(
    program: Program, types: Sequence[DType], found: set[str]
) -> None:
    assert {*accesses(program, *[tensor(dtype, 300, 48) for dtype in types])} == found


def test_what_is_read_from_a_later_column_on_counts_too() -> None:
    """Four lanes of f32 and four bools, not sixteen: a thread's stretch of each is one access."""

    def program(emit: Builder, x: Value) -> Sequence[Value]:
        part = emit(array.Slice(x, (0, 16), (30, 48), (1, 1)))
        return less(emit, part, emit(array.Sin(part)))

    found = accesses(program, tensor(F32, 30, 64))
    assert {*found} == {"ld.global.v4.b32", "st.global.b32"}


@pytest.mark.parametrize(
    ("length", "access"), [(48, "v4.b32"), (40, "v2.b32"), (36, "b32"), (34, "v2.b8"), (33, "b8")]
)
def test_rows_of_other_lengths_are_moved_in_what_divides_them(length: int, access: str) -> None:
    def program(emit: Builder, x: Value, row: Value) -> Sequence[Value]:
        return larger(emit, x, emit(array.Broadcast(row, (300, length), (1,))))

    found = accesses(program, tensor(U8, 300, length), tensor(U8, length))
    assert {*found} == {f"ld.global.{access}", f"st.global.{access}"}


def test_rows_that_begin_elsewhere_are_read_in_what_divides_that() -> None:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        part = emit(array.Slice(x, (0, 8), (30, 56), (1, 1)))
        return (emit(array.Add(part, part)),)

    found = accesses(program, tensor(U8, 30, 64))
    assert {*found} == {"ld.global.v2.b32", "st.global.v4.b32"}


STACKED = """dlc 1
export fn f(x: f32[5, {0}]) -> f32[5, {0}] {{
  let (_, rows) = scan row in x with s = ones([{0}]) {{
    next s = s * row
    yield s + row
  }}
  return rows
}}
"""


@pytest.mark.parametrize(("length", "access"), [(8, "v4.b32"), (6, "v2.b32"), (7, "b32")])
def test_rows_that_are_stacked_are_written_in_what_divides_them(length: int, access: str) -> None:
    """They begin at multiples of their length, and stores of a warp leave no gaps."""
    opened = open_model("stacked.dlm", text=STACKED.format(length))
    opened.context.options = OPTIONS
    Manager(opened.context).run(
        opened.module, pipeline("graph", "loop", OPTIONS.level, Device.CUDA)
    )
    *_, function = [op for op in opened.module.body if isinstance(op, simt.Func)]
    assert {*accesses_of(function)} == {f"ld.global.{access}", f"st.global.{access}"}


@pytest.mark.parametrize(("dtype", "rows"), [(U8, 32), (BF16, 16), (F32, 8)], ids=str)
def test_a_thread_reads_32_bytes_of_what_is_turned(dtype: DType, rows: int) -> None:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        return (emit(array.Transpose(x, (1, 0))),)

    found = accesses(program, tensor(dtype, 96, 64))
    assert found == {"ld.global.v4.b32": 2, f"st.global.b{dtype.bits}": rows}


@pytest.mark.parametrize("dtype", [U8, F32], ids=str)
@pytest.mark.parametrize("over", [False, True])
def test_updates_of_whole_rows_are_moved_16_bytes_at_a_time(dtype: DType, over: bool) -> None:
    def program(emit: Builder, x: Value, part: Value, *starts: Value) -> Sequence[Value]:
        target = emit(array.Multiply(x, x)) if over else x
        return (emit(array.DynamicUpdateSlice(target, part, list(starts))),)

    types = [tensor(dtype, 64, 48), tensor(dtype, 5, 48), *[tensor(I64)] * 2]
    found = accesses(program, *types, kind="update")
    # Where the update begins is two numbers; where that is wrong, the failure is noted.
    assert {name for name in found if not name.endswith(".b64")} == {
        "ld.global.v4.b32",
        "st.global.v4.b32",
    }
