"""LLVM text of matrix instructions, wide memory accesses and asynchronous copies of NVIDIA GPUs.

The names of NVIDIA's intrinsics contain shapes and types; the operations are in `dlc.dialects.simt`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.codegen.llvm.text import FunctionText, llvm_type, writes
from dlc.dialects import simt
from dlc.dialects.scalar import element
from dlc.ir.core import Op, Value
from dlc.ir.types import F16, F32, DType

WORD = "i32"
"""LLVM's type of a matrix register, except for f16 in products."""
FOUR_WORDS = "{ i32, i32, i32, i32 }"
FOUR_SUMS = "{ float, float, float, float }"
GLOBAL, SHARED = 1, 3
"""Address spaces."""

PRODUCTS = {
    "f16": "m16n8k16.row.col.f32.f32",
    "bf16": "m16n8k16.row.col.bf16",
    "f32": "m16n8k8.row.col.tf32",
}


def _place(text: FunctionText, pointer: Value, index: Value, dtype: DType) -> str:
    return text.assign(
        f"getelementptr {llvm_type(dtype)}, ptr {text.name(pointer)}, i64 {text.name(index)}"
    )


def _within(text: FunctionText, place: str, space: int) -> str:
    """A pointer cast to an address space."""
    return text.assign(f"addrspacecast ptr {place} to ptr addrspace({space})")


def _parts(text: FunctionText, whole: str, type: str, count: int) -> tuple[str, ...]:
    return tuple([text.assign(f"extractvalue {type} {whole}, {k}") for k in range(count)])


# Wide accesses.


@writes(simt.Load)
def _load(op: simt.Load, text: FunctionText) -> tuple[str, ...]:
    type, size = f"<{op.count} x {llvm_type(op.dtype)}>", op.count * op.dtype.bytes
    place = _place(text, op.pointer, op.index, op.dtype)
    whole = text.assign(f"load {type}, ptr {place}, align {size}")
    return tuple([text.assign(f"extractelement {type} {whole}, i64 {k}") for k in range(op.count)])


@writes(simt.Store)
def _store(op: simt.Store, text: FunctionText) -> tuple[str, ...]:
    dtype, count = element(op.values[0].type), len(op.values)
    type, whole = f"<{count} x {llvm_type(dtype)}>", "poison"
    for k, value in enumerate(op.values):
        one = f"{llvm_type(dtype)} {text.name(value)}"
        whole = text.assign(f"insertelement {type} {whole}, {one}, i64 {k}")
    place = _place(text, op.pointer, op.index, dtype)
    text.line(f"store {type} {whole}, ptr {place}, align {count * dtype.bytes}")
    return ()


# Copies.


@writes(simt.Copy)
def _copy(op: simt.Copy, text: FunctionText) -> tuple[str, ...]:
    """`cp.async`: the number of bytes to read is an operand; the remaining bytes are filled with zeros."""
    size = op.count * op.dtype.bytes
    source = _within(text, _place(text, op.source, op.source_index, op.dtype), GLOBAL)
    target = _within(text, _place(text, op.target, op.target_index, op.dtype), SHARED)
    read = text.assign(f"select i1 {text.name(op.predicate)}, i32 {size}, i32 0")
    # Only copies of 16 bytes can bypass L1, where data that is read once is of no use.
    cache = "cg" if size == simt.WIDE else "ca"
    text.call(
        f"llvm.nvvm.cp.async.{cache}.shared.global.{size}.s",
        (f"ptr addrspace({SHARED})", target),
        (f"ptr addrspace({GLOBAL})", source),
        ("i32", read),
    )
    return ()


@writes(simt.Commit)
def _commit(op: Op, text: FunctionText) -> tuple[str, ...]:
    text.call("llvm.nvvm.cp.async.commit.group")
    return ()


@writes(simt.Wait)
def _wait(op: simt.Wait, text: FunctionText) -> tuple[str, ...]:
    text.call("llvm.nvvm.cp.async.wait.group", ("i32", str(op.pending)))
    return ()


# Matrices.


@writes(simt.LoadMatrix)
def _load_matrix(op: simt.LoadMatrix, text: FunctionText) -> tuple[str, ...]:
    place = _within(text, _place(text, op.pointer, op.index, op.dtype), SHARED)
    turned = ".trans" if op.transposed else ""
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{turned}.b16.p3"
    words = text.intrinsic(FOUR_WORDS, name, (f"ptr addrspace({SHARED})", place))
    type = llvm_type(op.results[0].type)
    return tuple(
        [
            text.assign(f"bitcast i32 {word} to {type}")
            for word in _parts(text, words, FOUR_WORDS, 4)
        ]
    )


@writes(simt.Mma)
def _multiply_add(op: simt.Mma, text: FunctionText) -> tuple[str, ...]:
    dtype = element(op.lhs[0].type)
    factors = [_factor(text, value, dtype) for value in (*op.lhs, *op.rhs)]
    sums: Sequence[tuple[str, str]] = [("float", text.name(sum)) for sum in op.sums]
    found = text.intrinsic(FOUR_SUMS, f"llvm.nvvm.mma.{PRODUCTS[dtype.name]}", *factors, *sums)
    return _parts(text, found, FOUR_SUMS, 4)


def _factor(text: FunctionText, value: Value, dtype: DType) -> tuple[str, str]:
    """A register in the type of the matrix instruction; LLVM merges equal conversions."""
    name = text.name(value)
    if dtype is F32:
        return WORD, text.intrinsic(WORD, "llvm.nvvm.f2tf32.rna", ("float", name))
    type = "<2 x half>" if dtype is F16 else WORD
    return type, text.assign(f"bitcast <2 x i16> {name} to {type}")


@writes(simt.Join)
def _join(op: simt.Join, text: FunctionText) -> tuple[str, ...]:
    whole = "poison"
    for k, value in enumerate(op.operands):
        whole = text.assign(f"insertelement <2 x i16> {whole}, i16 {text.name(value)}, i64 {k}")
    return (whole,)
