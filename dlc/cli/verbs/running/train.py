"""`dlc train`: from a model with a `train` block to trained weights."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
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
from dlc.runtime.calling.rank_work import RankWork, told
from dlc.runtime.cpu.threads import check_threads
from dlc.runtime.data import Dataset
from dlc.runtime.ranks.agreement import Agreement
from dlc.runtime.ranks.lost_ranks import LIMIT
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.system.atomic_write import write_file
from dlc.runtime.training.checkpoint import INDEX
from dlc.runtime.training.early_stopping import best, best_path, measure
from dlc.runtime.training.history import History, as_json
from dlc.runtime.training.progress import Progress, ProgressLine
from dlc.runtime.training.rank_memory import RankMemory
from dlc.runtime.training.rank_parts import check_same_data
from dlc.runtime.training.trainer import Trainer

DIVERGED = "D0815"


class Stopped(Exception):
    """Ctrl-C, noticed between two steps: everything is as after the last of them."""


@dataclass(frozen=True, slots=True)
class Training:
    """The options of a training besides those of its compilation."""

    data: Annotated[
        str | None, typer.Option(help="Data to train on in place of what the model names.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Where the result goes: .dlc or .safetensors."),
    ] = None
    resume: Annotated[
        Path | None, typer.Option(metavar="CHECKPOINT", help="Go on from a checkpoint.")
    ] = None
    checkpoint: Annotated[
        Path | None, typer.Option(help="Where checkpoints go, if not where the model says.")
    ] = None
    plot: Annotated[Path | None, typer.Option(help="The training curve: .svg or .png.")] = None
    history: Annotated[Path | None, typer.Option(help="Write the measurements as JSON.")] = None
    check_nan: Annotated[
        bool,
        typer.Option("--check-nan", help="Name the operation that a NaN in the loss came from."),
    ] = False
    average: Annotated[
        bool, typer.Option(help="Write the averages of weights, where the model keeps them.")
    ] = True
    ranks: Annotated[
        int | None,
        typer.Option(metavar="N", help="Train as N processes that share each batch, by MPI."),
    ] = None
    shard: Annotated[
        Shard | None,
        typer.Option(help="Which arrays the processes split, so that each has a part of them."),
    ] = None
    restarts: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Resume by itself up to N times when a rank is lost."
        ),
    ] = 0
    rank_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=1,
            help="Seconds after which a rank that is silent or behind counts as lost.",
        ),
    ] = LIMIT
    threads: options.Threads = None
    pin: options.Pin = False

    @property
    def written(self) -> list[Path | None]:
        """The files that it may write."""
        return [self.out, self.plot, self.checkpoint, self.history]

    def check_files(self) -> None:
        """Refuse files that could not be written in the end, before the work."""
        if self.plot is not None:
            require_matplotlib()
        in_parts = self.checkpoint is not None and self.checkpoint.name.endswith(INDEX)
        for path, endings in (
            (self.out, (".dlc", ".safetensors")),
            (self.plot, (".svg", ".png")),
            (None if in_parts else self.checkpoint, (".safetensors",)),
            (self.history, (".json",)),
        ):
            if path is not None:
                output_path(path, *endings)

    def split(self, comm: object) -> Shard | None:
        """What the ranks split. Raises UsageError (D0901) for what does not fit to that."""
        if self.shard is None:
            return None
        if comm is None:
            raise UsageError(
                f"--shard {self.shard} splits arrays among ranks, and this is one process",
                code="D0901",
                help="write --ranks 4, or leave out --shard",
            )
        if self.check_nan:
            raise UsageError(
                "--check-nan evaluates the last step from whole weights, of which --shard leaves parts",
                code="D0901",
                help="leave out one of the two",
            )
        return self.shard


@options.gathering("training", Training())
@options.compiling(
    *options.RUNNABLE,
    "chosen",
    "module",
    "block",
    "max_memory",
    "dims",
)
def command(
    model: Annotated[str, typer.Argument(help="A .dlm with a train block, or a .dlc that trains.")],
    *,
    training: Training,
    compilation: options.Compilation,
    json: options.Json = False,
) -> int:
    """Train a model: forward, backward and optimizer as one compiled program.

    `--set` takes parameters of the module, and batch, epochs and seed. Ctrl-C ends it after the
    current step, writes a checkpoint and exits with 130; a second Ctrl-C ends it at once.
    """
    ended = start(training.ranks, restarts=training.restarts, limit=training.rank_timeout)
    if ended is not None:
        return ended
    with together(training.ranks, training.rank_timeout) as member:
        session = _open(model, training, compilation, member)
        try:
            history = session.fit()
        except Stopped:
            return session.stop(as_data=json)
        session.write_result()
        if is_first(member.comm):
            session.tell(history, as_data=json)
        return 0


def _open(
    model: str, training: Training, compilation: options.Compilation, member: Member
) -> _Session:
    """Check the options and files, and compile the step."""
    comm = member.comm
    check_kept(training.written, [model, training.data, compilation.weights])
    training.check_files()
    check_threads(training.threads)
    options.pin_workers(training.pin, comm)
    request = compilation.of(model, trains=True).to_run_here()
    resume = None if training.resume is None else str(training.resume)
    planned = driver.plan_training(request, resume)
    check_kept(training.written, planned.files)
    examples = planned.data(training.data)
    split = training.split(comm)
    with progress(f"compiling {model}") if is_first(comm) else nullcontext():
        trainer, report = planned.trainer(
            training.threads, comm, split, check_nan=training.check_nan
        )
    check_same_data(comm, examples)
    if is_first(comm):
        notes(report.notes)
        if trainer.has_parts:
            note(_memory(trainer.memory(examples)))
    if training.check_nan:
        trainer.remember_steps()
    session = _Session(request, training, trainer, examples, member)
    if comm is not None:
        member.tell_facts(planned.ranks_without_one(comm.Get_size()), session.last_checkpoint)
    return session


@dataclass(frozen=True, slots=True)
class _Session:
    """A training at work."""

    request: driver.CompileRequest
    training: Training
    trainer: Trainer
    examples: Dataset
    member: Member

    @property
    def last_checkpoint(self) -> Path:
        """The checkpoint from which an ended training can resume."""
        usual = Path(f"{Path(self.request.path).stem}.checkpoint.safetensors")
        return self.training.checkpoint or self.trainer.checkpoint or usual

    @property
    def checkpoint(self) -> Path | None:
        """Where checkpoints go, if not where the model says; ranks that restart need one."""
        return self.last_checkpoint if self.training.restarts else self.training.checkpoint

    def fit(self) -> History:
        """Train to the end. Raises Stopped for Ctrl-C; --check-nan names the operation of a NaN."""
        try:
            _fit(self.trainer, self.examples, self.checkpoint, self.member)
        except CallError as error:
            if self.training.check_nan and error.diagnostics[0].code == DIVERGED:
                driver.check_last_step(self.request, self.trainer)
            raise
        return self.trainer.history

    def stop(self, *, as_data: bool) -> int:
        """Write a checkpoint after Ctrl-C; gives the exit code."""
        path = self.last_checkpoint
        self.trainer.save(path)
        if is_first(self.member.comm):
            note(f"interrupted after step {self.trainer.steps}: go on with --resume {path}")
            if as_data:
                print_json({"errors": [], "interrupted": True, "checkpoint": str(path)})
        return INTERRUPTED

    def write_result(self) -> None:
        """Write what --out asks for: ranks that hold parts give them to the first."""
        trainer, first = self.trainer, is_first(self.member.comm)
        if not first and not trainer.has_parts:
            return
        if first and trainer.stopped and trainer.epoch < trainer.facts.epochs:
            note(_why_stopped(trainer))
        out = self.training.out
        if out is not None:
            if out.suffix == ".dlc":
                _take_best(trainer, self.checkpoint or trainer.checkpoint)
            self._write(out)

    def _write(self, out: Path) -> None:
        """The result: weights for other programs, or an artifact with the model's entry points.

        Where that fails, what was learned goes to a checkpoint.
        """
        trainer, path = self.trainer, self.request.path
        failed: DlcError | None = None
        try:
            if out.suffix == ".safetensors" or path.endswith(".dlc"):
                trainer.save(out)
            else:
                _write_called(out, self.request, trainer, average=self.training.average)
        except DlcError as error:
            failed = error
        if trainer.first_of_ranks(None if failed is None else str(failed)) is not None:
            kept = self.last_checkpoint
            if not trainer.has_parts:  # the first rank is alone here, and writes one file
                kept = kept.with_name(kept.name.removesuffix(".index.json"))
            trainer.save(kept)
            if failed is not None:
                note(f"{out} was not written; what was learned is in {kept}")
                raise failed
        if trainer.model.rank:
            return
        if out.suffix == ".dlc" and path.endswith(".dlc"):
            note(f"{out} trains on; the text of the model makes an artifact that is called")
        else:
            note(f"{out}: {out.stat().st_size:,} bytes")

    def tell(self, history: History, *, as_data: bool) -> None:
        """Draw the curve, write the measurements and print them."""
        if self.training.plot is not None:
            driver.write_curve(str(self.training.plot), history, Path(self.request.path).name)
        if self.training.history is not None:
            write_file(self.training.history, [as_json(history).encode()])
        _tell(history, as_data=as_data)


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
            if agreement is not None:
                line.more = told([work for work in agreement.told if isinstance(work, RankWork)])
            if now.measured is not None:
                line.end_epoch(now.measured)
                done = 0
            else:
                line.step(now.position - done, {"loss": now.loss})
                done = now.position
            stops = bool(member.asked)
            if stops if agreement is None else agreement.stops(stops, trainer.rank_work):
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
