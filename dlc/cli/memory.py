"""`dlc memory`: where values, or the buffers of a table, lie in memory, and how well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress
from dlc.cli.values import sizes
from dlc.errors import UsageError


@options.compiling("level", "target", "matmul", "disable_pass", "chosen", "module", "place")
def command(
    model: Annotated[
        str | None, typer.Argument(help="A model: .dlm, .dlir, .dlc or .onnx.")
    ] = None,
    entry: options.Entry = None,
    dims: options.Dims = [],  # noqa: B006 - typer wants it; nothing changes it
    *,
    instance: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Place the buffers of a table id,lower,upper,size."),
    ] = None,
    effort: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --instance: how many times as long as usual to search.",
            show_default="1",
        ),
    ] = None,
    given: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Show where values lie in memory, what is alive at the peak, and the least memory that they need.

    Of a text with a train block also for a step of training.
    """
    if instance is not None:
        _check_alone(model, entry, dims, given)
        _print_instance(driver.place_instance(instance, effort or 1), as_json)
        return
    asked = driver.Asked(given.of(_needed(model, effort)), entry, sizes(dims))
    with progress(f"planning {asked.wanted.path}"):
        found = driver.memory_of(asked)
    if as_json:
        print_json(driver.memory_data(found))
    else:
        print(driver.memory_text(found))


def _needed(model: str | None, effort: int | None) -> str:
    """The model, which is there, and none of what only tables take."""
    if model is None:
        raise UsageError(
            "a model is missing", code="D0901", help="write dlc memory MODEL, or --instance FILE"
        )
    if effort is not None:
        raise UsageError(
            "--effort is for the buffers of --instance", code="D0901", help="leave it out"
        )
    return model


def _check_alone(
    model: str | None, entry: str | None, dims: Sequence[str], given: options.Compilation
) -> None:
    """Refuse what is about a model beside a table of buffers."""
    if model is not None or entry is not None or dims or given != options.Compilation():
        raise UsageError(
            "--instance has buffers of its own, and no model",
            code="D0901",
            help="leave the model and its options out, or --instance",
        )


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
