"""Products and attention in every dtype and form become code that `ptxas` accepts, without spills."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pytest

from benchmarks.gpu.kernels import ARCHITECTURES, Assembler
from dlc.codegen.nvptx.ptx import kernel_ptx
from dlc.codegen.nvptx.simt import kernel_text
from dlc.dialects import array, flow, nn, simt
from dlc.dialects.array.convolution import convolution
from dlc.ir.core import Block, Builder, Value
from dlc.ir.types import BF16, F16, F32, DType
from dlc.runtime.abi import STATIC_SHARED
from dlc.target.gpu import Occupancy
from tests.lowering.everywhere import Program
from tests.lowering.gpu.on_gpu import Compiled, compiled
from tests.suites import each_value, every
from tests.targets import occupy

WIDE = Occupancy(wide_tiles=0)
"""Products of any size are computed in wide tiles."""

ASSEMBLERS = [Assembler(architecture) for architecture in ARCHITECTURES]
"""For all of these tests: a kernel that comes again is not assembled again."""
REGISTERS = 1 << 16
"""Of a processor's core, and so the most of its blocks."""


def product(*transposed: bool) -> Program:
    """The product of matrices that are stored as they are, or as their transposes."""

    def program(emit: Builder, *operands: Value) -> Sequence[Value]:
        lhs, rhs = (
            emit(array.Transpose(value, (1, 0))) if turned else value
            for value, turned in zip(operands, transposed, strict=True)
        )
        return (emit(array.Erf(emit(array.MatMul(lhs, rhs)))),)

    return program


def shapes(lhs: bool, rhs: bool, odd: int) -> tuple[tuple[int, int], tuple[int, int]]:
    m, k, n = 24 + odd, 40 + odd, 16 + odd
    return ((k, m) if lhs else (m, k)), ((n, k) if rhs else (k, n))


def window(emit: Builder, picture: Value, weights: Value) -> Sequence[Value]:
    return (convolution(emit, picture, weights, padding=((1, 1), (1, 1)), dims="nhwc"),)


def attention(emit: Builder, *operands: Value) -> Sequence[Value]:
    query, keys, values = operands
    return (emit(nn.Attention(query, keys, values, (), 0.125, 0)),)


def attention_gradient(emit: Builder, *operands: Value) -> Sequence[Value]:
    *given, dy = operands
    body = Block([value.type for value in given])
    inner = Builder(body, emit.location)
    inner.place(flow.Yield(attention(inner, *body.arguments)))
    return emit.all(flow.Vjp(given, (dy,), body, (0, 1, 2)))


STORED = [(False, False, 0), (True, False, 0), (False, True, 0), (False, False, 1), (True, True, 1)]
"""Whether lhs and rhs are transposed, and whether sizes are odd."""
WAYS = [(F16, "ieee"), (BF16, "ieee"), (F32, "tf32"), (F32, "ieee")]
MATRICES = {
    F16: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    BF16: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    F32: "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
}


CHANNELS = (3, 16)
"""Of a convolution's picture."""
FORMS = [*[pytest.param(form) for form in STORED], *CHANNELS]
"""Products with all operands as stored or transposed, in units or one by one, and convolutions."""


def kernels(form: object, dtype: DType, precision: str) -> Compiled:
    match form:
        case (bool() as lhs, bool() as rhs, int() as odd):
            program = product(lhs, rhs)
            return compiled(program, dtype, *shapes(lhs, rhs, odd), products=precision)
        case int() as channels:
            operands = (1, 4, 4, channels), (3, 3, channels, 8)
            return compiled(window, dtype, *operands, products=precision)
        case _:
            raise TypeError(form)


@pytest.mark.parametrize(
    ("form", "many", "dtype", "precision", "assembler"),
    each_value(FORMS, (0, 1000), WAYS, ASSEMBLERS),
)
def test_products_are_assembled_without_spills(
    form: object,
    many: int,
    dtype: DType,
    precision: str,
    assembler: Assembler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In wide tiles whatever the size, and never."""
    occupy(monkeypatch, Occupancy(wide_tiles=many))
    check(functions(kernels(form, dtype, precision)), assembler)


ATTENTIONS = [(F16, 128, 128), (BF16, 33, 64), (F32, 128, 128), (F32, 33, 64)]


@pytest.mark.parametrize(
    ("dtype", "depth", "width", "assembler"), every(6, itertools.product(ATTENTIONS, ASSEMBLERS))
)
def test_attention_is_assembled_without_spills(
    dtype: DType, depth: int, width: int, assembler: Assembler
) -> None:
    shapes = (4, depth), (4, depth), (4, width)
    check(functions(compiled(attention, dtype, *shapes, products="tf32")), assembler)


GRADIENTS = [
    (F32, "ieee", 128, 64),
    (F16, "ieee", 128, 128),
    (BF16, "ieee", 33, 64),
    (F32, "ieee", 32, 32),
    (F32, "tf32", 128, 128),
    (F32, "tf32", 33, 64),
]


@pytest.mark.parametrize(
    ("dtype", "precision", "depth", "width", "assembler"),
    every(14, itertools.product(GRADIENTS, ASSEMBLERS)),
)
def test_gradients_of_attention_are_assembled_without_spills(
    dtype: DType, precision: str, depth: int, width: int, assembler: Assembler
) -> None:
    shapes = [(4, size) for size in (depth, depth, width, width)]
    made = compiled(attention_gradient, dtype, *shapes, products=precision)
    check(functions(made), assembler)


def functions(made: Compiled) -> list[simt.Func]:
    return [op for op in made.all(simt.Func) if isinstance(op, simt.Func)]


def check(kernels: Sequence[simt.Func], assembler: Assembler) -> None:
    for function, usage in zip(kernels, assembler.usage(kernels), strict=True):
        said = f"{function.sym_name}: {usage}"
        assert usage.spilled == usage.stack == 0, said
        assert usage.shared <= STATIC_SHARED, said
        assert usage.registers * function.threads * function.blocks <= REGISTERS, said


# Instructions.


@pytest.mark.parametrize(("dtype", "precision"), WAYS[:3])
def test_matrices_are_multiplied_by_the_instruction_of_their_dtype(
    dtype: DType, precision: str
) -> None:
    made = compiled(product(False, True), dtype, *shapes(False, True, 0), products=precision)
    text = ptx(made)
    assert MATRICES[dtype] in text
    assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in text
    assert ("cvt.rna.tf32.f32" in text) == (dtype is F32)


def test_strips_are_copied_16_bytes_at_a_time_and_waited_for() -> None:
    text = ptx(compiled(product(False, False), F16, *shapes(False, False, 0)))
    assert "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" in text
    assert "cp.async.cg.shared.global" in text
    assert text.count("cp.async.commit_group") == 2
    assert re.findall(r"cp\.async\.wait_group\s+(\d)", text) == ["2", "0"]


def test_f32_that_is_in_no_units_is_copied_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    occupy(monkeypatch, WIDE)
    text = ptx(compiled(product(False, False), F32, *shapes(False, False, 1)))
    assert "cp.async.ca.shared.global" in text
    assert "cp.async.cg.shared.global" not in text
    assert "ld.shared.v4.b32" in text


def test_a_core_is_to_hold_two_blocks_of_a_wide_product(monkeypatch: pytest.MonkeyPatch) -> None:
    occupy(monkeypatch, WIDE)
    assert ".minnctapersm 2" in ptx(compiled(product(False, False), F16, *shapes(False, False, 0)))


def ptx(made: Compiled) -> str:
    return "\n".join(kernel_ptx(kernel_text(one, "kernel"), "sm_80") for one in functions(made))
