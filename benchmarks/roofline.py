"""Whether the gaps that `dlc why MODEL slow` names are gaps: kernels by themselves beside a measured roof.

    python -m benchmarks roofline [NAME]... [--rounds 40] [--json FILE]

The roof of `dlc/target/roof.py` is that of a usual server. Here it is measured on one thread of this
machine: multiply-adds in registers, and reading from each cache and from memory. Each of the three kernels
with the largest gaps is compiled once more, and runs by itself, without a trace, on memory laid out as in
the plan. The table has its time in the call and by itself; its share of the stated roof in the call, which
users read; its share of the measured roof by itself; the bytes of its arrays beside those of the profile;
and whether it is among the three largest gaps by the measured roof, too. All times are processor time of
one thread, the least of several turns.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.networks.files import network
from dlc.codegen.kernels import compile_kernels, kernel_texts
from dlc.dialects import mem
from dlc.dialects.builtin import Module
from dlc.driver.compile.compile import lower
from dlc.driver.compile.entries import find_entry
from dlc.driver.profile.measured import ProfileRequest, profile_model
from dlc.driver.report.questions.slow import largest_gaps
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.ir.core import Evaluation, Value
from dlc.ir.types import ViewType
from dlc.runtime.abi import FaultWord, Status
from dlc.runtime.artifact.kernel_records import Roof
from dlc.runtime.artifact.manifest import STEP
from dlc.runtime.calling.probes import KERNEL
from dlc.runtime.cpu.executable_memory import LoadedImage, load_image
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import LEVELS, Row, floor_of
from dlc.target.cpu import HOST, CpuTarget
from dlc.target.roof import F32_BYTES, USUAL_ROOF, levels, operation_femtoseconds

Bytes = NDArray[np.uint8]

EXAMPLES = Path(__file__).parent.parent / "examples"
CHAINS = 12
"""Sums at once: as many as two units need whose results take four to six cycles."""
READS = 8
"""Registers read at once: a power of two, as what is read again and again has to be."""
TILES = 1 << 16
"""How often a kernel of the roof does its step at least: calling it takes a microsecond."""
MEMORY_BYTES = 1 << 28
ALIGNMENT = 64
TURNS = 9
TURN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    """A call, or a step of training, of a network of `benchmarks.networks` by its name or of an example."""

    name: str
    example: str = ""
    dims: dict[str, int] = field(default_factory=dict[str, int])
    parameters: dict[str, int] = field(default_factory=dict[str, int])
    train: bool = False

    @property
    def request(self) -> CompileRequest:
        path = str(EXAMPLES / self.example if self.example else network(self.name))
        return CompileRequest(
            path,
            weights="init:0" if self.example else None,
            parameters=self.parameters,
            to_train=self.train,
        ).to_run_here()

    @property
    def call(self) -> CallRequest:
        return CallRequest(self.request.path, STEP if self.train else None, dims=self.dims, seed=0)


CASES = (
    Case("resnet50"),
    Case("gpt of 12 blocks", "networks/gpt.dlm", {"B": 1, "T": 128}, {"L": 12}),
    Case("lstm, a step", "networks/lstm.dlm", {"B": 16, "T": 16}, train=True),
)


# The roof --------------------------------------------------------------------------------------------


def measured_roof(cpu: CpuTarget) -> Roof:
    """The best rates of one thread here, in the form of the stated ones."""
    lanes = cpu.vector_bytes // F32_BYTES
    image = compile_kernels({"fma": _fma_text(lanes), "read": _read_text(lanes)}, cpu, 3)
    code = load_image(image.code, hashlib.sha256(image.code).digest(), image.imports)
    memory = _aligned(MEMORY_BYTES)
    memory[:] = 0

    def run(name: str, tiles: int, mask: int = 0) -> float:
        words = (ctypes.c_int64 * 2)(memory.ctypes.data, mask)
        return _seconds(_Run(code, image.entries[name], words, tiles)) / tiles

    operation = run("fma", TILES) / (2 * CHAINS * lanes)
    step = READS * cpu.vector_bytes
    found: list[tuple[int, int]] = []
    for held, _ in levels(cpu):
        size = 1 << ((held // 2).bit_length() - 1) if held else MEMORY_BYTES
        seconds = run("read", max(TILES, size // step), size // cpu.vector_bytes - 1)
        found.append((held, max(1, round(1e12 * seconds / step))))
    return Roof(round(1e15 * operation), tuple(found))


def _fma_text(lanes: int) -> str:
    """A kernel that multiplies and adds `CHAINS` registers in each of its tiles."""
    vector = f"<{lanes} x float>"
    step = [
        f"  %n{k} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{k}, {vector} %x, {vector} %x)"
        for k in range(CHAINS)
    ]
    declared = f"declare {vector} @llvm.fma.v{lanes}f32({', '.join([vector] * 3)})"
    return _sums("fma", lanes, CHAINS, step, declared)


def _read_text(lanes: int) -> str:
    """A kernel that reads and adds `READS` registers in each of its tiles, again and again."""
    vector = f"<{lanes} x float>"
    step = [f"  %behind = mul i64 %tile, {READS}", "  %base = and i64 %behind, %mask"]
    for k in range(READS):
        step += [
            f"  %i{k} = add i64 %base, {k}",
            f"  %p{k} = getelementptr {vector}, ptr %memory, i64 %i{k}",
            f"  %v{k} = load {vector}, ptr %p{k}, align {F32_BYTES * lanes}",
            f"  %n{k} = fadd {vector} %a{k}, %v{k}",
        ]
    return _sums("read", lanes, READS, step)


def _sums(name: str, lanes: int, count: int, step: Sequence[str], declared: str = "") -> str:
    """A kernel whose tiles add to `count` registers, which it stores at last: `%a0` becomes `%n0`."""
    vector = f"<{lanes} x float>"
    head = [f"  %a{k} = phi {vector} [ %x, %entry ], [ %n{k}, %loop ]" for k in range(count)]
    sums = [f"  %s1 = fadd {vector} %n0, %n1"]
    sums += [f"  %s{k} = fadd {vector} %s{k - 1}, %n{k}" for k in range(2, count)]
    return "\n".join(
        [
            f"define void @{name}(ptr noalias %args, i64 %first, i64 %last, ptr %fault) {{",
            "entry:",
            "  %memory = load ptr, ptr %args",
            "  %second = getelementptr i64, ptr %args, i64 1",
            "  %mask = load i64, ptr %second",
            f"  %x = load {vector}, ptr %memory, align {F32_BYTES}",
            "  br label %loop",
            "loop:",
            "  %tile = phi i64 [ %first, %entry ], [ %next, %loop ]",
            *head,
            *step,
            "  %next = add i64 %tile, 1",
            "  %more = icmp slt i64 %next, %last",
            "  br i1 %more, label %loop, label %end",
            "end:",
            *sums,
            f"  store {vector} %s{count - 1}, ptr %memory, align {F32_BYTES}",
            "  ret void",
            "}",
            declared,
            "",
        ]
    )


# A kernel by itself ----------------------------------------------------------------------------------


class Alone(NamedTuple):
    """A kernel by itself: the seconds of one run, and the bytes of the arrays that it reads and writes."""

    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class _Run:
    """A kernel with its arguments, to be called."""

    code: LoadedImage
    entry: int
    words: ctypes.Array[ctypes.c_int64]
    tiles: int

    def __call__(self) -> None:
        fault = (ctypes.c_int64 * FaultWord.COUNT)()
        KERNEL(self.code.base + self.entry)(self.words, 0, self.tiles, fault)
        assert fault[FaultWord.STATUS] == Status.OK


def alone(module: Module, call: mem.Call, dims: dict[str, int], cpu: CpuTarget) -> Alone:
    """Run the kernel of a call by itself, on memory of its own that is laid out as in the plan."""
    at = Evaluation(dims)
    name = call.kernel.name
    image = compile_kernels({name: kernel_texts(module)[name]}, cpu, 2)
    code = load_image(image.code, hashlib.sha256(image.code).digest(), image.imports)
    memory, starts = _memory(call.views, at)
    scratch = _aligned(at.size(call.scratch) + ALIGNMENT)
    words = [memory[root].ctypes.data + start for root, start in starts]
    words += [*at.shape(call.sizes)] + ([scratch.ctypes.data] if call.scratch else [])
    run = _Run(
        code, image.entries[name], (ctypes.c_int64 * len(words))(*words), at.size(call.tiles)
    )
    distinct = dict(zip(starts, call.views, strict=True))
    moved = [
        _type(view).dtype.bytes * at.size(_type(view).tensor.size) for view in distinct.values()
    ]
    return Alone(_seconds(run), sum(moved))


def _memory(
    views: Sequence[Value], at: Evaluation
) -> tuple[dict[Value, Bytes], list[tuple[Value, int]]]:
    """Memory for each root of the views, and where in it each of them begins."""
    places = [_place(view, at) for view in views]
    spans: dict[Value, tuple[int, int]] = {}
    for root, start, size in places:
        low, high = spans.get(root, (start, start))
        spans[root] = min(low, start), max(high, start + size)
    memory = {root: _aligned(high - low) for root, (low, high) in spans.items()}
    starts = [(root, start - spans[root][0]) for root, start, _ in places]
    random = np.random.default_rng(0)
    for view, (root, start), (_, _, size) in zip(views, starts, places, strict=True):
        dtype = _type(view).dtype.name
        part = memory[root][start : start + size]
        if dtype == "f32":  # others stay 0: as indices they are valid
            part.view(np.float32)[:] = random.standard_normal(size // F32_BYTES, np.float32)
    return memory, starts


def _place(view: Value, at: Evaluation) -> tuple[Value, int, int]:
    """The root of a view, where it begins there, and the bytes from its first to its last element."""
    type, op = _type(view), view.op
    shape, strides = at.shape(type.shape), at.shape(type.strides)
    elements = sum((n - 1) * by for n, by in zip(shape, strides, strict=True)) + 1
    size = 0 if 0 in shape else elements * type.dtype.bytes
    return (op.root, at.size(op.offset), size) if isinstance(op, mem.View) else (view, 0, size)


def _type(view: Value) -> ViewType:
    assert isinstance(view.type, ViewType)
    return view.type


def _aligned(size: int) -> Bytes:
    """Bytes, all zero, from a multiple of `ALIGNMENT` on."""
    every = np.zeros(size + ALIGNMENT, np.uint8)
    start = -every.ctypes.data % ALIGNMENT
    return every[start : start + size]


def _seconds(run: Callable[[], None]) -> float:
    """The processor time of a run: the least of several turns."""
    count, spent = 1, 0.0
    while spent < TURN_SECONDS / 4:
        count *= 2
        spent = _spent(run, count)
    count = max(1, round(count * TURN_SECONDS / spent))
    return min([_spent(run, count) for _ in range(TURNS)]) / count


def _spent(run: Callable[[], None], count: int) -> float:
    start = time.thread_time()
    for _ in range(count):
        run()
    return time.thread_time() - start


# The table -------------------------------------------------------------------------------------------


class Gap(NamedTuple):
    """A kernel that `dlc why slow` names: milliseconds of all its runs in a call, and what was measured."""

    network: str
    kernel: str
    bound: str
    ms: float
    alone_ms: float
    stated: float
    """The share of the roof that users read."""
    measured: float
    """The share of the measured roof, by itself."""
    bytes: float
    """The bytes of its arrays, beside those that the profile has."""
    among: bool
    """Whether it is among the three largest gaps to the measured roof, too."""


def gaps(case: Case, roof: Roof, rounds: int, cpu: CpuTarget) -> list[Gap]:
    """The three largest gaps of a call, each of them run by itself."""
    profile = profile_model(ProfileRequest(case.request, case.call, 1, rounds, case.train))
    model = case.request.open()
    lower(model, case.request.settings, "loop")
    program = find_entry(model.module, profile.entry)
    assert isinstance(program, mem.Program)
    calls = [op for op in program.walk() if isinstance(op, mem.Call)]
    largest = _largest(profile, roof)
    found: list[Gap] = []
    for row in largest_gaps(profile):
        number = next(number for number, each in profile.ops.items() if each is row)
        kernel = alone(model.module, calls[number], dict(profile.dims), cpu)
        floor = _floor(row, roof)
        found.append(
            Gap(
                case.name,
                f"{row.title} ×{row.runs}" if row.runs > 1 else row.title,
                row.floor.bound,
                row.ms,
                1e3 * kernel.seconds * row.runs,
                row.share,
                floor / (1e3 * kernel.seconds * row.runs),
                kernel.bytes * row.runs / row.bytes,
                row in largest,
            )
        )
    return found


def _floor(row: Row, roof: Roof) -> float:
    """The least milliseconds of a kernel by a roof."""
    return floor_of(roof, row.operations // row.runs, row.bytes // row.runs, row.runs, 1).ms


def _largest(profile: Profile, roof: Roof) -> list[Row]:
    """The three kernels with the most milliseconds above their floor by a roof."""
    return sorted(profile.rows, key=lambda row: _floor(row, roof) - row.ms)[:3]


def table(found: Sequence[Gap]) -> str:
    """The gaps as a table of a page."""
    lines = [
        "| network | kernel | bound | ms in the call | by itself | roof, stated | roof, measured | "
        "bytes | among the three |",
        "| --- | --- | --- | --: | --: | --: | --: | --: | --- |",
    ]
    lines += [
        f"| {gap.network} | `{gap.kernel}` | {gap.bound} | {gap.ms:.3g} | {gap.alone_ms:.3g} | "
        f"{gap.stated:.0%} | {gap.measured:.0%} | {gap.bytes:.2f} | {'yes' if gap.among else 'no'} |"
        for gap in found
    ]
    return "\n".join(lines)


def roofs(cpu: CpuTarget, measured: Roof) -> str:
    """The stated roof beside the measured one."""
    stated = Roof(operation_femtoseconds(cpu, USUAL_ROOF), levels(cpu))
    rates = [("multiply-adds, GFLOP/s", 1e6 / stated.operation, 1e6 / measured.operation)]
    for name, (_, said), (_, found) in zip(LEVELS, stated.levels, measured.levels, strict=True):
        rates.append((f"{name}, GB/s", 1e3 / said, 1e3 / found))
    return "\n".join(
        [f"{name:24} {said:7.0f} stated {found:7.0f} measured" for name, said, found in rates]
    )


def main() -> None:
    """Print both roofs and the table."""
    parser = argparse.ArgumentParser("python -m benchmarks roofline", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names (default: all)")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    cpu = CpuTarget.named(HOST)
    roof = measured_roof(cpu)
    print(roofs(cpu, roof), flush=True)
    found: list[Gap] = []
    for case in CASES:
        if not options.names or any(name in case.name for name in options.names):
            found += gaps(case, roof, options.rounds, cpu)
    print(f"\n{table(found)}")
    if options.json:
        options.json.write_text(
            json.dumps({"roof": roof._asdict(), "gaps": [gap._asdict() for gap in found]}, indent=1)
        )


if __name__ == "__main__":
    main()
