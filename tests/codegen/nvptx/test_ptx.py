"""Kernels become PTX that `ptxas` accepts for each processor; they spill nothing and take little memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import llvmlite
import pytest

from benchmarks.gpu import kernels as gpu_kernels
from benchmarks.gpu.cases import CALLED
from benchmarks.gpu.cases import NETWORKS as MEASURED
from benchmarks.gpu.kernels import (
    ARCHITECTURES,
    LIGHT,
    OPTIONS,
    Assembler,
    Row,
    alike,
    head,
    kernel_name,
    line,
    lowered,
    measure,
    models,
    options_for,
)
from benchmarks.training.cases import NETWORKS
from dlc.codegen.kernels import assemble_ptx
from dlc.codegen.nvptx import ptx
from dlc.codegen.nvptx.ptx import assemble, find_ptxas, kernel_ptx, whole_ptx
from dlc.codegen.nvptx.simt import kernel_text
from dlc.dialects import loop, scalar, simt
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.errors import InternalError, UsageError
from dlc.ir.core import Block, Builder
from dlc.ir.location import FileLocation
from dlc.ir.passes import Context, Manager
from dlc.ir.types import BF16, F16, F32, F64, I8, I64, INDEX, POINTER, DType
from dlc.runtime.abi import STATIC_SHARED
from dlc.target.gpu import GPUS, RESERVED, GpuTarget
from tests.example_models import NAMES
from tests.op_examples.every import OPERATORS
from tests.op_examples.example import EXAMPLES, Example
from tests.suites import every

REGISTERS = 1 << 16
"""Of a processor's core, and so the most of the blocks that it runs at once."""
QUICK = ("lenet", "robust, training", "softmax")
"""Models whose kernels are assembled whenever the tests are run."""


# Every kernel.


def kernels(example: Example) -> list[simt.Func]:
    module = example.module()
    manager = Manager(Context(options=OPTIONS))
    manager.run(module, pipeline("graph", "loop", OPTIONS.level, Device.CUDA))
    return [op for op in module.body if isinstance(op, simt.Func)]


@cache
def kernels_of_examples(most: int | None, step: int) -> list[simt.Func]:
    """Those of the first examples of each `step`-th operation."""
    return [
        function
        for name in OPERATORS[::step]
        for example in EXAMPLES[name][:most]
        for function in kernels(example)
    ]


def check_examples(architecture: str, most: int | None, step: int = 1) -> None:
    """Assemble the kernels of the first examples of each `step`-th operation, all in one file."""
    functions = kernels_of_examples(most, step)
    for function, usage in zip(functions, Assembler(architecture).usage(functions), strict=True):
        said = f"{function.sym_name} at {function.location.place}: {usage}"
        assert usage.spilled == usage.stack == 0, said
        assert usage.shared <= STATIC_SHARED, said
        assert usage.registers * function.threads * function.blocks <= REGISTERS, said


def test_the_first_example_of_many_operations_is_assembled() -> None:
    check_examples(ARCHITECTURES[0], 1, step=5)


@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_first_example_of_every_operation_is_assembled(architecture: str) -> None:
    check_examples(architecture, 1)


@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_example_of_every_operation_is_assembled(architecture: str) -> None:
    check_examples(architecture, None)


@pytest.fixture(scope="module")
def assemblers() -> list[Assembler]:
    """For all models of a process: a kernel that several of them have is assembled once."""
    return [Assembler(architecture) for architecture in ARCHITECTURES]


def check_model(name: str, assemblers: Sequence[Assembler]) -> None:
    """All kernels have a form for GPUs, `ptxas` accepts them for each processor, and none spills."""
    rows = measure(name, models()[name], assemblers).rows
    assert [row.architecture for row in rows] == list(ARCHITECTURES)
    for row in rows:
        assert row.kernels > 0, row
        assert row.by_tiles == 0, row
        assert row.spilled == 0, row
        gpu = GPUS[row.architecture]
        assert row.shared <= gpu.shared_bytes, row
        assert row.core_shared <= gpu.shared_bytes + RESERVED, row
        assert row.core_registers <= REGISTERS, row
        assert row.divided == 0, row


@pytest.mark.long
@pytest.mark.parametrize("name", every(3, QUICK))
def test_the_kernels_of_small_models_are_assembled(
    name: str, assemblers: Sequence[Assembler]
) -> None:
    check_model(name, assemblers)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*models()} - {*QUICK}))
def test_the_kernels_of_every_model_are_assembled(
    name: str, assemblers: Sequence[Assembler]
) -> None:
    check_model(name, assemblers)


def test_every_model_is_among_those_that_are_assembled() -> None:
    """Each example, each network as it trains and in bf16, each light graph."""
    known = set(models())
    training = {f"{path.stem}, training" for path in NETWORKS.glob("*.dlm")}
    light = {path.stem for path in LIGHT.glob("*.onnx")}
    narrow = {f"{name} in bf16" for name in (*MEASURED, *CALLED)}
    trained = {f"{name} in bf16, training" for name in MEASURED}
    assert {*NAMES, *training, *light, *narrow, *trained, "detector"} <= known
    assert len(light) == 9


@pytest.mark.parametrize("name", [pytest.param("lenet", marks=pytest.mark.long), "mlp in bf16"])
def test_architectures_with_room_for_the_same_have_the_same_kernels(
    name: str, assemblers: Sequence[Assembler]
) -> None:
    """What is measured is what a compilation for each of them has."""
    assert alike(ARCHITECTURES) == [["sm_80", "sm_120"], ["sm_90a", "sm_100a"]]
    found = measure(name, models()[name], assemblers).kernels
    for architecture in ARCHITECTURES:
        functions = lowered(models()[name](), options_for(architecture))
        assert found[architecture] == sorted(map(kernel_name, functions))


def test_kernels_that_are_known_are_not_assembled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by this process nor by another one that keeps what it knows in the same folder."""
    assemblers = [Assembler("sm_80", tmp_path) for _ in range(2)]
    found = assemblers[0].usage([exchanged(F32)])
    monkeypatch.setattr(gpu_kernels, "assemble", None)
    assert assemblers[0].usage([exchanged(F32)]) == found
    assert assemblers[1].usage([exchanged(F32)]) == found
    assert Assembler("sm_80", tmp_path).usage([exchanged(F32)]) == found
    with pytest.raises(TypeError):
        assemblers[1].usage([exchanged(F64)])


def test_a_line_of_the_table_has_the_most_of_all_processors() -> None:
    rows = [
        Row("net", "sm_80", 12, 3, 0, 90, 23040, 0, 49152, 50176, 1, 1.25),
        Row("net", "sm_90a", 12, 3, 0, 88, 22528, 4, 16384, 17408, 0, 0.5),
    ]
    title, rule = head(ARCHITECTURES[:2])
    assert line(rows) == "| net | 12 | 3 | 0 | 90 | 88 | 4 | 49,152 | 1 | 1.8 |"
    assert title.count("|") == rule.count("|") == line(rows).count("|")


# Single instructions.


def exchanged(dtype: DType, threads: int = simt.WARP) -> simt.Func:
    """A block whose threads hand each other an element."""
    block = Block([INDEX, INDEX, POINTER])
    _, thread, memory = block.arguments
    emit = Builder(block, FileLocation("kernel.dlm", 1, 1))
    value = emit(simt.ShuffleXor(emit(loop.Load(memory, thread, dtype)), 8))
    emit.place(loop.Store(value, memory, thread))
    emit.place(loop.Return())
    return simt.Func(block, "kernel", threads)


@pytest.mark.parametrize("dtype", [I8, F16, BF16, F32, I64, F64], ids=str)
def test_values_of_every_width_are_exchanged(dtype: DType) -> None:
    text = kernel_ptx(kernel_text(exchanged(dtype), "kernel"), "sm_80")
    assert text.count("shfl.sync.bfly.b32") == max(1, dtype.bits // 32)
    assert Assembler("sm_80").usage([exchanged(dtype)])[0].spilled == 0


def test_a_kernel_says_how_many_threads_it_has_and_that_one_block_is_enough() -> None:
    text = kernel_ptx(kernel_text(exchanged(F32, 96), "kernel"), "sm_80")
    assert ".visible .entry kernel(" in text
    assert ".maxntid 96" in text
    assert ".minnctapersm 1" in text


def staged(rooms: int = 1, elements: int = 32) -> simt.Func:
    """A warp whose threads hand each other an element through shared memory, buffer by buffer."""
    block = Block([INDEX, INDEX, POINTER])
    _, thread, memory = block.arguments
    emit = Builder(block, FileLocation("kernel.dlm", 1, 1))
    for _ in range(rooms):
        room = emit(simt.Shared(elements, F32))
        emit.place(loop.Store(emit(loop.Load(memory, thread, F32)), room, thread))
        emit.place(simt.Barrier())
        mirrored = emit(scalar.Subtract(emit(scalar.Constant(31, INDEX)), thread))
        emit.place(loop.Store(emit(loop.Load(room, mirrored, F32)), memory, thread))
    emit.place(loop.Return())
    return simt.Func(block, "kernel", simt.WARP)


def test_buffers_beyond_48_kib_are_parts_of_what_a_launch_asks_for() -> None:
    function = staged(rooms=2, elements=6145)
    assert list(function.shared().values()) == [0, 24592]
    assert function.dynamic_bytes == 2 * 24592 > STATIC_SHARED
    texts = [kernel_ptx(kernel_text(function, name), "sm_80") for name in ("one", "two")]
    for name, text in zip(("one", "two"), texts, strict=True):
        assert f".extern .shared .align 16 .b8 {name}_shared[]" in text
    _, usage = assemble(whole_ptx(texts, "sm_80"), "sm_80")
    assert {used.shared for used in usage.values()} == {0}
    assert staged(rooms=2, elements=6144).dynamic_bytes == 0


def test_kernels_of_one_file_may_have_shared_memory_each() -> None:
    texts = [kernel_ptx(kernel_text(staged(), name), "sm_80") for name in ("one", "two")]
    code, usage = assemble(whole_ptx(texts, "sm_80"), "sm_80")
    assert code.startswith(b"\x7fELF")
    assert {name: used.shared for name, used in usage.items()} == {"one": 128, "two": 128}


# What goes wrong.


def test_a_processor_that_there_is_none_of_is_refused() -> None:
    assert GpuTarget.named("sm_90a").name == "sm_90a"
    with pytest.raises(UsageError, match=r"D0920.*no GPU is called 'sm_1'"):
        GpuTarget.named("sm_1")


def test_text_that_ptxas_refuses_is_our_fault() -> None:
    with pytest.raises(InternalError, match=r"ptxas refuses our text: .*Parsing error"):
        assemble(whole_ptx([".visible .entry kernel( { }\n"], "sm_80"), "sm_80")


def test_text_that_ptxas_refuses_of_another_llvm_is_the_fault_of_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(llvmlite, "__version__", "0.47.0")
    with pytest.raises(UsageError, match=r"D0921.*llvmlite 0.47.0 is installed.*made for 0.50.*"):
        assemble(whole_ptx([".visible .entry kernel( { }\n"], "sm_80"), "sm_80")


@pytest.mark.parametrize(
    "said",
    [
        "ptxas fatal   : Value 'sm_90a' is not defined for option 'gpu-name'",
        "ptxas kernels.ptx, line 1; fatal   : Unsupported .version 8.0; current version is '7.5'",
    ],
)
def test_a_ptxas_that_is_older_than_the_gpu_makes_no_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str
) -> None:
    old = tmp_path / "ptxas"
    old.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 255\n')
    old.chmod(0o755)
    monkeypatch.setattr(ptx, "find_ptxas", lambda: str(old))
    text = whole_ptx([], "sm_90a")
    with pytest.raises(UsageError, match=r"D0926.*ptxas is too old for sm_90a"):
        assemble(text, "sm_90a")
    assert assemble_ptx(text, GpuTarget.named("sm_90a")) == b""


def test_without_ptxas_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(ptx, "find_spec", nowhere)
    monkeypatch.setattr(ptx.shutil, "which", nowhere)
    with pytest.raises(UsageError, match=r"D0926.*there is no ptxas here"):
        find_ptxas()
