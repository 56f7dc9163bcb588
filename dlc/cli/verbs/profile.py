"""`dlc profile`: where the time of a call goes."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress
from dlc.cli.values import check_kept
from dlc.errors import visible
from dlc.runtime.system.atomic_write import check_writable, write_file


@options.calling("entry", "inputs", "dims", "random_inputs", "threads")
@options.compiling(
    "weights",
    "level",
    "target",
    "device",
    "matmul",
    "conv",
    "costs",
    "matmul_precision",
    "accuracy",
    "disable_pass",
    "chosen",
    "module",
    "block",
    "place",
    "shapes",
    "fixed",
    "untrusted",
    "trust_ir",
)
def command(
    model: options.Model,
    *,
    call: options.Call,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="How often to call it, at least.", show_default="for 1.5 s"),
    ] = None,
    by: Annotated[
        Literal["kernel", "layer", "line"], typer.Option(help="What the rows are.")
    ] = "kernel",
    rows: Annotated[int, typer.Option(min=0, help="How many rows; 0 for all.")] = 25,
    train: Annotated[
        bool, typer.Option("--train", help="Profile a step of training, weights random.")
    ] = False,
    flame: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a flame graph as SVG.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a trace for Perfetto or Chrome.")
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="OLD.json", help="Say what changed since a profile with --json."),
    ] = None,
    pin: options.Pin = False,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Say where the time of a call goes: kernels, modules, lines of the text, beside the machine's roof.

    Inputs left out are random.
    """
    call_request = call.of(model)
    old = None if compare is None else driver.read_profile(compare)
    files = [path for path in (flame, trace) if path is not None]
    check_kept(files, [model])
    for path in files:
        check_writable(path)
    options.pin_workers(pin)
    asked = driver.ProfileRequest(compilation.of(model), call_request, call.threads, rounds, train)
    with progress(f"profiling {model}"):
        found = driver.profile_model(asked)
    if flame is not None:
        write_file(flame, [driver.flame_svg(found).encode()])
    if trace is not None:
        write_file(trace, [driver.trace_text(found).encode()])
    if old is not None:
        if as_json:
            print_json(driver.profile_comparison_data(old, found))
        else:
            print(visible(driver.profile_comparison_text(old, found)))
    elif as_json:
        print_json(driver.profile_data(found))
    else:
        print(found.table(by, rows))
