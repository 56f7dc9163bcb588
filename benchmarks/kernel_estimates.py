"""What the cost model says that kernels take, beside what they take: each kernel of whole networks.

    python -m benchmarks kernel_estimates [NAME]... [--rounds 40] [--least 0.5] [--json]

`python -m benchmarks costs --networks` does the same. Estimates are by the table that counts here, the
tuned one if there is one. Calls are on one thread, profiled (`dlc profile`) in rounds of plain and traced
calls in turns; of each kernel the smallest quarter of its times counts, because the machine may be shared.
The last line tells whether that worked: the sum of all kernels beside the processor time of a call, which
other work hardly lengthens: far from 1, figures are worth little.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.networks.files import network
from dlc.dialects import kernel, mem
from dlc.dialects.builtin import Module
from dlc.driver.compile.job import with_costs
from dlc.driver.profile.measured import ProfileRequest, profile_model
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest, make_here
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import STEP
from dlc.runtime.profiling.profile import Profile
from dlc.target.cpu import CpuTarget
from dlc.target.cpu_costs import CpuCosts
from dlc.target.estimates import picoseconds
from dlc.text.ir.parser import parse_op

EXAMPLES = Path(__file__).parent.parent / "examples"


@dataclass(frozen=True, slots=True)
class Case:
    """A network: one of `benchmarks.networks` by its name, or a model text, perhaps a step of training."""

    name: str
    text: str = ""
    entry: str | None = None
    dims: Mapping[str, int] | None = None
    train: bool = False

    @property
    def path(self) -> str:
        return str(EXAMPLES / self.text) if self.text else str(network(self.name))


CASES = (
    Case("resnet50"),
    Case("densenet121"),
    Case("mobilenet_v2"),
    Case("shufflenet"),
    Case("efficientnet_b0"),
    Case("minilm"),
    Case("gpt, a step of training", "networks/gpt.dlm", train=True),
    Case("lstm, a step of training", "networks/lstm.dlm", dims={"B": 16, "T": 16}, train=True),
    Case("digits, a step of training", "digits_cnn.dlm", train=True),
)


class Found(NamedTuple):
    """A kernel of a network: microseconds of one run."""

    network: str
    family: str
    title: str
    measured: float
    op: kernel.Kernel
    sizes: Mapping[str, int]
    costs: CpuCosts

    def with_costs(self, costs: CpuCosts) -> Found:
        """The same, estimated by another table."""
        return self._replace(costs=costs)

    @property
    def estimated(self) -> float:
        return picoseconds(self.op, self.sizes, self.costs) / 1e6

    @property
    def ratio(self) -> float:
        """The estimate, where the measured time is 1."""
        return self.estimated / self.measured

    @property
    def error(self) -> float:
        return abs(self.ratio - 1)

    def facts(self) -> dict[str, str | float]:
        """What is written as JSON."""
        names = ("network", "family", "title", "measured", "estimated")
        return {name: getattr(self, name) for name in names}


class Measured(NamedTuple):
    """The kernels of a network, and how well their sum agrees with the processor time of a call."""

    kernels: tuple[Found, ...]
    agrees: float


def measured(case: Case, rounds: int) -> Measured:
    """Profile a network, and estimate each kernel of its plan."""
    weights = "init:0" if case.text else None
    request = CompileRequest(case.path, weights=weights, to_train=case.train)
    call = CallRequest(case.path, STEP if case.train else case.entry, dims=case.dims or {}, seed=0)
    profile = profile_model(ProfileRequest(request, call, 1, rounds, case.train))
    kernels = _kernels(make_here(request).artifact, profile.entry)
    cpu = with_costs(request.settings).processor
    assert isinstance(cpu, CpuTarget)
    found = tuple(
        Found(
            case.name,
            _family(row.what, op),
            row.title,
            1000 * row.busy_ms / row.runs,
            op,
            profile.dims,
            cpu.costs,
        )
        for number, op in kernels
        if (row := profile.ops.get(number)) is not None
    )
    return Measured(found, _agreement(profile))


def _agreement(profile: Profile) -> float:
    parts = profile.kernels_ms + profile.between_ms + profile.python_ms
    return parts / profile.processor_ms


def _kernels(artifact: Artifact, entry: str) -> Iterator[tuple[int, kernel.Kernel]]:
    """The kernels of the plan of an entry point, with their op ids: these count the calls in order."""
    module = parse_op(bytes(artifact.section("plan")).decode(), "plan", Module)
    (program,) = [op for op in module.body if isinstance(op, mem.Program) and op.sym_name == entry]
    # The limit of a `while` takes an id, too, between its test and its body; no case here has one.
    return enumerate(op for op in program.walk() if isinstance(op, kernel.Kernel))


def _family(what: str, op: kernel.Kernel) -> str:
    """The lowering of a kernel, as far as costs tell them apart."""
    words = {
        "winograd conv kernel": "winograd gradient",
        "winograd transform": "winograd transform",
        "winograd": "winograd convolution",
        "depthwise": "depthwise convolution",
    }
    named = next((family for word, family in words.items() if word in what), None)
    return named or op.name.partition(".")[2]


def lines(rows: Sequence[Found], label: str) -> str:
    """One row of the table: how many, the median error, the median ratio, and milliseconds."""
    if not rows:
        return f"| {label} | 0 | | | |"
    return (
        f"| {label} | {len(rows)} | {median(row.error for row in rows):.0%} | "
        f"{median(row.ratio for row in rows):.2f} | "
        f"{sum(row.measured for row in rows) / 1000:.1f} |"
    )


def table(found: Sequence[Found]) -> Iterator[str]:
    """The errors by network, by family and by length."""
    yield "| kernels | number | median error | estimated / measured | ms |"
    yield "| --- | --: | --: | --: | --: |"
    for name in dict.fromkeys(row.network for row in found):
        yield lines([row for row in found if row.network == name], name)
    for family in sorted({row.family for row in found}):
        yield lines([row for row in found if row.family == family], f"`{family}`")
    yield lines([row for row in found if row.measured >= 10], "of 10 µs and more")
    yield lines(found, "all")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks kernel_estimates", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names (default: all)")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--least", type=float, default=0.5, help="leave out shorter kernels, in µs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: list[Found] = []
    agreements: dict[str, float] = {}
    for case in CASES:
        if options.names and not any(name in case.name for name in options.names):
            continue
        kernels, agreements[case.name] = measured(case, options.rounds)
        found += [row for row in kernels if row.measured >= options.least]
    if options.json:
        print(json.dumps({"kernels": [row.facts() for row in found], "agrees": agreements}))
        return
    print("\n".join(table(found)))
    told = ", ".join(f"{name} {agreement:.2f}" for name, agreement in agreements.items())
    print(f"kernels beside processor time: {told}")


if __name__ == "__main__":
    main()
