"""`dlc profile`: where the time of a call goes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.launch import start
from dlc.cli.ranks import is_first, together
from dlc.cli.report import print_json, progress
from dlc.cli.values import check_kept
from dlc.errors import visible
from dlc.runtime.system.atomic_write import check_writable, write_file

if TYPE_CHECKING:
    from dlc.driver.profile.data import OldProfile
    from dlc.runtime.profiling.profile import Profile


@options.calling("entry", "inputs", "dims", "random_inputs", "threads")
@options.compiling(
    *options.RUNNABLE,
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
        typer.Option(min=1, help="The least number of rounds of calls.", show_default="for 1.5 s"),
    ] = None,
    by: Annotated[
        Literal["kernel", "layer", "line"], typer.Option(help="What the rows are.")
    ] = "kernel",
    rows: Annotated[int, typer.Option(min=0, help="How many rows; 0 for all.")] = 25,
    train: Annotated[
        bool, typer.Option("--train", help="Profile a training step with random weights.")
    ] = False,
    flame: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a flame graph as SVG.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a trace for Perfetto or Chrome.")
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Profile N processes that share the calls: a trace of all, by MPI."
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="OLD.json", help="Say what changed since a profile with --json."),
    ] = None,
    pin: options.Pin = False,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> int:
    """Say where the time of a call goes: kernels, modules, lines of the text, beside the machine's roof.

    Inputs left out are random. With several ranks, the table is that of the first; of a model with stages
    it says besides what share of the time each rank works and waits, and the bubble.
    """
    ended = start(ranks)
    if ended is not None:
        return ended
    call_request = call.of(model)
    old = None if compare is None else driver.read_profile(compare)
    files = [path for path in (flame, trace) if path is not None]
    check_kept(files, [model])
    for path in files:
        check_writable(path)
    options.pin_workers(pin)
    request = compilation.of(model, call_sizes=call_request.dims)
    asked = driver.ProfileRequest(request, call_request, call.threads, rounds, train)
    with together(ranks) as member:
        comm = member.comm
        with progress(f"profiling {model}") if is_first(comm) else nullcontext():
            found = driver.profile_model(asked, comm)
        profiles = [found] if comm is None else comm.allgather(found)
        if not is_first(comm):
            return 0
        _write(found, profiles, flame, trace)
        _show(found, old, by, rows, as_json=as_json)
        return 0


def _write(
    found: Profile, profiles: Sequence[Profile], flame: str | None, trace: str | None
) -> None:
    """The files: a flame graph of the first rank, and a trace of all."""
    if flame is not None:
        write_file(flame, [driver.flame_svg(found).encode()])
    if trace is not None:
        write_file(trace, [driver.trace_text(*profiles).encode()])


def _show(
    found: Profile,
    old: OldProfile | None,
    by: Literal["kernel", "layer", "line"],
    rows: int,
    *,
    as_json: bool,
) -> None:
    """What was found, or how it differs from an old profile."""
    if old is not None:
        if as_json:
            print_json(driver.profile_comparison_data(old, found))
        else:
            print(visible(driver.profile_comparison_text(old, found)))
    elif as_json:
        print_json(driver.profile_data(found))
    else:
        print(found.table(by, rows))
