"""What compiling costs: time, memory, and how both grow with the model.

    python -m benchmarks compile [NAME]... [--rounds 3] [--growth] [--json FILE]

Compiles each model in a fresh process with an empty cache (cold), then in another one with what the first
has kept (warm). Of several rounds the fastest counts. Beside the time that passes stands the processor
time of the process (own), and that of those that it started (others). Memory is what the largest resident
size exceeds that before the model was opened by, without the weights. NAME may be any network of
`benchmarks.networks`. Modules have their bytecode, as in an installation.

`--growth` compiles graphs of 500, 1,000 and 2,000 operations: `wide` ones, whose branches do not depend on
each other, and `deep` ones, each of whose layers reads the one before.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from dlc.driver.run.request import CompileRequest, make_artifact

ROOT = Path(__file__).parents[1]
EXPORTED = ("resnet50", "densenet121", "vit_b16", "gpt_prefill")
"""Networks of `benchmarks.networks`."""
STEPS = {"gpt_step": "gpt", "resnet18_step": "resnet18"}
"""Steps of training, by the networks of `benchmarks.training`."""
NAMES = (*EXPORTED, "llama", *STEPS)
GROWTH = tuple([f"{kind}_{count}" for kind in ("wide", "deep") for count in (500, 1000, 2000)])
OPERATIONS_OF_A_LAYER = 8
MIB = 1 << 20

Facts: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A model, and the facts of its compilations without and with a cache."""

    name: str
    cold: Facts
    warm: Facts

    @property
    def row(self) -> str:
        """The line of the table."""
        cold, warm = self.cold, self.warm
        return (
            f"| {self.name} | {cold['wall_s']:.2f} | {cold['own_s']:.2f} | {cold['others_s']:.2f} "
            f"| {warm['wall_s']:.2f} | {warm['own_s']:.2f} "
            f"| {cold['weights_mib']:.0f} | {cold['memory_mib']:.0f} |"
        )


HEAD = (
    "| | cold, s | own | others | warm, s | own | weights, MiB | memory, MiB |\n"
    "|---|---|---|---|---|---|---|---|"
)


def generated(name: str) -> str:
    """The text of `wide_N` or `deep_N`, whose graph has about N operations."""
    kind, count = name.split("_")
    layers = range(int(count) // OPERATIONS_OF_A_LAYER)
    source = {"wide": "x", "deep": "y{0}"}[kind]
    lines = [
        f"  let y{k + 1} = relu({(s := source.format(k))} @ w + {k}) * softmax({s} * {k + 2})"
        for k in layers
    ]
    total = " + ".join(f"y{k + 1}" for k in layers) if kind == "wide" else f"y{len(layers)}"
    head = "export fn f(x: f32[64, 64], w: f32[64, 64]) -> f32[64, 64] {"
    return "\n".join(["dlc 1", head, "  let y0 = x", *lines, f"  return {total}", "}", ""])


def request(name: str, folder: Path) -> CompileRequest:
    """What to compile."""
    # The networks need packages that are not there where only growth is measured.
    from benchmarks.networks.files import network
    from benchmarks.training.cases import OPTIMIZERS, path_of, with_optimizer
    from benchmarks.training.cases import STEPS as CASES

    if name in STEPS:
        case = CASES[STEPS[name]]
        text = with_optimizer(path_of(STEPS[name]), OPTIMIZERS[case.optimizer])
        path = folder / f"{name}.dlm"
        path.write_text(text, "utf-8")
        return CompileRequest(str(path), parameters=case.settings, to_train=True)
    if name in GROWTH:
        path = folder / f"{name}.dlm"
        path.write_text(generated(name), "utf-8")
        return CompileRequest(str(path))
    if name == "llama":
        return CompileRequest(str(ROOT / "examples" / "llama.dlm"), weights="init:0")
    return CompileRequest(str(network(name)))


def compile_here(name: str, folder: Path) -> Facts:
    """Compile a model in this process."""
    asked = request(name, folder)
    resident, own, others = _resident(), *_processors()
    began = time.perf_counter()
    made = make_artifact(asked)
    passed = time.perf_counter() - began
    own, others = [
        after - before for after, before in zip(_processors(), (own, others), strict=True)
    ]
    seconds = made.report.seconds
    weights = len(made.artifact.sections.get("weights", b""))
    known = {f"{phase}_s": seconds.get(phase, 0.0) for phase in ("lower", "code", "recall")}
    return {
        "wall_s": passed,
        "own_s": own,
        "others_s": others,
        "read_s": passed - sum(known.values()),
        **known,
        "weights_mib": weights / MIB,
        "memory_mib": (_resident() - resident - weights) / MIB,
    }


def _processors() -> tuple[float, float]:
    """The seconds that processors worked for this process, and for those that it started and that ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, others = [each.ru_utime + each.ru_stime for each in found]
    return own, others


def _resident() -> int:
    """The largest resident size so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(name: str, rounds: int) -> Outcome:
    """Compile a model in fresh processes."""
    cold: list[Facts] = []
    warm: list[Facts] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for found in (cold, warm):
                found.append(_apart(name, Path(folder)))
    return Outcome(name, *[min(found, key=lambda facts: facts["wall_s"]) for found in (cold, warm)])


def _apart(name: str, folder: Path) -> Facts:
    """The facts of a compilation in a process of its own, whose cache is in a folder."""
    command = [sys.executable, "-m", "benchmarks", "compile", "--here", str(folder), name]
    environment = {**os.environ, "DLC_CACHE": str(folder / "cache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    told = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    return json.loads(told.stdout)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile what was asked for, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join((*NAMES, *GROWTH)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", action="store_true", help="graphs of growing size")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    names = chosen.names or (GROWTH if chosen.growth else NAMES)
    from benchmarks.networks.files import network_names

    if unknown := set(names) - (possible := {*NAMES, *GROWTH, *network_names()}):
        parser.error(f"no model is called {min(unknown)}; there are {', '.join(sorted(possible))}")
    if chosen.here is not None:
        print(json.dumps(compile_here(names[0], chosen.here)))
        return
    print(HEAD)
    outcomes: list[Outcome] = []
    for name in names:
        outcomes.append(measure(name, chosen.rounds))
        print(outcomes[-1].row, flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1), "utf-8")


if __name__ == "__main__":
    main()
