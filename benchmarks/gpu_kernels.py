"""What the kernels of every model take of a GPU, as `ptxas` says: all are assembled, none is run.

    python -m benchmarks gpu_kernels [NAME]... [--architecture sm_80]... [--json]

The models are those of `examples/` and of `benchmarks/models`, each as it is and as it trains, networks of
which a parameter is the dtype also in bf16, the face detector, and the light graphs of the onnx package. A
kernel that several models have is assembled once. `by tiles` are kernels that have no form for GPUs yet and
run the loops that they are on a CPU, a thread to a tile. Registers are those of a thread;
`spilled` and `shared` are bytes, the most of any kernel. The last line counts the distinct kernels of each
architecture. The exit code is 1 if a model could not be lowered
or assembled.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import onnx

from benchmarks.training_cases import NETWORKS, OWN
from dlc.codegen.nvptx.ptx import Usage, assemble, kernel_ptx, whole_ptx
from dlc.codegen.nvptx.simt import kernel_text
from dlc.dialects import mem, simt
from dlc.driver.compile.entries import settle_interfaces
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.driver.source.open import open_model, open_training
from dlc.driver.source.source_model import SourceModel
from dlc.errors import DlcError
from dlc.ir.passes import Manager, Options
from dlc.lowering.gpu.kernel_to_simt import GRIDS
from dlc.target import Target
from dlc.target.gpu import GPUS, GpuTarget
from tests import example_models

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120")
SPILLED: Mapping[str, int] = {"sm_120": 112}
"""Bytes that `ptxas` 12.9 spills of a kernel at most, where it does: of products of bf16 whose threads have
128 registers, so that two blocks share a multiprocessor, and of gradients of attention."""
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = NETWORKS.parent
OPTIONS = Options(target=Target.all_on(GpuTarget.named("")))
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
    seconds: float
    """For lowering, and for making code of what no model before had."""


class Assembler:
    """Assembles kernels for one architecture, equal ones once."""

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture
        self.known: dict[str, Usage] = {}
        """What every kernel so far takes, by its name."""

    def usage(self, functions: Sequence[simt.Func]) -> list[Usage]:
        """What each of these kernels takes."""
        names = [_name(function) for function in functions]
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
        return [self.known[name] for name in names]


def _name(function: simt.Func) -> str:
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


def lowered(opened: SourceModel, options: Options = OPTIONS) -> list[simt.Func]:
    """The distinct kernels of a model; its module calls them afterwards."""
    settle_interfaces(opened.module)
    opened.context.options = options
    Manager(opened.context).run(
        opened.module, pipeline("graph", "loop", options.level, Device.CUDA)
    )
    return [op for op in opened.module.body if isinstance(op, simt.Func)]


def measure(name: str, open_it: Open, assemblers: Sequence[Assembler]) -> Iterator[Row]:
    """A row for each architecture."""
    begin = time.perf_counter()
    opened = open_it()
    functions = lowered(opened)
    calls = sum(isinstance(op, mem.Call) for op in opened.module.walk())
    with_form = {cls.name.partition(".")[2] for cls in GRIDS}
    kinds = [function.sym_name.rpartition("_")[0] for function in functions]
    for assembler in assemblers:
        usage = assembler.usage(functions)
        now = time.perf_counter()
        yield Row(
            name,
            assembler.architecture,
            calls,
            len(functions),
            sum(kind not in with_form for kind in kinds),
            max((one.registers for one in usage), default=0),
            max(map(_of_core, functions, usage), default=0),
            max((one.spilled for one in usage), default=0),
            max((one.shared for one in usage), default=0),
            round(now - begin, 1),
        )
        begin = now


def _of_core(function: simt.Func, usage: Usage) -> int:
    """The registers of the blocks of a kernel that a core is to run at once."""
    return usage.registers * function.threads * function.blocks


def head(architectures: Sequence[str]) -> list[str]:
    """The first two lines of the table."""
    registers = [f"registers, {name}" for name in architectures]
    titles = ["model", "calls", "kernels", "by tiles", *registers, "spilled", "shared", "seconds"]
    return [f"| {' | '.join(titles)} |", f"|:--|{'--:|' * (len(titles) - 1)}"]


def line(rows: Sequence[Row]) -> str:
    """A model's line of the table, from its row for each architecture."""
    first = rows[0]
    most = (max(row.spilled for row in rows), max(row.shared for row in rows))
    numbers = [first.calls, first.kernels, first.by_tiles, *[row.registers for row in rows], *most]
    cells = [first.model, *[f"{number:,}" for number in numbers]]
    return f"| {' | '.join([*cells, f'{sum(row.seconds for row in rows):.1f}'])} |"


def total(models_done: int, assemblers: Sequence[Assembler]) -> str:
    """How many kernels of how many models each architecture has taken, and what they spill."""
    each = [
        f"{len(one.known)} for {one.architecture}"
        f" ({sum(usage.spilled > 0 for usage in one.known.values())} spill)"
        for one in assemblers
    ]
    return f"{models_done} models; distinct kernels assembled: {', '.join(each)}"


def main() -> int:
    """Print a table, or with --json a line for each row."""
    parser = argparse.ArgumentParser("python -m benchmarks gpu_kernels")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: all)")
    parser.add_argument("--architecture", action="append", choices=GPUS, metavar="NAME")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    known = models()
    names: list[str] = arguments.names or list(known)
    unknown = sorted({*names} - {*known})
    if unknown:
        parser.error(f"no model is called {unknown[0]!r}; there are {', '.join(known)}")
    assemblers = [Assembler(name) for name in arguments.architecture or ARCHITECTURES]
    if not arguments.json:
        print("\n".join(head([one.architecture for one in assemblers])))
    code, models_done = 0, 0
    for name in names:
        try:
            rows = list(measure(name, known[name], assemblers))
        except DlcError as error:
            print(f"{name}: {error}", file=sys.stderr)
            code = 1
            continue
        lines = [json.dumps(asdict(row)) for row in rows] if arguments.json else [line(rows)]
        print("\n".join(lines), flush=True)
        models_done += 1
    if not arguments.json:
        print(f"\n{total(models_done, assemblers)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
