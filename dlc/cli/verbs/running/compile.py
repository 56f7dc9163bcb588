"""`dlc compile`: from a model to a `.dlc` file."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import note, notes, print_json, progress
from dlc.cli.values import check_kept, named_file, output_path
from dlc.runtime.system.counts import counted


@options.compiling(
    "level",
    "target",
    "weights",
    *options.FORMS,
    "disable_pass",
    "kernel",
    "bisect",
    "chosen",
    "module",
    "place",
    "shapes",
    "fixed",
    "verify_each",
    "max_memory",
    "plan_effort",
    "dims",
    "trust_ir",
)
def command(
    model: options.Model,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The .dlc file; MODEL.dlc by default.")
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="STAGE", help="The level of a .dlir: graph, kernel, plan or loop."
        ),
    ] = None,
    ranks: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="For N processes that share each call: dlc run --ranks N."
        ),
    ] = 1,
    *,
    compilation: options.Compilation,
    timing: Annotated[bool, typer.Option("--timing", help="Print the time of each pass.")] = False,
    print_op_stats: options.OpStats = False,
    as_json: options.Json = False,
) -> None:
    """Compile a model to a .dlc file."""
    path = out or named_file(model, "not a model").with_suffix(".dlc")
    check_kept([path], [model, compilation.weights])
    output_path(path, ".dlc")
    began = time.perf_counter()
    with progress(f"compiling {model}"):
        request = replace(compilation.of(model), ranks=ranks)
        counts = driver.OpCounts() if print_op_stats else None
        made = driver.make_artifact(request, stage=stage, counts=counts)
    made.artifact.write(path)
    spent = time.perf_counter() - began
    notes(made.report.notes)
    if as_json:
        data = {"out": str(path), "seconds": made.report.seconds, "passes": dict(made.passes)}
        print_json(data if counts is None else {**data, "ops": counts.data})
        return
    if counts is not None:
        print(counts.text)
    if timing:
        _print_times(made)
    note(f"{path}: {counted(path.stat().st_size, 'byte')}, {spent:.2f} s")


def _print_times(made: driver.CompileResult) -> None:
    """Milliseconds of each pass and of the parts of the compilation, the longest first."""
    rows = {**made.passes, **{f"({name})": spent for name, spent in made.report.seconds.items()}}
    for name, spent in sorted(rows.items(), key=lambda row: -row[1]):
        note(f"{spent * 1e3:9.2f} ms  {name}")
    if made.report.recalled:
        note("the same graph was compiled before: its code is from the cache")
        return
    note(f"{made.report.cached} kernels from the cache, {made.report.compiled} compiled")
