"""`dlc run`: call an entry point of a model, compiled or evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

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


@dataclass(frozen=True, slots=True)
class Running:
    """The options of a run besides those of its compilation."""

    entry: options.Entry = None
    inputs: options.Inputs = field(default_factory=list[str])
    output: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=FILE",
            help="Write a result to .npy, .safetensors, .txt or a picture; then none is printed.",
        ),
    ] = field(default_factory=list[str])
    random_inputs: options.Seed = None
    dims: options.Dims = field(default_factory=list[str])
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Run as N processes that share the batch, by MPI."),
    ] = None
    threads: options.Threads = None
    pin: options.Pin = False
    max_memory: options.Memory = None
    resize: Annotated[
        bool, typer.Option("--resize", help="Resize pictures to the size of the input.")
    ] = False
    interpret: Annotated[
        bool, typer.Option("--interpret", help="Evaluate with NumPy instead of compiling.")
    ] = False
    values: Annotated[
        str,
        typer.Option(
            metavar="NAME,...", help="Show these values of the text, or all: h, blocks[7].h*."
        ),
    ] = ""
    output_values: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the values that --values names to an .npz instead."
        ),
    ] = None
    check_nan: Annotated[
        bool, typer.Option("--check-nan", help="Stop at the first NaN or infinity (evaluates).")
    ] = False
    grad: Annotated[
        str | None,
        typer.Option(metavar="Y:X", help="Also the derivative of y by x, a result named dy/dx."),
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A file with the labels of the last axis, one per line."),
    ] = None
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Show this many of the highest numbers of a result, with their labels or indices.",
            show_default=f"{TOP} with --labels",
        ),
    ] = None

    @property
    def evaluates(self) -> bool:
        """Whether NumPy evaluates the model."""
        return self.interpret or self.check_nan

    @property
    def is_plain(self) -> bool:
        """Whether an artifact runs so without the modules that compile."""
        shows = self.values or self.output_values or self.labels or self.top
        return not (self.max_memory or self.evaluates or shows or self.grad)

    def call_of(
        self, model: str, compilation: Compilation, words: tuple[str, ...], *, as_json: bool
    ) -> PlainRun:
        """The call that the options ask for; `words` is the command line."""
        return PlainRun(
            model,
            self.entry,
            tuple(self.inputs),
            tuple(self.output),
            tuple(self.dims),
            self.random_inputs,
            self.threads,
            compilation.device,
            compilation.weights,
            self.resize,
            as_json,
            words,
        )


@options.gathering("running", Running())
@options.compiling(
    *options.RUNNABLE,
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
    *,
    running: Running,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> int:
    """Call an entry point of a model and print its results."""
    ended = start(running.ranks)
    if ended is not None:
        return ended
    words = cast("tuple[str, ...]", context.obj)
    plain = running.call_of(model, compilation, words, as_json=as_json)
    only_device = Compilation(device=compilation.device)
    is_plain = model.endswith(".dlc") and running.is_plain and compilation == only_device
    if is_plain and not started_by_mpi():
        options.pin_workers(running.pin)
        plain.do()  # without the modules that compile, which take a second to load
        return 0
    with together(running.ranks) as member:
        comm = member.comm
        options.pin_workers(running.pin, comm)
        call_request = plain.request()
        _check_values_file(running.values, running.output_values, call_request)
        labels = None if running.labels is None else driver.read_labels(running.labels)
        watch = driver.Watch(listed(running.values), running.check_nan)
        results = _results(running, compilation, call_request, watch, comm)
        if is_first(comm):
            _show(results, running, labels, watch.seen, call_request.files, as_json=as_json)
        return 0


def _results(
    running: Running,
    compilation: Compilation,
    call_request: driver.CallRequest,
    watch: driver.Watch,
    comm: MPI.Intracomm | None,
) -> driver.Results:
    """The results of the call, compiled or evaluated. Raises UsageError (D0901) for options at odds."""
    request = _compile_request(compilation, call_request, running.grad)
    if comm is not None and (running.evaluates or watch.watches):
        raise UsageError(
            "ranks share compiled calls, which show no values of the text",
            code="D0901",
            help="leave out --ranks, or --interpret, --values and --check-nan",
        )
    if running.evaluates:
        _check_evaluated(compilation, running.threads, running.max_memory)
        return _evaluated(request, call_request, watch)
    memory = options.memory(running.max_memory)
    return _compiled(request, call_request, watch, running.threads, memory, comm)


def _show(
    results: driver.Results,
    running: Running,
    labels: Sequence[str] | None,
    seen: Mapping[str, driver.Seen],
    files: Mapping[str, str],
    *,
    as_json: bool,
) -> None:
    """Write results and values to their files, and print the others."""
    driver.save_results(results, files)
    if running.output_values is not None:
        driver.save_values(seen, running.output_values)
        seen = {}
    best = None
    if labels is not None or running.top is not None:
        best = driver.top_labels(results, labels, running.top or TOP)
    if as_json:
        print_json(driver.as_data(results, seen, best))
    else:
        _print(results, seen, best, quiet=bool(files))


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
