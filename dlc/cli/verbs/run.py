"""`dlc run`: call an entry point of a model, compiled or evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.launch import start
from dlc.cli.options import Compilation
from dlc.cli.quick import PlainRun
from dlc.cli.ranks import is_first, together
from dlc.cli.report import notes, print_json, progress
from dlc.cli.started import started_by_mpi
from dlc.cli.values import check_kept, listed, output_path
from dlc.errors import UsageError

if TYPE_CHECKING:
    from mpi4py import MPI

TOP = 5
"""The number of labels shown without --top."""

Output: TypeAlias = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=FILE",
        help="Write a result to .npy, .safetensors, .txt or a picture; then none is printed.",
    ),
]
Resize: TypeAlias = Annotated[bool, typer.Option("--resize", help="Make pictures fit.")]
Interpret: TypeAlias = Annotated[
    bool, typer.Option("--interpret", help="Evaluate with NumPy instead of compiling.")
]
Values: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME,...", help="Show these values of the text, or all: h, blocks[7].h*."
    ),
]
OutputValues: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write the values that --values names to an .npz instead."),
]
CheckNan: TypeAlias = Annotated[
    bool, typer.Option("--check-nan", help="Stop at the first NaN or infinity (evaluates).")
]
Grad: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="Y:X", help="Also the derivative of y by x, a result named dy/dx."),
]
Labels: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A file with the labels of the last axis, one per line."),
]
Top: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Show this many of the highest numbers of a result, with their labels or indices.",
        show_default=f"{TOP} with --labels",
    ),
]


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
    "kernel",
    "bisect",
    "chosen",
    "module",
    "place",
    "shapes",
    "fixed",
    "verify_each",
    "untrusted",
    "trust_ir",
)
def command(
    context: typer.Context,
    model: options.Model,
    entry: options.Entry = None,
    inputs: options.Inputs = [],  # noqa: B006 - typer wants it; nothing changes it
    output: Output = [],  # noqa: B006
    random_inputs: options.Seed = None,
    dims: options.Dims = [],  # noqa: B006
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Run as N processes that share the batch, by MPI."),
    ] = None,
    threads: options.Threads = None,
    pin: options.Pin = False,
    max_memory: options.Memory = None,
    resize: Resize = False,
    interpret: Interpret = False,
    values: Values = "",
    output_values: OutputValues = None,
    check_nan: CheckNan = False,
    grad: Grad = None,
    labels: Labels = None,
    top: Top = None,
    *,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> int:
    """Call an entry point of a model and print its results."""
    ended = start(ranks)
    if ended is not None:
        return ended
    plain = PlainRun(
        model,
        entry,
        tuple(inputs),
        tuple(output),
        tuple(dims),
        random_inputs,
        threads,
        compilation.device,
        compilation.weights,
        resize,
        as_json,
        cast("tuple[str, ...]", context.obj),
    )
    others = (max_memory, interpret, values, output_values, check_nan, grad, labels, top)
    only_device = Compilation(device=compilation.device)
    is_plain = model.endswith(".dlc") and not any(others) and compilation == only_device
    if is_plain and not started_by_mpi():
        options.pin_workers(pin)
        plain.do()  # without the modules that compile, which take a second to load
        return 0
    with together(ranks) as member:
        comm = member.comm
        options.pin_workers(pin, comm)
        call_request = plain.request()
        _check_values_file(values, output_values, call_request)
        names = None if labels is None else driver.read_labels(labels)
        watch = driver.Watch(listed(values), check_nan)
        request = _compile_request(compilation, call_request, grad)
        evaluates = interpret or check_nan
        if comm is not None and (evaluates or watch.watches):
            raise UsageError(
                "ranks share compiled calls, which show no values of the text",
                code="D0901",
                help="leave out --ranks, or --interpret, --values and --check-nan",
            )
        if evaluates:
            _check_evaluated(compilation, threads, max_memory)
            results = _evaluated(request, call_request, watch)
        else:
            memory = options.memory(max_memory)
            results = _compiled(request, call_request, watch, threads, memory, comm)
        if not is_first(comm):
            return 0
        driver.save_results(results, call_request.files)
        seen = watch.seen
        if output_values is not None:
            driver.save_values(seen, output_values)
            seen = {}
        best = None
        if names is not None or top is not None:
            best = driver.top_labels(results, names, top or TOP)
        if as_json:
            print_json(driver.as_data(results, seen, best))
        else:
            _print(results, seen, best, quiet=bool(call_request.files))
        return 0


def _compile_request(
    compilation: Compilation, call_request: driver.CallRequest, grad: str | None
) -> driver.CompileRequest:
    """The compilation for one call, with the derivative that --grad names.

    An .onnx model is imported with the sizes of the call, so that the import folds what depends on them.
    """
    request = compilation.of(call_request.path)
    if call_request.path.endswith(".onnx"):
        fixed = {name: (size, size) for name, size in call_request.dims.items()}
        request = replace(request, settings=replace(request.settings, dims=fixed))
    if grad is not None:
        request = replace(request, gradient=_gradient(call_request.entry, grad))
    return request


def _gradient(entry: str | None, text: str) -> tuple[str | None, str, str]:
    result, sign, name = text.partition(":")
    if not (result and sign and name):
        raise UsageError(
            f"--grad {text!r} is not RESULT:INPUT", code="D0901", help="write --grad loss:x"
        )
    return entry, result, name


def _check_values_file(values: str, path: str | None, call_request: driver.CallRequest) -> None:
    """Raises UsageError: D0901 for a file of no values or another ending, D0924 for one that is read."""
    if path is None:
        return
    if not values:
        raise UsageError(
            "--output-values has no values to write", code="D0901", help="add --values all"
        )
    output_path(Path(path), ".npz")
    check_kept([path], [call_request.path, *call_request.inputs.values()])


def _check_evaluated(compilation: Compilation, threads: int | None, max_memory: str | None) -> None:
    """Refuse options of compiled code where NumPy evaluates the model. Raises UsageError (D0901)."""
    used = {
        "--threads": threads,
        "--max-memory": max_memory,
        "--verify-each": compilation.verify_each,
        "--target": compilation.target != "cpu",
        "--device": compilation.device,
    }
    unsupported = [option for option, value in used.items() if value]
    if unsupported:
        raise UsageError(
            f"{unsupported[0]} is about compiled code, and NumPy evaluates this",
            code="D0901",
            help="leave it out, or --interpret and --check-nan",
        )


def _compiled(
    request: driver.CompileRequest,
    call_request: driver.CallRequest,
    watch: driver.Watch,
    threads: int | None,
    max_memory: int | None,
    comm: MPI.Intracomm | None,
) -> driver.Results:
    doing = "running" if request.is_compiled and not watch.watches else "compiling and running"
    with progress(f"{doing} {request.path}") if is_first(comm) else nullcontext():
        if watch.watches:
            results, remarks = driver.run_watched(request, call_request, watch, threads, max_memory)
        else:
            results, remarks = driver.run_model(request, call_request, threads, max_memory, comm)
    if is_first(comm):
        notes(remarks)
    return results


def _evaluated(
    request: driver.CompileRequest, call_request: driver.CallRequest, watch: driver.Watch
) -> driver.Results:
    with progress(f"evaluating {request.path}"):
        results, remarks = driver.evaluate_model(request, call_request, watch)
    notes(remarks)
    return results


def _print(
    results: driver.Results,
    seen: Mapping[str, driver.Seen],
    best: driver.Ranking | None,
    *,
    quiet: bool,
) -> None:
    """The watched values; then all results, or the best labels alone where results went to files.

    A value that is a result of the same name is printed as that alone.
    """
    ranked: set[str] = set() if best is None else {best.result}
    shown = {} if quiet else {k: v for k, v in results.named.items() if k not in ranked}
    beside = driver.beside(seen, shown)
    if beside:
        print(driver.seen_text(beside))
    if not quiet:
        print(driver.as_text(results, best))
    elif best is not None:
        print(driver.ranking_text(results, best))
