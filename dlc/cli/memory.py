"""`dlc memory`: where buffers lie in memory, and how well."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json


def command(
    *,
    instance: Annotated[
        str,
        typer.Option(metavar="FILE", help="Place the buffers of a table id,lower,upper,size."),
    ],
    effort: Annotated[
        int, typer.Option(min=1, help="How many times as long as usual to search.")
    ] = 1,
    as_json: options.Json = False,
) -> None:
    """Show where buffers lie in memory, and the least memory that they need."""
    _print_instance(driver.place_instance(instance, effort), as_json)


def _print_instance(placed: driver.PlacedInstance, as_json: bool) -> None:
    if as_json:
        print_json(asdict(placed))
        return
    over = placed.height / max(1, placed.lower_bound)
    print(f"{len(placed.buffers)} buffers in {placed.height:,} bytes")
    print(f"{placed.lower_bound:,} bytes are in use at once: {over:.3f} times as much is taken")
    rows = [("id", "offset", "size")]
    rows += [(each.id, f"{each.offset:,}", f"{each.size:,}") for each in placed.buffers]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
