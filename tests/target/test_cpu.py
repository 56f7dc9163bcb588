"""Descriptions of processors: what LLVM says of the same names, and what passes make of new ones."""

from __future__ import annotations

from dataclasses import replace

import llvmlite.binding as llvm
import pytest

from dlc.codegen.llvm.object_code import parsed
from dlc.codegen.llvm.target_machine import cpu_name, flags_of
from dlc.dialects import array, mem
from dlc.dialects.kernel.product_schedule import PackInline
from dlc.dialects.kernel.products import Gemm
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.compile.settings import Settings
from dlc.errors import UsageError
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F16, F32, F64, TensorType
from dlc.lowering.kernel_code.expand import expansions_for
from dlc.target import Target, cpu_of
from dlc.target.cpu import HOST, TARGETS, CpuTarget
from dlc.target.cpu_costs import CpuCosts
from dlc.target.products import ProductBlocking, Tile
from dlc.target.register_blocking import panel_columns
from tests.lowering.everywhere import function_of
from tests.targets import AVX2

PROBE = """
define void @probe(ptr %x, ptr %half) #0 {
  %v = load <16 x float>, ptr %x
  %sum = fadd <16 x float> %v, %v
  store <16 x float> %sum, ptr %x
  %a = load float, ptr %x
  %b = call float @llvm.floor.f32(float %a)
  %h = load half, ptr %half
  %c = fpext half %h to float
  %product = fmul contract float %a, %b
  %d = fadd contract float %product, %c
  store float %d, ptr %x
  ret void
}
declare float @llvm.floor.f32(float)
attributes #0 = { "min-legal-vector-width"="512" }
"""
"""Code from which LLVM makes other instructions where the processor has them."""


def probed(name: str) -> str:
    """The assembly code that LLVM makes of it for a processor of which it is told the name only."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten() if name == HOST else ""
    machine = llvm.Target.from_triple(CpuTarget.named(name).triple).create_target_machine(
        cpu=cpu_name(CpuTarget.named(name)), features=features, opt=2
    )
    module = parsed(PROBE, CpuTarget.named(name).triple, machine, 2)
    return machine.emit_assembly(module)


@pytest.mark.parametrize("name", TARGETS)
def test_a_description_says_what_llvm_knows_of_the_name(name: str) -> None:
    cpu, code = CpuTarget.named(name), probed(name)
    widest = 64 if "%zmm" in code else 32 if "%ymm" in code else 16
    assert cpu.vector_bytes == widest
    assert cpu.fma == ("vfmadd" in code)
    assert cpu.converts_half == ("vcvtph2ps" in code or "vcvtsh2ss" in code)
    assert cpu.rounds == ("roundss" in code or "vrndscaless" in code)


def test_features_are_exactly_those_of_the_name() -> None:
    v3 = CpuTarget.named("x86-64-v3")
    assert "avx2" in v3.features and "avx512f" not in v3.features
    assert "+avx2" in flags_of(v3).split(",") and "-avx512f" in flags_of(v3).split(",")
    widths = [CpuTarget.named(f"x86-64-v{n}").vector_bytes for n in (2, 3, 4)]
    assert widths == [16, 32, 64]
    assert CpuTarget.named("znver4").vector_registers == 32


def test_an_unknown_processor_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"(?s)no target is called 'i386'.*there are host, x86-64"):
        CpuTarget.named("i386")


def test_every_tile_fits_into_the_registers() -> None:
    for name in TARGETS:
        cpu = CpuTarget.named(name)
        for tile in cpu.products.tiles:
            assert tile.registers * tile.rows + tile.registers + 1 <= cpu.vector_registers


# A processor that there is none of: 32 registers of 16 bytes, as AArch64 has.

INVENTED = replace(
    CpuTarget.named("x86-64-v3"),
    name="invented",
    vector_bytes=16,
    vector_registers=32,
    rounds=False,
    products=ProductBlocking((Tile(4, 6, 100), Tile(2, 8, 103), Tile(1, 8, 120))),
)


def product(emit: Builder, x: Value, y: Value) -> list[Value]:
    return [emit(array.MatMul(x, y))]


def packed_for(cpu: CpuTarget) -> Gemm:
    """The kernel of a product, with its panels, as passes choose it for a processor."""
    types = [TensorType(F32, (96, 64)), TensorType(F32, (64, 240))]
    module, _ = function_of(product, types, {})
    options = Options(matmul="generated", target=Target(cpu))
    Manager(Context(options=options)).run(module, pipeline("graph", "kernel", 2))
    (gemm,) = [op for op in module.walk() if isinstance(op, Gemm)]
    return gemm


def test_an_invented_processor_gets_panels_of_its_own_tiles() -> None:
    assert panel_columns(F32, 96, 240, 64, INVENTED) == 4 * INVENTED.lanes(F32) == 16
    assert packed_for(INVENTED).schedule == PackInline(16)
    one_register = replace(INVENTED, products=ProductBlocking((Tile(1, 8, 100),)))
    assert packed_for(one_register).schedule == PackInline(4)


def test_an_invented_processor_gets_formulas_for_what_it_lacks() -> None:
    with_rounding, without = expansions_for(AVX2.cpu), expansions_for(INVENTED)
    assert without.keys() > with_rounding.keys()


def calls(cpu: CpuTarget) -> list[mem.Call]:
    def program(emit: Builder, x: Value) -> list[Value]:
        return [emit(array.Exp(x))]

    module, _ = function_of(program, [TensorType(F32, (4096, 4096))], {})
    options = Options(target=Target(cpu))
    Manager(Context(options=options)).run(module, pipeline("graph", "loop", 2))
    return [op for op in module.walk() if isinstance(op, mem.Call)]


def test_a_processor_with_slower_functions_gets_smaller_tiles() -> None:
    slow = replace(AVX2.cpu, costs=CpuCosts(function=64))
    (one,), (other,) = calls(AVX2.cpu), calls(slow)
    assert isinstance(one.tiles, int) and isinstance(other.tiles, int)
    assert other.tiles > 3 * one.tiles


# What options say.


def test_options_describe_the_target_of_the_settings() -> None:
    assert cpu_of(Settings(target="cpu:x86-64").options()).fma is False
    both = Settings(target="cpu:znver4+cuda:sm_90").options().target
    assert both is not None and both.name == "cpu:znver4+cuda:sm_90"
    alone = Settings(target="cuda:sm_86").options().target
    assert alone is not None and alone.name == "cuda:sm_86"


def test_registers_have_one_element_at_least() -> None:
    assert [INVENTED.lanes(dtype) for dtype in (F16, F32, F64)] == [8, 4, 2]
    assert replace(INVENTED, vector_bytes=4).lanes(F64) == 1
