"""Machine code of kernels: what LLVM keeps in registers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import llvmlite
import pytest

from dlc.codegen.kernels import kernel_texts
from dlc.codegen.llvm.object_code import (
    CONSTANTS_STAY,
    LLVMLITE,
    Machine,
    compile_text,
    has_right_version,
)
from dlc.codegen.llvm.target_machine import assembly
from dlc.dialects import array, nn
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.compile.settings import Settings
from dlc.errors import UsageError
from dlc.ir.core import Builder, Value
from dlc.ir.passes import Context, Manager
from dlc.ir.types import F32, TensorType
from dlc.target.cpu import CpuTarget
from tests.lowering.everywhere import function_of

ROOT = Path(__file__).parents[3]
TYPES = [TensorType(F32, (128, 384)), TensorType(F32, (384, 1536)), TensorType(F32, (1536,))]


def dense(emit: Builder, x: Value, w: Value, b: Value) -> Sequence[Value]:
    """A dense layer with gelu, whose formula has 29 constants."""
    bias = emit(array.Broadcast(b, (128, 1536), (1,)))
    return (nn.gelu(emit, emit(array.Add(emit(array.MatMul(x, w)), bias))),)


def texts_for(target: str) -> tuple[list[str], CpuTarget]:
    settings = Settings(2, target=f"cpu:{target}")
    module, _ = function_of(dense, TYPES, {})
    Manager(Context(options=settings.options())).run(module, pipeline("graph", "loop", 2))
    processor = settings.processor
    assert isinstance(processor, CpuTarget)
    return list(kernel_texts(module).values()), processor


def innermost_loops(code: str) -> list[str]:
    """The bodies of loops without a loop inside."""
    lines = code.split("\n")
    labels = {line[:-1]: k for k, line in enumerate(lines) if re.match(r"\.L\w+:$", line)}
    loops: list[tuple[int, int]] = []
    for end, line in enumerate(lines):
        jump = re.match(r"\tj\w+\t(\.L\w+)$", line)
        if jump and labels.get(jump[1], end) < end:
            loops.append((labels[jump[1]], end))
    return [
        "\n".join(lines[start:end])
        for start, end in loops
        if not any(start <= other and last < end for other, last in loops)
    ]


def test_gelu_leaves_the_sums_of_its_product_in_16_registers() -> None:
    texts, processor = texts_for("x86-64-v3")
    loops = [loop for text in texts for loop in innermost_loops(assembly(text, processor))]
    products = [loop for loop in loops if loop.count("vfmadd") >= 12 and "vblendv" not in loop]
    assert products
    assert not [
        loop for loop in products if re.search(r"\(%rsp\), %ymm|%ymm\d+, \d+\(%rsp\)", loop)
    ]


@pytest.mark.parametrize(("target", "crowded"), [("x86-64-v3", True), ("x86-64-v4", False)])
def test_constants_stay_out_of_16_registers(target: str, crowded: bool) -> None:
    texts, _ = texts_for(target)
    assert any(CONSTANTS_STAY in text for text in texts) is crowded


def test_the_version_of_llvm_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (wanted,) = [each for each in project["dependencies"] if each.startswith("llvmlite")]
    assert wanted.startswith(f"llvmlite>={LLVMLITE},<")
    assert has_right_version()


def test_a_text_that_another_llvm_refuses_is_the_fault_of_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(llvmlite, "__version__", "0.47.0")
    with pytest.raises(UsageError, match=r"D0921.*llvmlite 0.47.0 is installed"):
        compile_text("define void @f() { nonsense }", Machine("x86_64-linux", "x86-64", "", 2))
