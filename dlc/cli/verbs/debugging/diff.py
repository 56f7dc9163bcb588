"""`dlc diff`: where the numbers of a model depart, from level to level or from another program's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import errors_data, note, print_json, print_text, progress
from dlc.errors import NumbersDiffer, visible


@options.calling("entry", "inputs", "dims", "random_inputs")
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
    "shapes",
    "fixed",
)
def command(
    model: options.Model,
    *,
    call: options.Call,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT", help="-O0 to -O3, a .dlc, .onnx or .pt2, or values in an .npz."
        ),
    ] = None,
    inputs_file: Annotated[
        str | None,
        typer.Option(
            "--inputs", metavar="FILE", help="Arrays of inputs by name: .npz, .safetensors."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the smaller model goes; dlc-diff-ENTRY by default."
        ),
    ] = None,
    no_reduce: Annotated[
        bool, typer.Option("--no-reduce", help="Find the fault, and do not reduce the model.")
    ] = False,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> int:
    """Find where the numbers of a model depart: the level, the pass, the rewrite and the value.

    Inputs that are not given are random numbers.
    """
    call_request = call.of(model)
    request = compilation.of(model, call_sizes=call_request.dims)
    if inputs_file is not None:
        call_request = driver.with_file(request, call_request, inputs_file)
    with progress(f"comparing the levels of {model}"), driver.random_indices_told(call_request):
        if against is not None:
            other = driver.compare_with(request, call_request, against)
            return _told(other.text, other.data, other.error, as_json=as_json)
        into = folder or Path(f"dlc-diff-{call.entry or Path(model).stem}")
        found = driver.compare_levels(request, call_request, folder=into, reduce=not no_reduce)
    fault = found.fault
    error = None
    if fault is not None:
        error = NumbersDiffer(
            f"{found.entry} departs at level {fault.level}, in {fault.pass_name}",
            code="D0951",
            help="please report it with the smaller model",
        )
    text = driver.text_of_departed(found)
    return _told(text, driver.data_of_departed(found), error, as_json=as_json)


def _told(text: str, data: dict[str, object], error: NumbersDiffer | None, *, as_json: bool) -> int:
    if as_json:
        print_json(data | ({} if error is None else errors_data(error)))
    else:
        print_text(f"{visible(text)}\n")
    if error is None:
        return 0
    note(error.render())
    return error.exit_code
