"""`dlc probe`: what the inner values of a call are like."""

from __future__ import annotations

from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import notes, print_json, progress


@options.calling("entry", "inputs", "dims", "random_inputs", "threads")
@options.compiling(
    "weights",
    "level",
    "target",
    "matmul",
    "conv",
    "costs",
    "disable_pass",
    "bisect",
    "chosen",
    "module",
    "place",
    "shapes",
    "fixed",
    "untrusted",
    "trust_ir",
)
def command(
    model: options.Model,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VALUE]...",
            help="Only these values of the text: h, 'blocks[7].attn.*'. Without any, all.",
        ),
    ] = None,
    *,
    call: options.Call,
    interpret: Annotated[
        bool, typer.Option("--interpret", help="Evaluate with NumPy instead of compiling.")
    ] = False,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Show statistics of the inner values of a call, and the first NaN; inputs left out are random.

    The values are those of machine code, whose results stay the same to the bit. Values that it
    does not keep in memory are recomputed from those that it keeps.
    """
    watch = driver.Watch(values or ["all"])
    with progress(f"probing {model}"):
        call_request = call.of(model)
        request = compilation.of(model, call_sizes=call_request.dims)
        if interpret:
            results, remarks = driver.evaluate_model(request, call_request, watch)
        else:
            results, remarks = driver.run_watched(request, call_request, watch, call.threads)
    notes(remarks)
    if as_json:
        print_json(driver.probe_data(results.entry, watch))
    else:
        print(driver.probe_text(watch))
