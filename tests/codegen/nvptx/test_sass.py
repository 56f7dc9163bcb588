"""Loops of kernels have so few instructions on `sm_90a`, as `nvdisasm` counts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from _pytest.mark import ParameterSet

from benchmarks.gpu.case import PRECISIONS, GpuCase
from benchmarks.gpu.kernels import lowered, options_for
from benchmarks.gpu.shapes import attention, convolutions, products
from dlc.codegen.nvptx.ptx import assemble, kernel_ptx, whole_ptx
from dlc.codegen.nvptx.simt import kernel_text
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from tests.codegen.nvptx.sass import Loop, disassembled, instructions_of, loops_of, nvdisasm
from tests.codegen.nvptx.sass import loops as loops_of_code

ARCHITECTURE = "sm_90a"
CASES = {
    f"{case.kind} {case.name} {precision}": case
    for precision in PRECISIONS
    for make in (products, convolutions, attention)
    for case in make(precision, quick=False)
}
MOST = {
    "products product_4096 bf16": [(128, 265)],
    "products gpt_logits bf16": [(128, 265)],
    "products product_4096 f16": [(128, 265)],
    "products product_4096 tf32": [(128, 546)],
    "products product_4096 f32": [(256, 281)],
    "convolutions conv2_1x1 bf16": [(128, 265)],
    "convolutions conv4_3x3 bf16": [(128, 345)],
    "convolutions conv4_3x3 tf32": [(128, 627)],
    "convolutions conv4_3x3 f32": [(256, 281)],
    "attention attention_4096x64 bf16": [(64, 446)],
    "attention attention_4096x128 bf16": [(64, 387)],
    "attention attention_gradient_4096x64 bf16": [(64, 462), (64, 471), (48, 310)],
    "attention attention_gradient_4096x128 bf16": [(64, 403), (64, 337), (48, 241)],
}
"""Matrix instructions of the main loop of each kernel that has some (FFMA for f32), and all at most."""

ROWS = {
    "softmax bf16": ("softmax(x)", "default", 4096 // 128, 14),
    "softmax f32": ("softmax(x)", "fast", 4096 // 128, 12),
    "gelu bf16": ("gelu(x)", "default", 8, 45),
    "gelu bf16 fast": ("gelu(x)", "fast", 24, 36),
}
"""Formulas of [4096, 4096], their accuracy, elements of a thread, and the most instructions for each."""

EVERY_TIME = {
    "products product_4096 bf16",
    "convolutions conv4_3x3 bf16",
    "attention attention_4096x64 bf16",
    "attention attention_4096x128 bf16",
    "softmax bf16",
    "gelu bf16",
}
"""One of each kind of kernel, which the quick suite has."""

COUNTED = pytest.mark.skipif(nvdisasm() is None, reason="there is no nvdisasm")

TEXT = """
        .L_x_0:
        /*0000*/                   MOV R1, 1 ;
        .L_x_1:
        /*0010*/                   HMMA.16816.F32 R1 ;
        /*0020*/              @!P1 BRA `(.L_x_2) ;
        /*0030*/                   FSEL R2 ;
        .L_x_2:
        /*0040*/               @P2 BRA `(.L_x_3) ;
        /*0050*/                   LDGSTS.E.128 [R3] ;
        .L_x_3:
        /*0060*/               @P0 BRA `(.L_x_1) ;
        /*0070*/               @P3 BRA `(.L_x_0) ;
"""


def named(names: Iterable[str]) -> list[ParameterSet]:
    """All cases, of which those of `EVERY_TIME` are in the quick suite."""
    return [
        pytest.param(name, marks=() if name in EVERY_TIME else pytest.mark.long) for name in names
    ]


def test_a_loop_is_the_innermost_one_without_what_it_skips() -> None:
    (loop,) = loops_of(TEXT)
    assert [each.partition(" ")[0] for each in loop.instructions] == [
        "HMMA.16816.F32",
        "@!P1",
        "@P2",
        "LDGSTS.E.128",
        "@P0",
    ]
    assert loop.count("HMMA") == 1


def kernels(case: GpuCase) -> list[Sequence[Loop]]:
    """The loops of each kernel of a case; no kernel spills."""
    found: list[Sequence[Loop]] = []
    options = replace(
        options_for(ARCHITECTURE),
        matmul_precision="tf32" if case.precision == "tf32" else "ieee",
    )
    for function in lowered(open_model("case.dlm", text=case.text), options):
        text = kernel_ptx(kernel_text(function, "k"), ARCHITECTURE)
        code, usage = assemble(whole_ptx([text], ARCHITECTURE), ARCHITECTURE)
        assert usage["k"].spilled == 0
        found.append(loops_of_code(code))
    return found


@COUNTED
@pytest.mark.parametrize("name", named(ROWS))
def test_an_element_takes_few_instructions(name: str) -> None:
    """All are counted from the first load to the last store; none of the registers is spilled."""
    formula, accuracy, elements, most = ROWS[name]
    dtype = name.split()[1]
    type = f"{dtype}[4096, 4096]"
    model = open_model("rows.dlm", text=f"dlc 1\nexport fn f(x: {type}) -> {type} = {formula}\n")
    (function,) = lowered(
        model, Settings(target=f"cuda:{ARCHITECTURE}", accuracy=accuracy).options()
    )
    text = kernel_ptx(kernel_text(function, "k"), ARCHITECTURE)
    code, usage = assemble(whole_ptx([text], ARCHITECTURE), ARCHITECTURE)
    assert usage["k"].spilled == 0
    kernel = instructions_of(disassembled(code))
    first = min(place for place, each in enumerate(kernel) if "LDG" in each)
    last = max(place for place, each in enumerate(kernel) if "STG" in each)
    assert (last + 1 - first) / elements <= most


@COUNTED
@pytest.mark.parametrize("name", named(MOST))
def test_the_main_loop_has_few_instructions(name: str) -> None:
    of = "FFMA" if name.endswith("f32") and "tf32" not in name else "HMMA"
    main = [
        max(loops, key=lambda one: one.count(of), default=None) for loops in kernels(CASES[name])
    ]
    found = [
        (loop.count(of), len(loop.instructions))
        for loop in main
        if loop is not None and loop.count(of)
    ]
    assert [number for number, _ in found] == [number for number, _ in MOST[name]], found
    assert all(one <= most for (_, one), (_, most) in zip(found, MOST[name], strict=True)), found
