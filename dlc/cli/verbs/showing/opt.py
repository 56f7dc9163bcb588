"""`dlc opt`: run passes by name on IR."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, print_text, progress
from dlc.cli.values import check_kept, output_path


@options.compiling("level", "target", "matmul", "conv", "costs", "disable_pass", "verify_each")
def command(
    file: Annotated[str, typer.Argument(help="IR (.dlir), or any model.")],
    passes: Annotated[
        str,
        typer.Option(
            metavar="NAME,...", help="The passes, in order; with options as fuse{max_inputs=4},dce."
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="The file to write; by default the result is printed."),
    ] = None,
    short: Annotated[
        bool, typer.Option("--short", help="In the short spelling: types are inferred.")
    ] = False,
    print_op_stats: options.OpStats = False,
    *,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Run passes on IR and print the result, or with --print-op-stats what changed."""
    if out is not None:
        check_kept([output_path(out, ".dlir")], [file])
    with progress(f"running passes on {file}"):
        settings = compilation.settings()
    counts = driver.OpCounts() if print_op_stats else None
    text, names = driver.optimise_file(file, passes, settings, short=short, counts=counts)
    if out is not None:
        driver.write_text(out, text)
    if as_json:
        data = {"file": file, "passes": names, "text": text}
        print_json(data if counts is None else {**data, "ops": counts.data})
    elif counts is not None:
        print(counts.text)
    elif out is None:
        print_text(text)
