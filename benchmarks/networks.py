"""Networks side by side with onnxruntime and OpenVINO: each in a process of its own, in turns.

    python -m benchmarks networks [NAME]... [--threads 1] [--threads 2] [--rounds 5] [--json]
        [--busy N]... [--target cpu:NAME]... [--out FOLDER] [--alone] [--direct] [--kernels]
        [--costs TABLE] [--processor-time]

The networks are the light graphs of the onnx package, ResNet-50 with 8 pictures, the networks of
`benchmarks.conv_networks`, and those of `benchmarks.sequence_networks`, which PyTorch exports, all with
seeded weights. The peers come from environments that are made in the cache folder the first time;
`torch.compile` takes part where PyTorch has the network. All contenders must give the same results before
anything is timed; then they take turns, so that a disturbance hits all of them. `--alone` leaves the peers
out, `--direct` adds ours without Winograd's form of convolutions, `--costs` ours by a table of costs, and
`--kernels` prints where the time of ours goes, with `--direct` of that one. `--processor-time` counts what
a contender's threads take of the processors in place of the time that passes: other work on the machine
then disturbs less. `--busy 1` keeps one core busy meanwhile, `--target cpu:x86-64-v3` is for code without
AVX-512, and peers that have a switch keep to AVX2, too. Options that may stand several times are combined
with each other. `--out` writes all of it into a folder, after each network anew: Markdown, JSON and a
picture (`benchmarks.networks_report`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper

from benchmarks.conv_networks import CONV_NETWORKS
from benchmarks.environment import cache_folder, python_with
from benchmarks.networks_report import (
    Outcome,
    Setting,
    machine,
    peer_settings,
    versions_of,
    write_report,
)
from benchmarks.serve import CLOCK, COSTS, TARGET
from benchmarks.turns import ROOT, Process, take_turns
from benchmarks.zoo.making import python as exporters
from tests.conformance.seeded import seeded

HERE = Path(__file__).parent
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
PEERS = ("onnxruntime", "openvino")
BATCHES = {"resnet50_batch8": ("resnet50", 8)}
"""Light graphs with another number of pictures."""
COMPILED = "torch.compile"
EXPORTED = (
    *("vit_b16", "minilm", "minilm_batch8", "gpt_prefill", "lstm_2x512", "gru_256", "mlp", "ncf"),
    *("minilm_int8",),
)
"""The networks of `benchmarks.sequence_networks`, which this environment cannot import."""
TOLERANCE = 1e-4
"""Of the largest result, between any two contenders."""
QUANTIZED_TOLERANCE = 1e-2
"""Where tensors are quantized anew at each call: the last bit of one may move another by a step."""


def names() -> list[str]:
    """The networks there are."""
    light = [path.stem.removeprefix("light_") for path in LIGHT.glob("*.onnx")]
    return [*sorted([*light, *BATCHES, *CONV_NETWORKS]), *EXPORTED]


def network(name: str) -> Path:
    """The file of a network with seeded weights, without a softmax at the end: it would hide errors."""
    path = cache_folder() / "networks" / f"{name}.onnx"
    if not path.exists() and name in EXPORTED:
        path.parent.mkdir(parents=True, exist_ok=True)
        export(name, path)
    elif not path.exists():
        make = CONV_NETWORKS.get(name)
        model = make() if make is not None else _light(*BATCHES.get(name, (name, 1)))
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(model.SerializeToString())
        partial.replace(path)
    return path


def _light(name: str, batch: int) -> ModelProto:
    """A light graph for so many pictures."""
    model = seeded(ModelProto.FromString((LIGHT / f"light_{name}.onnx").read_bytes()))
    graph = model.graph
    last = graph.node[-1]
    if last.op_type == "Softmax":
        graph.output[0].name = last.input[0]
        graph.output[0].ClearField("type")
        del graph.node[-1]
    if batch > 1:
        held = {tensor.name for tensor in graph.initializer}
        (picture,) = [value for value in graph.input if value.name not in held]
        picture.type.tensor_type.shape.dim[0].dim_value = batch
        del graph.value_info[:]
        for tensor in graph.initializer:  # of the reshape before the dense layer
            if tensor.name.startswith("OC2_DUMMY"):
                _, *rest = numpy_helper.to_array(tensor)
                tensor.CopyFrom(numpy_helper.from_array(np.array([batch, *rest]), tensor.name))
    return model


def export(name: str, path: Path) -> None:
    """Let PyTorch write a network, and its inputs beside it."""
    with tempfile.TemporaryDirectory(dir=path.parent) as partial:
        command = [exporters(), "-m", "benchmarks.sequence_networks", name, partial]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        # The inputs first: the file of the network says that both are there.
        for made in (path.with_suffix(".npz"), path):
            Path(partial, made.name).replace(made)


def random_inputs(path: Path) -> dict[str, NDArray[Any]]:
    """Numbers for every input that is no weight."""
    drawn = path.with_suffix(".npz")
    if drawn.exists():
        with np.load(drawn) as file:
            return {key: file[key] for key in file.files}
    graph = ModelProto.FromString(path.read_bytes()).graph
    held = {tensor.name for tensor in graph.initializer}
    stream = np.random.default_rng(1)
    return {
        value.name: stream.standard_normal(
            [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in graph.input
        if value.name not in held
    }


class Run(NamedTuple):
    """How contenders run: the clock is `wall` or `processor`, the target that of our code."""

    threads: int
    rounds: int
    clock: str = "wall"
    target: str = "cpu"
    busy: int = 0
    costs: str | None = None


class SourceModel(Process):
    """A contender that has opened a network."""

    def __init__(self, name: str, model: Path, folder: Path, run: Run) -> None:
        self._results = folder / f"{name}.npz"
        python = sys.executable
        if name == COMPILED:
            python = exporters()
        elif name in PEERS:
            python = python_with("peers", PEERS)
        script = str(HERE / "contender.py")
        inputs = str(folder / "inputs.npz")
        command = [python, script, name, str(model), inputs, str(self._results), str(run.threads)]
        settings = {"DLC_CACHE": str(folder / "objects"), CLOCK: run.clock, TARGET: run.target}
        if run.costs is not None:
            settings[COSTS] = run.costs
        super().__init__(name, command, {**settings, **peer_settings(run.target).get(name, {})})

    def results(self) -> list[NDArray[Any]]:
        """What the network gave."""
        with np.load(self._results) as file:
            return [file[key] for key in file.files]


def measure(name: str, contenders: Sequence[str], run: Run) -> list[Outcome]:
    """All contenders on one network, in turns."""
    model = network(name)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        np.savez(folder / "inputs.npz", allow_pickle=False, **random_inputs(model))
        with ExitStack() as alive:
            running = [
                alive.enter_context(SourceModel(contender, model, folder, run))
                for contender in contenders
            ]
            compare(name, running)
            take_turns(running, run.rounds)
    return [
        Outcome(
            name,
            process.name,
            run.threads,
            min(process.times),
            float(np.median(process.times)),
            process.facts,
            run.target,
            run.busy,
        )
        for process in running
    ]


@contextmanager
def busy_processes(count: int) -> Generator[None]:
    """Other work for so many processors, as long as the context lasts."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def compare(name: str, running: Sequence[SourceModel]) -> None:
    """End the program unless all contenders give the same results."""
    first, *others = running
    wanted = first.results()
    tolerance = QUANTIZED_TOLERANCE if name.endswith("int8") else TOLERANCE
    for other in others:
        for one, two in zip(wanted, other.results(), strict=True):
            error = float(np.abs(one - two).max() / np.abs(two).max())
            if not error <= tolerance:
                sys.exit(f"{name}: {first.name} and {other.name} differ by {error:.1e}")


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes of one network and number of threads as lines for people."""
    ours = next(outcome for outcome in outcomes if outcome.contender == "dlc")
    peers = [outcome for outcome in outcomes if outcome.contender in (*PEERS, COMPILED)]
    setting = Setting(ours.target, ours.threads, ours.busy)
    lines = [f"{ours.network}, {setting.title}"]
    for outcome in outcomes:
        lines.append(
            f"  {outcome.contender:13} best {outcome.best_ms:9.4g} ms  median {outcome.median_ms:9.4g}"
            f" ms  compile {outcome.facts['cold_compile_s']:5.2f} s"
        )
    if peers:
        best = min(peer.best_ms for peer in peers) / ours.best_ms
        median = min(peer.median_ms for peer in peers) / ours.median_ms
        lines.append(f"  the best peer / dlc: best {best:.2f}  median {median:.2f}")
    facts = ours.facts
    lines.append(
        f"  load best {facts['load_ms.best']:.1f} ms + hashing {facts['hash_ms.best']:.1f} ms,"
        f" median {facts['load_ms.median']:.1f} + {facts['hash_ms.median']:.1f} ms"
    )
    lines.append(
        f"  second compile {facts['second_compile_s']:.2f} s, prepare {facts['prepare_ms']:.0f} ms,"
        f" arena {facts['arena_bytes'] / 2**20:.1f} MiB"
    )
    return "\n".join(lines)


def everyone(name: str, *, alone: bool, direct: bool, costs: bool) -> tuple[str, ...]:
    """The contenders on a network."""
    ours = ("dlc", *(("dlc-direct",) if direct else ()), *(("dlc-costs",) if costs else ()))
    if alone:
        return ours
    has_module = name in EXPORTED and not name.endswith("int8")
    return (*ours, *PEERS, *((COMPILED,) if has_module else ()))


def main() -> None:
    """Measure the networks that the command line names, all of them if it names none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names()))
    parser.add_argument("--threads", type=int, action="append", help="1 and 2 if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="Markdown, JSON and a picture")
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("--kernels", action="store_true", help="the time of each kernel of ours")
    parser.add_argument("--direct", action="store_true", help="also ours with --conv direct")
    parser.add_argument(
        "--busy", type=int, action="append", metavar="N", help="beside N busy cores"
    )
    parser.add_argument("--target", action="append", help="of our code: cpu (default), cpu:NAME")
    parser.add_argument("--costs", metavar="TABLE", help="also ours with a table of costs")
    parser.add_argument("--processor-time", action="store_true", help="of all threads")
    given = parser.parse_args()
    if unknown := sorted({*given.names} - {*names()}):
        parser.error(f"no network is called {unknown[0]}; there are {', '.join(names())}")
    clock = "processor" if given.processor_time else "wall"
    runs = [
        Run(threads, given.rounds, clock, target, busy, given.costs)
        for target in given.target or ("cpu",)
        for busy in given.busy or (0,)
        for threads in given.threads or (1, 2)
    ]
    found: list[Outcome] = []
    facts = machine({}) if given.alone else machine(peer_versions())
    for name in given.names or names():
        for run in runs:
            if given.kernels:
                from benchmarks.kernels import kernel_table

                path, conv = network(name), "direct" if given.direct else "auto"
                print(kernel_table(path, random_inputs(path), run.threads, conv))
                continue
            with busy_processes(run.busy):
                contenders = everyone(
                    name, alone=given.alone, direct=given.direct, costs=given.costs is not None
                )
                outcomes = measure(name, contenders, run)
            if given.json:
                for outcome in outcomes:
                    print(json.dumps(asdict(outcome)))
            else:
                print(table(outcomes), flush=True)
            found += outcomes
            if given.out:
                write_report(given.out, found, facts, clock)


def peer_versions() -> dict[str, str]:
    """The versions of the peers."""
    ready = versions_of(python_with("peers", PEERS), PEERS)
    return {**ready, **versions_of(exporters(), ("torch",))}


if __name__ == "__main__":
    main()
