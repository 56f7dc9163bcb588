"""`dlc memory`: where values, or the buffers of a table, lie in memory, and how well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress
from dlc.cli.values import check_kept, sizes
from dlc.errors import UsageError, visible
from dlc.runtime.system.atomic_write import check_writable


@options.compiling(
    "level",
    "target",
    "matmul",
    "conv",
    "costs",
    "plan_effort",
    "disable_pass",
    "chosen",
    "module",
    "block",
    "place",
    "shapes",
    "fixed",
)
def command(
    model: Annotated[
        str | None, typer.Argument(help="A model: .dlm, .dlir, .dlc or .onnx.")
    ] = None,
    entry: options.Entry = None,
    dims: options.Dims = [],  # noqa: B006 - typer wants it; nothing changes it
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a page with pictures and tables.")
    ] = None,
    svg: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the picture: offsets over time.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a trace for Perfetto or Chrome.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Compare with the plan of this model.")
    ] = None,
    most: Annotated[
        str | None,
        typer.Option(
            "--max",
            metavar="SIZE",
            help="Find the largest batch, or --dim NAME, that fits, such as 512MiB.",
        ),
    ] = None,
    *,
    instance: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Place the buffers of a table id,lower,upper,size."),
    ] = None,
    effort: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --instance: search this many times as long as usual.",
            show_default="1",
        ),
    ] = None,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Show where values lie in memory, what is alive at the peak, and the least memory that they need.

    For a text with a `train` block, also covers a training step.
    """
    files = {"html": html, "svg": svg, "trace": trace}
    written = {kind: path for kind, path in files.items() if path is not None}
    asks = {
        **{f"--{kind}": path for kind, path in written.items()},
        "--compare": compare,
        "--max": most,
        "--instance": instance,
    }
    _check_one_question([option for option, value in asks.items() if value is not None])
    if instance is not None:
        _check_alone(model, entry, dims, compilation)
        _print_instance(driver.place_instance(instance, effort or 1), as_json)
        return
    chosen = sizes([text for text in dims if most is None or "=" in text])
    request = compilation.of(_needed(model, effort), call_sizes=chosen)
    if most is not None:
        _print_largest(request, entry, dims, most, as_json)
        return
    memory_request = driver.MemoryRequest(request, entry, chosen)
    if compare is not None:
        _print_comparison(
            memory_request,
            replace(memory_request, request=compilation.of(compare, call_sizes=chosen)),
            as_json,
        )
        return
    check_kept(written.values(), [request.path])
    for path in written.values():
        check_writable(path)
    _show(memory_request, written, as_json)


def _show(memory_request: driver.MemoryRequest, files: Mapping[str, str], as_json: bool) -> None:
    """The plan in files, or else, and as data in any case, on stdout."""
    memory = _planned(memory_request)
    driver.write_memory(memory, files)
    if as_json:
        print_json(driver.memory_data(memory))
    elif not files:
        print(visible(driver.memory_text(memory)))


def _planned(memory_request: driver.MemoryRequest) -> driver.ModelMemory:
    with progress(f"planning {memory_request.request.path}"):
        return driver.memory_of(memory_request)


def _print_comparison(
    one: driver.MemoryRequest, other: driver.MemoryRequest, as_json: bool
) -> None:
    before, after = _planned(one), _planned(other)
    if as_json:
        print_json(driver.comparison_data(before, after))
    else:
        print(visible(driver.comparison_text(before, after)))


def _print_largest(
    request: driver.CompileRequest, entry: str | None, dims: Sequence[str], most: str, as_json: bool
) -> None:
    """The largest value of the size that `--dim NAME` names, or of the only one that is free."""
    named = [text for text in dims if "=" not in text]
    if len(named) > 1:
        raise UsageError(
            f"--dim {named[0]} and --dim {named[1]} cannot both grow",
            code="D0901",
            help=f"say how large one is: --dim {named[1]}=64",
        )
    limit = options.memory(most, "--max")
    assert limit is not None
    memory_request = driver.MemoryRequest(
        request, entry, sizes([text for text in dims if text not in named])
    )
    with progress(f"planning {request.path}"):
        fits = driver.largest_fits(memory_request, named[0] if named else None, limit)
    if as_json:
        print_json(driver.fits_data(fits, limit))
    else:
        print(visible(driver.fits_text(fits, limit)))


def _check_one_question(options: Sequence[str]) -> None:
    """Files may be written side by side; all else has an answer of its own."""
    alone = [option for option in options if option in ("--compare", "--max", "--instance")]
    if alone and len(options) > 1:
        other = next(option for option in options if option != alone[0])
        raise UsageError(
            f"{alone[0]} and {other} ask for different things", code="D0901", help="choose one"
        )


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
    model: str | None, entry: str | None, dims: Sequence[str], compilation: options.Compilation
) -> None:
    """Refuse what is about a model beside a table of buffers."""
    if model is not None or entry is not None or dims or compilation != options.Compilation():
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
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        print(visible("  ".join(cells)))
