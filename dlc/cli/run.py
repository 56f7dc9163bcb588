"""`dlc run`: call an entry point of a model, compiled or evaluated."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, cast

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.options import Compilation
from dlc.cli.quick import PlainRun
from dlc.cli.report import notes, print_json, progress
from dlc.cli.values import listed
from dlc.errors import UsageError

TOP = 5
"""So many labels are shown, unless --top says how many."""


@options.compiling(
    "weights",
    "level",
    "target",
    "device",
    "matmul",
    "matmul_precision",
    "disable_pass",
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
    output: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=FILE",
            help="Write a result to .npy, .safetensors, .txt or a picture; then none is printed.",
        ),
    ] = [],  # noqa: B006
    random_inputs: options.Seed = None,
    dims: options.Dims = [],  # noqa: B006
    threads: options.Threads = None,
    max_memory: options.Memory = None,
    resize: Annotated[bool, typer.Option("--resize", help="Make pictures fit.")] = False,
    interpret: Annotated[
        bool, typer.Option("--interpret", help="Evaluate with NumPy instead of compiling.")
    ] = False,
    values: Annotated[
        str, typer.Option(metavar="NAME,...", help="Show these values, or all (evaluates).")
    ] = "",
    check_nan: Annotated[
        bool, typer.Option("--check-nan", help="Stop at the first NaN or infinity (evaluates).")
    ] = False,
    grad: Annotated[
        str | None,
        typer.Option(metavar="Y:X", help="Also the derivative of y by x, a result named dy/dx."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="FILE", help="One label a line, for the last axis.")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Show this many of the highest numbers of a result, with their labels or indices.",
            show_default=f"{TOP} with --labels",
        ),
    ] = None,
    *,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Call an entry point of a model and print its results."""
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
    more = (max_memory, interpret, values, check_nan, grad, labels, top)
    if (
        model.endswith(".dlc")
        and not any(more)
        and compilation == Compilation(device=compilation.device)
    ):
        plain.do()  # without what compiles, which takes a second to load
        return
    call_request = plain.request()
    names = None if labels is None else driver.read_labels(labels)
    watch = driver.Watch(listed(values), check_nan)
    request = compilation.of(model)
    if model.endswith(".onnx"):
        # What follows from sizes that are known is computed while importing.
        only = {name: (size, size) for name, size in call_request.dims.items()}
        request = replace(request, settings=replace(request.settings, dims=only))
    if grad is not None:
        request = replace(request, gradient=_gradient(entry, grad))
    if interpret or values or check_nan:
        target = None if compilation.target == "cpu" else compilation.target
        _check_evaluated(
            threads=threads,
            max_memory=max_memory,
            verify_each=compilation.verify_each,
            target=target,
            device=compilation.device,
        )
        results = _evaluated(request, call_request, watch)
    else:
        results = _compiled(request, call_request, threads, options.memory(max_memory))
    driver.save_results(results, call_request.files)
    best = None
    if names is not None or top is not None:
        best = driver.top_labels(results, names, top or TOP)
    if as_json:
        print_json(driver.as_data(results, watch.seen, best))
    else:
        _print(results, watch, best, quiet=bool(call_request.files))


def _gradient(entry: str | None, text: str) -> tuple[str | None, str, str]:
    result, sign, name = text.partition(":")
    if not (result and sign and name):
        raise UsageError(
            f"--grad {text!r} is not RESULT:INPUT", code="D0901", help="write --grad loss:x"
        )
    return entry, result, name


def _check_evaluated(**options: object) -> None:
    """Refuse what only compiled code can keep, where nothing is compiled."""
    unsupported = [name for name, value in options.items() if value]
    if unsupported:
        raise UsageError(
            f"--{unsupported[0].replace('_', '-')} is about compiled code, and NumPy evaluates this",
            code="D0901",
            help="leave it out, or --interpret, --values and --check-nan",
        )


def _compiled(
    request: driver.CompileRequest,
    call_request: driver.CallRequest,
    threads: int | None,
    max_memory: int | None,
) -> driver.Results:
    doing = "running" if request.is_compiled else "compiling and running"
    with progress(f"{doing} {request.path}"):
        results, remarks = driver.run_model(request, call_request, threads, max_memory)
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
    results: driver.Results, watch: driver.Watch, best: driver.Ranking | None, *, quiet: bool
) -> None:
    """The watched values; then all results, or the best labels alone where results went to files.

    A value that is a result of the same name is printed as that alone.
    """
    ranked: set[str] = set() if best is None else {best.result}
    shown = {} if quiet else {k: v for k, v in results.named.items() if k not in ranked}
    beside = watch.beside(shown)
    if beside:
        print(driver.as_text(driver.named_values(beside)))
    if not quiet:
        print(driver.as_text(results, best))
    elif best is not None:
        print(driver.ranking_text(results, best))
