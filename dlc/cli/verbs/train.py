"""`dlc train`: from a model with a `train` block to trained weights."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.launch import start
from dlc.cli.ranks import Member, is_first, together
from dlc.cli.report import INTERRUPTED, note, notes, print_json, progress
from dlc.cli.values import check_kept, output_path
from dlc.driver.report.loss_curve import require_matplotlib
from dlc.errors import CallError, DlcError, UsageError, visible
from dlc.runtime.cpu.threads import check_threads
from dlc.runtime.data import Dataset
from dlc.runtime.ranks.agreement import Agreement
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.ranks.watching import LIMIT
from dlc.runtime.system.atomic_write import write_file
from dlc.runtime.training.checkpoint import INDEX
from dlc.runtime.training.history import History, as_json
from dlc.runtime.training.progress import Progress, ProgressLine
from dlc.runtime.training.rank_memory import RankMemory
from dlc.runtime.training.rank_parts import check_same_data
from dlc.runtime.training.trainer import Trainer
from dlc.runtime.training.watching import best, best_path, measure

DIVERGED = "D0815"


class Stopped(Exception):
    """Ctrl-C, noticed between two steps: everything is as after the last of them."""


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
    "chosen",
    "module",
    "block",
    "max_memory",
    "dims",
)
def command(
    model: Annotated[str, typer.Argument(help="A .dlm with a train block, or a .dlc that trains.")],
    data: Annotated[
        str | None, typer.Option(help="Examples in place of those that the model names.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Where the result goes: .dlc or .safetensors."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="CHECKPOINT", help="Go on from a checkpoint.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Where checkpoints go, if not where the model says.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="The training curve: .svg or .png.")] = None,
    history: Annotated[Path | None, typer.Option(help="Write the measurements as JSON.")] = None,
    check_nan: Annotated[
        bool,
        typer.Option("--check-nan", help="Name the operation that a NaN in the loss came from."),
    ] = False,
    average: Annotated[
        bool, typer.Option(help="Write the averages of weights, where the model keeps them.")
    ] = True,
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Train as N processes that share each batch, by MPI."),
    ] = None,
    shard: Annotated[
        Shard | None,
        typer.Option(help="Which arrays the processes split, so that each has a part of them."),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Resume by itself up to N times when a rank is lost."
        ),
    ] = 0,
    rank_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=1,
            help="Seconds after which a rank that is silent or behind counts as lost.",
        ),
    ] = LIMIT,
    threads: options.Threads = None,
    pin: options.Pin = False,
    *,
    compilation: options.Compilation,
    json: options.Json = False,
) -> int:
    """Train a model: forward, backward and optimizer as one compiled program.

    `--set` takes parameters of the module, and batch, epochs and seed. Ctrl-C ends it after the step that
    runs, writes a checkpoint and gives the exit code 130; a second Ctrl-C ends it at once.
    """
    ended = start(ranks, restarts=restarts, limit=rank_timeout)
    if ended is not None:
        return ended
    with together(ranks, rank_timeout) as member:
        comm = member.comm
        written = [out, plot, checkpoint, history]
        check_kept(written, [model, data, compilation.weights])
        _check_files(out, plot, checkpoint, history)
        check_threads(threads)
        options.pin_workers(pin, comm)
        request = compilation.of(model, trains=True).to_run_here()
        planned = driver.plan_training(request, None if resume is None else str(resume))
        check_kept(written, planned.files)
        examples = planned.data(data)
        compiling = progress(f"compiling {model}") if is_first(comm) else nullcontext()
        split = _split(shard, comm, check_nan=check_nan)
        with compiling:
            trainer, report = planned.trainer(threads, comm, split, check_nan=check_nan)
        check_same_data(comm, examples)
        if is_first(comm):
            notes(report.notes)
            if trainer.has_parts:
                note(_memory(trainer.memory(examples)))
        if check_nan:
            trainer.remember_steps()
        path = _checkpoint(model, trainer, checkpoint)
        if restarts:
            checkpoint = path  # else there would be nothing to go on from
        member.tell_facts(planned.facts.batch, path)
        try:
            _fit(trainer, examples, checkpoint, member)
        except Stopped:
            trainer.save(path)
            if not is_first(comm):
                return INTERRUPTED
            note(f"interrupted after step {trainer.steps}: go on with --resume {path}")
            if json:
                print_json({"errors": [], "interrupted": True, "checkpoint": str(path)})
            return INTERRUPTED
        except CallError as error:
            if check_nan and error.diagnostics[0].code == DIVERGED:
                driver.check_last_step(request, trainer)
            raise
        whole = trainer.history
        if not is_first(comm) and not trainer.has_parts:
            return 0
        if is_first(comm) and trainer.stopped and trainer.epoch < trainer.facts.epochs:
            note(_why_stopped(trainer))
        if out is not None and out.suffix == ".dlc":
            _take_best(trainer, checkpoint or trainer.checkpoint)
        if out is not None:
            _write(out, request, trainer, checkpoint, average=average)
        if not is_first(comm):
            return 0
        if plot is not None:
            driver.write_curve(str(plot), whole, Path(model).name)
        if history is not None:
            write_file(history, [as_json(whole).encode()])
        _tell(whole, as_data=json)
        return 0


def _split(shard: Shard | None, comm: object, *, check_nan: bool) -> Shard | None:
    """What the ranks split. Raises UsageError (D0901) for what does not fit to that."""
    if shard is None:
        return None
    if comm is None:
        raise UsageError(
            f"--shard {shard} splits arrays among ranks, and this is one process",
            code="D0901",
            help="write --ranks 4, or leave out --shard",
        )
    if check_nan:
        raise UsageError(
            "--check-nan evaluates the last step from whole weights, of which --shard leaves parts",
            code="D0901",
            help="leave out one of the two",
        )
    return shard


def _memory(found: RankMemory) -> str:
    """The line on the memory of a rank that has parts of weights and states."""
    arrays, whole, step = (f"{size / (1 << 20):.3g} MiB" for size in found[:3])
    names = ", ".join(found.kept_whole[:3]) + (", ..." if len(found.kept_whole) > 3 else "")
    kept = f"; {names} stay whole, as the ranks divide no axis" if names else ""
    return f"a rank holds {arrays} of {whole} of weights and states, and a step takes {step}{kept}"


def _why_stopped(trainer: Trainer) -> str:
    """The line for a training that has ended early."""
    watched = trainer.facts.stop
    assert watched is not None
    record = best(trainer.history, watched)
    value = f"{watched.metric} was best after epoch {record.epoch}, {measure(record, watched):.6g}"
    return f"stopped early after epoch {trainer.epoch}: {value}"


def _take_best(trainer: Trainer, checkpoint: Path | None) -> None:
    """Go back to the best checkpoint, where the model says to keep it and there is one."""
    if trainer.facts.keep is None or checkpoint is None:
        return
    path = best_path(checkpoint)
    found = str(path) if path.exists() else None
    if trainer.first_of_ranks(found) is None:
        return
    if found is None:
        raise UsageError(
            f"rank {trainer.model.rank} cannot read {path}, from which ranks take their parts",
            code="D0501",
            help="let all ranks work in a common folder",
        )
    trainer.resume(path)
    if trainer.model.rank == 0:
        note(f"the weights are those of {best_path(checkpoint)}, after epoch {trainer.epoch}")


def _check_files(
    out: Path | None, plot: Path | None, checkpoint: Path | None, history: Path | None
) -> None:
    """Refuse files that could not be written in the end, before the work."""
    if plot is not None:
        require_matplotlib()
    for path, endings in (
        (out, (".dlc", ".safetensors")),
        (plot, (".svg", ".png")),
        (None if _is_index(checkpoint) else checkpoint, (".safetensors",)),
        (history, (".json",)),
    ):
        if path is not None:
            output_path(path, *endings)


def _is_index(checkpoint: Path | None) -> bool:
    """Whether a checkpoint is to be in parts, of which its file is the index."""
    return checkpoint is not None and checkpoint.name.endswith(INDEX)


def _fit(trainer: Trainer, examples: Dataset, checkpoint: Path | None, member: Member) -> None:
    """Train with a line of progress; Ctrl-C ends it after the step that runs, the same on all ranks."""
    line = ProgressLine(
        sys.stderr if trainer.model.rank == 0 else StringIO(),
        trainer.facts.epochs,
        examples.count,
        epoch=trainer.epoch,
        position=trainer.position,
    )
    done = trainer.position

    # Ranks that end after different steps would wait for each other.
    agreement = None if member.comm is None else Agreement(member.comm)
    with _interruptible(member.asked), member.training(trainer):

        def report(now: Progress) -> None:
            nonlocal done
            if now.measured is not None:
                line.end_epoch(now.measured)
                done = 0
            else:
                line.step(now.position - done, {"loss": now.loss})
                done = now.position
            stops = bool(member.asked)
            if stops if agreement is None else agreement.stops(stops):
                raise Stopped

        try:
            trainer.fit(examples, report=report, checkpoint=checkpoint)
        finally:
            line.close()


@contextmanager
def _interruptible(asked: list[bool]) -> Generator[None]:
    """Meanwhile the first Ctrl-C only fills the list; the next one is as usual."""

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(True)
        signal.signal(signal.SIGINT, usual)

    usual = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _checkpoint(model: str, trainer: Trainer, chosen: Path | None) -> Path:
    """The checkpoint from which an ended training can resume."""
    return chosen or trainer.checkpoint or Path(f"{Path(model).stem}.checkpoint.safetensors")


def _write(
    out: Path,
    request: driver.CompileRequest,
    trainer: Trainer,
    checkpoint: Path | None,
    *,
    average: bool,
) -> None:
    """The result: weights for other programs, or an artifact with the model's entry points.

    Where that fails, what was learned goes to a checkpoint.
    """
    failed: DlcError | None = None
    try:
        if out.suffix == ".safetensors" or request.path.endswith(".dlc"):
            trainer.save(out)
        else:
            _write_called(out, request, trainer, average=average)
    except DlcError as error:
        failed = error
    if trainer.first_of_ranks(None if failed is None else str(failed)) is not None:
        path = _checkpoint(request.path, trainer, checkpoint)
        if not trainer.has_parts:  # the first rank is alone here, and writes one file
            path = path.with_name(path.name.removesuffix(".index.json"))
        trainer.save(path)
        if failed is not None:
            note(f"{out} was not written; what was learned is in {path}")
            raise failed
    if trainer.model.rank:
        return
    if out.suffix == ".dlc" and request.path.endswith(".dlc"):
        note(f"{out} trains on; the text of the model makes an artifact that is called")
    else:
        note(f"{out}: {out.stat().st_size:,} bytes")


def _write_called(
    out: Path, request: driver.CompileRequest, trainer: Trainer, *, average: bool
) -> None:
    """The artifact with the model's entry points; all ranks give their parts, and the first writes."""
    weights = trainer.trained(average=average)
    if trainer.model.rank == 0:
        driver.make_trained(request, weights).artifact.write(out)


def _tell(history: History, *, as_data: bool) -> None:
    """The last measures, or with JSON all of them."""
    if as_data:
        print_json([{"epoch": r.epoch, "step": r.step, **r.values} for r in history])
        return
    if history:
        last = history[-1]
        values = ", ".join(f"{name} {value:.6g}" for name, value in last.values.items())
        print(visible(f"epoch {last.epoch}, step {last.step}: {values}"))
