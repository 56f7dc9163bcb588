"""`dlc bench`: how fast an entry point is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress


@options.calling("entry", "inputs", "dims", "random_inputs", "threads")
@options.compiling(
    *options.RUNNABLE,
    "disable_pass",
    "kernel",
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
    *,
    call: options.Call,
    pin: options.Pin = False,
    seconds: Annotated[float, typer.Option(min=0.0, help="Seconds of calls to time.")] = 1.0,
    ops: Annotated[bool, typer.Option("--ops", help="Print the time of each kernel.")] = False,
    roofline: Annotated[
        bool,
        typer.Option("--roofline", help="Print the time of each kernel, its floor, and the share."),
    ] = False,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Time compiling, loading and calls of an entry point; inputs left out are random.

    With --ops or --roofline, times its kernels instead; dlc profile reports more about them.
    """
    options.pin_workers(pin)
    call_request = call.of(model)
    request = compilation.of(model, call_sizes=call_request.dims)
    if ops or roofline:
        asked = driver.ProfileRequest(request, call_request, call.threads)
        _print_kernels(asked, roofline=roofline, as_json=as_json)
        return
    with progress(f"timing {model}"):
        timing = driver.measure(request, call_request, threads=call.threads, seconds=seconds)
    if as_json:
        print_json(asdict(timing))
        return
    print(
        f"{timing.entry}: best {timing.best_ms:.4g} ms, median {timing.median_ms:.4g} ms, "
        f"99% {timing.p99_ms:.4g} ms ({timing.calls} calls, {timing.threads} threads); "
        f"compiled in {timing.compile_s:.3g} s, loaded in {timing.load_ms:.3g} ms"
    )
    if timing.compute_ms is not None:
        print(
            f"on {timing.device}: {timing.upload_ms:.4g} ms there, {timing.compute_ms:.4g} ms computing, "
            f"{timing.download_ms:.4g} ms back; weights once {timing.weights_ms:.4g} ms"
        )


def _print_kernels(asked: driver.ProfileRequest, *, roofline: bool, as_json: bool) -> None:
    with progress(f"timing {asked.request.path}"):
        found = driver.profile_model(asked)
    if as_json:
        print_json(driver.profile_data(found))
    elif roofline:
        print(found.roofline())
    else:
        print(found.table())
