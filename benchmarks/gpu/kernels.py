"""What the kernels of every model take of a GPU, as `ptxas` says: all are assembled, none is run.

    python -m benchmarks gpu_kernels [NAME]... [--architecture sm_80]... [--jobs N] [--json]
        [--out out/gpu_kernels]

The models are those of `examples/` and of `benchmarks/models`, each as it is and as it trains, networks of
which a parameter is the dtype also in bf16, the face detector, and the light graphs of the onnx package. A
kernel that several models have is assembled once. What `ptxas` says of each kernel and what is measured of
each model is kept in a folder: the same command goes on where it was ended, as long as no source of dlc has
changed. `by tiles` are kernels that have no form for GPUs yet and run the loops that they are on a CPU, a
thread to a tile. Registers are those of a thread; `spilled` and `shared` are bytes, the most of any kernel;
`64-bit` are kernels that divide positions of 64 bits. The last line counts the distinct kernels of each
architecture. The exit code is 1 if a model could not be lowered or assembled.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import llvmlite
import onnx

from benchmarks.training.cases import NETWORKS, OWN
from dlc.codegen.nvptx.ptx import Usage, assemble, find_ptxas, kernel_ptx, whole_ptx
from dlc.codegen.nvptx.simt import kernel_text
from dlc.dialects import mem, scalar, simt
from dlc.dialects.builtin import Module
from dlc.driver.compile.entries import settle_interfaces
from dlc.driver.compile.native_planner import machine_code
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.driver.source.open import open_model, open_training
from dlc.driver.source.source_model import SourceModel
from dlc.errors import DlcError
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Value
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import INDEX
from dlc.lowering.gpu.kernel_to_simt import GRIDS
from dlc.lowering.gpu.product.strategy import DEEP
from dlc.target import Target
from dlc.target.gpu import GPUS, RESERVED, GpuTarget
from tests import example_models

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120")
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = NETWORKS.parent
ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "gpu_kernels"
_BLOCKS = re.compile(r"(?m)^train (\w+) for ")
"""The names of the blocks that train a model, where it has several."""
IN_BF16 = " in bf16"
"""Behind the name of a network whose weights and layers are of bf16."""

Open = Callable[[], SourceModel]
Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One model on one architecture: calls of kernels, distinct ones, and the most that any takes."""

    model: str
    architecture: str
    calls: int
    kernels: int
    by_tiles: int
    registers: int
    core_registers: int
    """Of the blocks that a core is to run at once; it has 65,536."""
    spilled: int
    shared: int
    core_shared: int
    """As `core_registers`, with what CUDA keeps of it."""
    divided: int
    """Kernels that divide positions of 64 bits by what is not a constant."""
    seconds: float
    """For lowering, and for making code of what no model before had."""


class Assembler:
    """Assembles kernels for one architecture, equal ones once."""

    def __init__(self, architecture: str, folder: Path | None = None) -> None:
        """With a folder what is known of kernels is kept there, for other processes and later ones."""
        self.architecture = architecture
        self.known: dict[str, Usage] = {}
        """What every kernel so far takes, by its name."""
        self._file = None if folder is None else folder / f"{architecture}-{_tools()}.jsonl"
        self._read = 0

    def usage(self, functions: Sequence[simt.Func]) -> list[Usage]:
        """What each of these kernels takes."""
        names = [kernel_name(function) for function in functions]
        self.learn()
        new = {
            name: function
            for name, function in zip(names, functions, strict=True)
            if name not in self.known
        }
        if new:
            texts = [
                kernel_ptx(kernel_text(function, name), self.architecture)
                for name, function in new.items()
            ]
            found = assemble(whole_ptx(texts, self.architecture), self.architecture)[1]
            assert found.keys() == new.keys(), "ptxas tells of every kernel"
            self.known.update(found)
            self._keep(found)
        return [self.known[name] for name in names]

    def learn(self) -> None:
        """Read what has been kept since the last time."""
        if self._file is None or not self._file.exists():
            return
        with self._file.open("rb") as file:
            file.seek(self._read)
            lines = file.read().rpartition(b"\n")[0]
        self._read += len(lines) + 1 if lines else 0
        for line in lines.splitlines():
            name, *numbers = json.loads(line)
            self.known[name] = Usage(*numbers)

    def _keep(self, found: Mapping[str, Usage]) -> None:
        if self._file is not None:
            rows = ([name, *asdict(usage).values()] for name, usage in found.items())
            _append(self._file, rows)


def _append(path: Path, rows: Iterable[object]) -> None:
    """Add lines to a file by one write, beside other processes that do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    os.close(file)


@cache
def _tools() -> str:
    """What machine code depends on besides the text of a kernel: the versions of LLVM and of `ptxas`."""
    said = subprocess.run([find_ptxas(), "--version"], check=True, capture_output=True, text=True)
    return _digest([said.stdout.encode(), llvmlite.__version__.encode()])


def _sources() -> str:
    """What rows depend on: all sources of dlc and all models."""
    folders = (ROOT / "dlc", ROOT / "benchmarks", ROOT / "examples")
    paths = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".dlm")
    ]
    return _digest(path.read_bytes() for path in sorted(paths))


def _digest(parts: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()[:12]


def kernel_name(function: simt.Func) -> str:
    """The same name for equal kernels, whatever they are called."""
    text = kernel_text(function, "kernel")
    return f"k{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def models() -> Mapping[str, Open]:
    """What opens each model, by its name."""
    found: dict[str, Open] = {}
    folders = (MODELS, OWN, NETWORKS)
    found["detector"] = partial(open_model, MODELS / "centerface" / "detector.dlm")
    for path in [path for folder in folders for path in sorted(folder.glob("*.dlm"))]:
        text = path.read_text(encoding="utf-8")
        forms: dict[str, Settings] = {"": {}}
        if "F: dtype" in text:
            forms[IN_BF16] = {"F": "bf16"}
        for form, settings in forms.items():
            found[f"{path.stem}{form}"] = partial(_open, path, settings)
            if "\ntrain " in text:
                for block in _BLOCKS.findall(text) or [None]:
                    by = "" if block is None else f" by {block}"
                    found[f"{path.stem}{form}{by}, training"] = partial(
                        open_training, path, settings=settings, block=block
                    )
    for path in sorted(LIGHT.glob("*.onnx")):
        found[path.stem] = partial(open_model, path)
    return found


def _open(path: Path, settings: Settings) -> SourceModel:
    if path.stem == "residual":  # it is a part for other models
        return example_models.opened("residual")
    return open_model(path, settings=settings)


def options_for(architecture: str) -> Options:
    """As a model is lowered for an architecture."""
    return Options(target=Target.all_on(GpuTarget.named(architecture)))


OPTIONS = options_for("")


def alike(architectures: Sequence[str]) -> list[list[str]]:
    """Architectures for which lowerings write the same code: it depends on room in shared memory alone.

    Plans are the same for all.
    """
    groups: dict[bool, list[str]] = {}
    for name in architectures:
        is_deep = GPUS[name].has_room_for(DEEP.blocks, DEEP.shared_bytes)
        groups.setdefault(is_deep, []).append(name)
    return list(groups.values())


def divides_positions(function: simt.Func) -> bool:
    """Whether a kernel divides a number of 64 bits that is a position by one that is not a constant."""
    return any(
        isinstance(op, scalar.RawDivide)
        and op.result.type is INDEX
        and not _is_constant(op.operands[1])
        for op in function.walk()
    )


def _is_constant(value: Value) -> bool:
    """Whether LLVM knows a number: a constant, or a choice of two by constants."""
    match value.op:
        case scalar.Select(yes=yes, no=no):
            return _is_constant(yes) and _is_constant(no)
        case op:
            return isinstance(op, scalar.Constant)


def lowered(opened: SourceModel, options: Options = OPTIONS) -> list[simt.Func]:
    """The distinct kernels of a model; its module calls them afterwards."""
    _plan(opened, options)
    return _lower(opened.module, opened.context, options)


def _plan(opened: SourceModel, options: Options) -> None:
    """Bring a model down to the plan."""
    settle_interfaces(opened.module)
    opened.context.options, opened.context.compiler = options, machine_code
    Manager(opened.context).run(
        opened.module, pipeline("graph", "plan", options.level, Device.CUDA)
    )


def _lower(planned: Module, context: Context, options: Options) -> list[simt.Func]:
    """The distinct kernels of a plan."""
    context.options = options
    Manager(context).run(planned, pipeline("plan", "loop", options.level, Device.CUDA))
    return [op for op in planned.body if isinstance(op, simt.Func)]


def _copied(module: Module) -> Module:
    copy = Module.empty(module.location)
    copy.attributes.update(module.attributes)
    for op in module.body:
        copy.body.append(clone(op, (), [clone_block(region) for region in op.regions]))
    return copy


class Measured(NamedTuple):
    """A row for each architecture, and the names of the distinct kernels that it has."""

    rows: Sequence[Row]
    kernels: Mapping[str, Sequence[str]]


def measure(name: str, open_it: Open, assemblers: Sequence[Assembler]) -> Measured:
    """Lower a model for each architecture and assemble its kernels."""
    begin = time.perf_counter()
    by_name = {one.architecture: one for one in assemblers}
    rows: dict[str, Row] = {}
    kernels: dict[str, list[str]] = {}
    opened = open_it()
    _plan(opened, options_for(assemblers[0].architecture))
    for group in alike(list(by_name)):
        module = _copied(opened.module)
        functions = _lower(module, opened.context, options_for(group[0]))
        calls = sum(isinstance(op, mem.Call) for op in module.walk())
        for architecture in group:
            usage = by_name[architecture].usage(functions)
            now = time.perf_counter()
            rows[architecture] = _row((name, architecture), calls, functions, usage, now - begin)
            kernels[architecture] = sorted(map(kernel_name, functions))
            begin = now
    return Measured([rows[each] for each in by_name], kernels)


def _row(
    of: tuple[str, str],
    calls: int,
    functions: Sequence[simt.Func],
    usage: Sequence[Usage],
    seconds: float,
) -> Row:
    """The row of a model and an architecture."""
    with_form = {cls.name.partition(".")[2] for cls in GRIDS}
    kinds = [function.sym_name.rpartition("_")[0] for function in functions]
    shared = [
        one.shared + function.dynamic_bytes for function, one in zip(functions, usage, strict=True)
    ]
    return Row(
        *of,
        calls,
        len(functions),
        sum(kind not in with_form for kind in kinds),
        max((one.registers for one in usage), default=0),
        max(map(_of_core, functions, usage), default=0),
        max((one.spilled for one in usage), default=0),
        max(shared, default=0),
        max(map(_shared_of_core, functions, shared), default=0),
        sum(map(divides_positions, functions)),
        round(seconds, 1),
    )


def _of_core(function: simt.Func, usage: Usage) -> int:
    """The registers of the blocks of a kernel that a core is to run at once."""
    return usage.registers * function.threads * function.blocks


def _shared_of_core(function: simt.Func, shared: int) -> int:
    """The shared memory of these blocks."""
    return (shared + RESERVED) * function.blocks


def head(architectures: Sequence[str]) -> list[str]:
    """The first two lines of the table."""
    registers = [f"registers, {name}" for name in architectures]
    last = ["spilled", "shared", "64-bit", "seconds"]
    titles = ["model", "calls", "kernels", "by tiles", *registers, *last]
    return [f"| {' | '.join(titles)} |", f"|:--|{'--:|' * (len(titles) - 1)}"]


def line(rows: Sequence[Row]) -> str:
    """A model's line of the table, from its row for each architecture."""
    first = rows[0]
    most = [
        max(numbers)
        for numbers in zip(*[(row.spilled, row.shared, row.divided) for row in rows], strict=True)
    ]
    numbers = [first.calls, first.kernels, first.by_tiles, *[row.registers for row in rows], *most]
    cells = [first.model, *[f"{number:,}" for number in numbers]]
    return f"| {' | '.join([*cells, f'{sum(row.seconds for row in rows):.1f}'])} |"


def total(
    models_done: int, kernels: Mapping[str, Iterable[str]], assemblers: Sequence[Assembler]
) -> str:
    """How many kernels of how many models each architecture has taken, and what they spill.

    `kernels` are their names by architecture.
    """
    each: list[str] = []
    for one in assemblers:
        usage = [one.known[name] for name in kernels[one.architecture]]
        spill = sum(one.spilled > 0 for one in usage)
        each.append(f"{len(usage)} for {one.architecture} ({spill} spill)")
    return f"{models_done} models; distinct kernels assembled: {', '.join(each)}"


class _Work(NamedTuple):
    """What one process does: a model for some architectures."""

    name: str
    architectures: Sequence[str]
    folder: Path


def _work(work: _Work) -> Measured | str:
    """What is measured of a model, or why it is not."""
    assemblers = [Assembler(each, work.folder) for each in work.architectures]
    try:
        return measure(work.name, models()[work.name], assemblers)
    except DlcError as error:
        return str(error)


def _kept(path: Path, architectures: Sequence[str]) -> dict[str, Measured]:
    """What was measured before, by model."""
    found: dict[str, Measured] = {}
    texts = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for said, kernels in map(json.loads, texts):
        rows = [Row(**row) for row in said]
        if [row.architecture for row in rows] == [*architectures]:
            found[rows[0].model] = Measured(rows, kernels)
    return found


def main() -> int:
    """Print a table, or with --json a line for each row."""
    parser = argparse.ArgumentParser("python -m benchmarks gpu_kernels")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: all)")
    parser.add_argument("--architecture", action="append", choices=GPUS, metavar="NAME")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="processes")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER")
    arguments = parser.parse_args()
    known = models()
    names: list[str] = arguments.names or list(known)
    unknown = sorted({*names} - {*known})
    if unknown:
        parser.error(f"no model is called {unknown[0]!r}; there are {', '.join(known)}")
    architectures: Sequence[str] = arguments.architecture or ARCHITECTURES
    if not arguments.json:
        print("\n".join(head(architectures)))
    kept_at = arguments.out / f"models-{_sources()}.jsonl"
    kept = _kept(kept_at, architectures)
    code, models_done = 0, 0
    kernels: dict[str, set[str]] = {name: set() for name in architectures}
    works = [_Work(name, architectures, arguments.out) for name in names if name not in kept]
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, maxtasksperchild=8) as pool:
        new = pool.imap(_work, works)
        for name in names:
            found = kept[name] if name in kept else next(new)
            if isinstance(found, str):
                print(f"{name}: {found}", file=sys.stderr)
                code = 1
                continue
            rows = found.rows
            if name not in kept:
                _append(kept_at, [[[asdict(row) for row in rows], found.kernels]])
            for architecture in architectures:
                kernels[architecture].update(found.kernels[architecture])
            lines = [json.dumps(asdict(row)) for row in rows] if arguments.json else [line(rows)]
            print("\n".join(lines), flush=True)
            models_done += 1
    if not arguments.json:
        assemblers = [Assembler(name, arguments.out) for name in architectures]
        for assembler in assemblers:
            assembler.learn()
        print(f"\n{total(models_done, kernels, assemblers)}")
    return code


if __name__ == "__main__":
    from benchmarks.gpu.kernels import main as named_main  # other processes find it by this name

    sys.exit(named_main())
