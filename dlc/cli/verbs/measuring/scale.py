"""`dlc scale`: predict the time of a step or a call for growing numbers of ranks."""

from __future__ import annotations

from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress
from dlc.cli.values import sizes
from dlc.errors import UsageError, visible
from dlc.runtime.ranks.parts import Shard
from dlc.target.network import HERE, Network, network_named


@options.compiling(
    "level",
    "target",
    "matmul",
    "conv",
    "costs",
    "disable_pass",
    "chosen",
    "module",
    "block",
    "shapes",
    "fixed",
)
def command(
    model: options.Model,
    entry: options.Entry = None,
    ranks: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Predict 1, 2, 4 ... N ranks; of a mesh `data` grows, and its other axes stay.",
        ),
    ] = 64,
    network: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="25Gbit, 25Gbit,5us with the time of a message, or here: one machine.",
        ),
    ] = HERE.name,
    dims: options.Dims = [],  # noqa: B006 - typer wants it; nothing changes it
    weak: Annotated[
        bool, typer.Option("--weak", help="Give each rank the whole batch, not a part of it.")
    ] = False,
    shard: Annotated[
        Shard | None, typer.Option(help="Which arrays the ranks split, as in dlc train.")
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="The measured time of the first row; predicted by default."
        ),
    ] = None,
    threads: options.Threads = None,
    *,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Predict how a step of training, or a call, scales with the number of ranks.

    Each rank has its own processors. Nothing runs: the times of work and collectives come from cost tables.
    Where the mesh has stages, their schedule is played with these times.
    """
    chosen = sizes(dims)
    asked = driver.ScaleRequest(
        compilation.of(model, call_sizes=chosen),
        ranks,
        _network(network),
        entry,
        chosen,
        threads,
        shard,
        step,
        weak,
    )
    with progress(f"lowering {model}"):
        found = driver.predict_scaling(asked)
    if as_json:
        print_json(driver.scaling_data(found))
    else:
        print(visible(driver.scaling_text(found)))


def _network(name: str) -> Network:
    found = network_named(name)
    if found is None:
        raise UsageError(
            f"--network {name!r} is not a network",
            code="D0901",
            help="write here, 25Gbit, or 100Gbit,2us with the time of a message",
        )
    return found
