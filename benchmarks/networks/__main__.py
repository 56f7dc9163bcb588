"""Networks side by side with onnxruntime and OpenVINO: each in a process of its own, in turns.

    python -m benchmarks networks [NAME]... [--threads 1] [--threads 2] [--rounds 5] [--json]
        [--busy N]... [--target cpu:NAME]... [--out FOLDER] [--alone] [--direct] [--kernels]
        [--costs TABLE] [--processor-time]

The networks are the light graphs of the onnx package, ResNet-50 with 8 pictures, and those of
`convolutional.py` and `sequences.py` in this folder, which PyTorch exports, all with seeded weights. The
peers come from environments that are made in the cache folder the first time; `torch.compile` takes part
where PyTorch has the network. All contenders must give the same results before anything is timed; then they
take turns, so that a disturbance hits all of them. `--alone` leaves the peers out,
`--direct` adds ours without Winograd's form of convolutions, `--costs` ours by a table of costs, and
`--kernels` prints where the time of ours goes, with `--direct` of that one. `--processor-time` counts what
a contender's threads take of the processors in place of the time that passes: other work on the machine
then disturbs less. `--busy 1` keeps one core busy meanwhile, `--target cpu:x86-64-v3` is for code without
AVX-512, and peers that have a switch keep to AVX2, too. Options that may stand several times are combined
with each other. `--out` writes all of it into a folder, after each network anew: Markdown, JSON and a
picture (`benchmarks.networks.report`).
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
from numpy.typing import NDArray

from benchmarks.contenders.environment import python_with
from benchmarks.contenders.serve import CLOCK, COSTS, TARGET
from benchmarks.contenders.turns import Process, take_turns
from benchmarks.networks.files import EXPORTED, network, network_names, random_inputs
from benchmarks.networks.report import (
    Outcome,
    Setting,
    machine,
    peer_settings,
    versions_of,
    write_report,
)
from benchmarks.zoo.making import python as exporters

HERE = Path(__file__).parent
PEERS = ("onnxruntime", "openvino")
COMPILED = "torch.compile"
TOLERANCE = 1e-4
"""Of the largest result, between any two contenders."""
QUANTIZED_TOLERANCE = 1e-2
"""Where tensors are quantized anew at each call: the last bit of one may move another by a step."""


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
    """Other work for `count` processors, as long as the context lasts."""
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
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(network_names()))
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
    if unknown := sorted({*given.names} - {*network_names()}):
        parser.error(f"no network is called {unknown[0]}; there are {', '.join(network_names())}")
    clock = "processor" if given.processor_time else "wall"
    runs = [
        Run(threads, given.rounds, clock, target, busy, given.costs)
        for target in given.target or ("cpu",)
        for busy in given.busy or (0,)
        for threads in given.threads or (1, 2)
    ]
    found: list[Outcome] = []
    facts = machine({}) if given.alone else machine(peer_versions())
    for name in given.names or network_names():
        for run in runs:
            if given.kernels:
                from benchmarks.networks.kernels import kernel_table

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
