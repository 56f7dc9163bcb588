"""`dlc run`: call an entry point of a model, compiled or evaluated."""

from __future__ import annotations

from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.quick import PlainRun
from dlc.cli.report import notes, print_json, progress
from dlc.errors import UsageError


def command(
    model: options.Model,
    entry: options.Entry = None,
    inputs: options.Inputs = [],  # noqa: B006 - typer wants it; nothing changes it
    output: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=FILE", help="Write a result to .npy, .safetensors or a picture."
        ),
    ] = [],  # noqa: B006
    random_inputs: options.Seed = None,
    dims: options.Dims = [],  # noqa: B006
    weights: options.Weights = None,
    threads: options.Threads = None,
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
        str | None, typer.Option(metavar="Y:X", help="Also the derivative of y by x.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="FILE", help="One label a line, for the last axis.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many labels to show.")] = 5,
    level: options.Level = 2,
    matmul: options.Matmul = "auto",
    disable_pass: options.Disabled = [],  # noqa: B006
    chosen: options.Chosen = [],  # noqa: B006
    module: options.Module = None,
    verify_each: options.Verify = False,
    as_json: options.Json = False,
) -> None:
    """Call an entry point of a model and show what it gives."""
    plain = PlainRun(
        model,
        entry,
        tuple(inputs),
        tuple(output),
        tuple(dims),
        random_inputs,
        threads,
        weights,
        resize,
        as_json,
    )
    given = options.Compilation(
        level,
        "cpu",
        weights,
        matmul,
        tuple(disable_pass),
        tuple(chosen),
        module,
        verify_each,
        None if grad is None else _gradient(entry, grad),
    )
    if interpret or values or check_nan:
        watched = tuple(name for name in values.split(",") if name)
        results = _evaluated(plain, given, driver.Watch(watched, check_nan))
    elif model.endswith(".dlc") and grad is None:
        with driver.load_model(model, weights=weights, threads=threads) as loaded:
            results = driver.call(loaded, plain.request())
    else:
        results = _compiled(plain, given)
    if labels is None:
        plain.hand_over(results)
    else:
        _print_labels(results, labels, top, as_json)


def _gradient(entry: str | None, text: str) -> tuple[str | None, str, str]:
    result, sign, name = text.partition(":")
    if not (result and sign and name):
        raise UsageError(
            f"--grad {text!r} is not RESULT:INPUT", code="D0901", help="write --grad loss:x"
        )
    return entry, result, name


def _compiled(plain: PlainRun, given: options.Compilation) -> driver.Results:
    request = plain.request()
    with progress(f"compiling {plain.path}"):
        model, made = driver.make_model(given.of(plain.path), plain.threads)
    notes(made.report.notes)
    with model:
        return driver.call(model, request)


def _evaluated(plain: PlainRun, given: options.Compilation, watch: driver.Watch) -> driver.Results:
    """The same without compiling; the watched values are shown first."""
    opened = given.of(plain.path).open()
    with progress(f"evaluating {plain.path}"):
        results, remarks = driver.evaluate_entry(opened, plain.request(), given.weights, watch)
    notes(remarks)
    seen = driver.named_values(watch.seen)
    if seen.values and plain.as_json:
        print_json(driver.as_data(seen))
    elif seen.values:
        print(driver.as_text(seen))
    return results


def _print_labels(results: driver.Results, file: str, count: int, as_json: bool) -> None:
    rows = driver.top_labels(results, file, count)
    if as_json:
        print_json([[{"label": label, "score": score} for label, score in row] for row in rows])
        return
    for row in rows:
        for label, score in row:
            print(f"{score:10.4f}  {label}")
