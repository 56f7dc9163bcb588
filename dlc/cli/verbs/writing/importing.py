"""`dlc import`: from a model of ONNX, PyTorch or JAX to model text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import note, notes, print_json, progress
from dlc.cli.values import bounds, check_kept, output_path, pairs


def command(
    model: Annotated[str, typer.Argument(help="An .onnx, .pt2 or .mlir file.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The .dlm file; MODEL.dlm by default.")
    ] = None,
    dim: options.Bounds = [],  # noqa: B006 - typer wants it; nothing changes it
    shape: options.Shapes = [],  # noqa: B006
    fix: options.Fixed = [],  # noqa: B006
    as_json: options.Json = False,
) -> None:
    """Write a model of ONNX, PyTorch or JAX as readable text, and its weights as .safetensors beside it."""
    if out is not None:
        check_kept([output_path(out, ".dlm")], [model])
    with progress(f"importing {model}"):
        made = driver.import_model(
            model,
            out,
            dims=bounds(dim),
            shapes=pairs("--shape", shape),
            fixed=pairs("--fix", fix),
        )
    notes(made.remarks)
    if as_json:
        weights = None if made.weights is None else str(made.weights)
        print_json(
            {
                "text": str(made.text),
                "weights": weights,
                "parameters": made.parameters,
                "renamed": dict(made.renamed),
            }
        )
        return
    notes(f"{old} is called {new} here" for old, new in made.renamed.items())
    beside = "" if made.weights is None else f" and {made.weights}"
    note(f"{made.text}{beside}: {made.parameters:,} parameters")
