"""`dlc reduce`: a smaller file for which a command still succeeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress
from dlc.cli.values import check_kept, named_file
from dlc.runtime.system.atomic_write import check_writable, write_file
from dlc.runtime.system.counts import counted


def command(
    file: Annotated[str, typer.Argument(help="Model text (.dlm), IR (.dlir) or .onnx.")],
    test: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Must exit with 0 while the problem is still there; {} stands for the file.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="The file to write; reduced- and the name by default."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="The time after which the command counts as failed.")
    ] = 60.0,
    as_json: options.Json = False,
) -> None:
    """Make a file smaller as long as a command succeeds: delta debugging."""
    path = named_file(file, "no file to reduce")
    out = out or path.with_name(f"reduced-{path.name}")
    check_kept([out], [path])
    check_writable(out)
    with progress(f"reducing {file}"):
        found = driver.reduce_file(path, test, seconds)
    write_file(out, [found.data])
    before, after = path.stat().st_size, len(found.data)
    if as_json:
        print_json({"file": str(out), "bytes": after, "bytes_before": before, "tests": found.tests})
    else:
        print(f"{out}: {after} bytes of {before}, after {counted(found.tests, 'test')}")
