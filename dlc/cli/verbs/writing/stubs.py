"""`dlc stubs`: the entry points of a model for editors and type checkers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, print_text, progress
from dlc.cli.values import check_kept, output_path


@options.compiling("chosen", "module", "shapes", "fixed", "dims")
def command(
    model: options.Model,
    *,
    compilation: options.Compilation,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="The .py file; by default the module is printed."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write a Python module that tells editors and type checkers the entry points of a model."""
    if out is not None:
        check_kept([output_path(out, ".py")], [model])
    with progress(f"reading {model}"):
        text = driver.stubs(compilation.of(model))
    if out is not None:
        driver.write_text(out, text)
    if as_json:
        print_json({"model": model, "text": text})
    elif out is None:
        print_text(text)
