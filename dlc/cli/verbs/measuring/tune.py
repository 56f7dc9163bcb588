"""`dlc tune`: the costs of this machine, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import note, print_json, progress


def command(
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="The file; costs.json in the cache by default."),
    ] = None,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Measure the processor, which is the default.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure less often, for a rough table.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Measure the costs of work on this machine, by which passes decide."""
    del cpu  # there is no other table to measure
    with progress("measuring costs"):
        tuned = driver.tune_costs(out, quick=quick)
    if as_json:
        print_json(tuned.data)
        return
    print(tuned.text)
    used = "compilations for this machine use it" if out is None else f"use it with --costs {out}"
    note(f"{tuned.path}: the costs of {tuned.processor}; {used}")
