"""All verbs as one command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated

import typer

from dlc.cli import (
    bench,
    check,
    compile,
    doc,
    doctor,
    explain,
    fmt,
    gradcheck,
    importing,
    inspect,
    memory,
    new,
    ops,
    opt,
    run,
    show,
    train,
    why,
)
from dlc.cli.report import Interrupted, print_json, say_version
from dlc.cli.verb import UNREADABLE, Verb, misread, refused
from dlc.errors.suggest import did_you_mean
from dlc.version import VERSION

VERBS: dict[str, Callable[..., int | None]] = {
    "compile": compile.command,
    "run": run.command,
    "train": train.command,
    "show": show.command,
    "opt": opt.command,
    "bench": bench.command,
    "check": check.command,
    "gradcheck": gradcheck.command,
    "fmt": fmt.command,
    "import": importing.command,
    "inspect": inspect.command,
    "memory": memory.command,
    "why": why.command,
    "ops": ops.command,
    "doc": doc.command,
    "new": new.command,
    "doctor": doctor.command,
    "explain": explain.command,
}
"""Every verb, in the order of the help."""

TYPER = typer.Typer(
    name="dlc",
    help="A deep-learning compiler that a person can read from end to end.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@TYPER.callback(invoke_without_command=True)
def dlc(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Say the version and stop.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Give the version, or the verbs, as JSON.")
    ] = False,
) -> None:
    """Give the version, or the help where there is no verb."""
    if version:
        say_version(as_json=as_json)
        raise typer.Exit
    if context.invoked_subcommand is None:
        if as_json:
            print_json({"version": VERSION, "verbs": _summaries()})
        else:
            print(context.get_help())
    elif as_json:
        raise refused(
            "--json stands before the verb",
            f"write it behind: dlc {context.invoked_subcommand} ... --json",
        )


def _summaries() -> dict[str, str]:
    """What each verb does, in one line."""
    return {name: (verb.__doc__ or "").partition("\n")[0] for name, verb in VERBS.items()}


def _interruptible(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """The command, with a Ctrl-C that the library does not turn into a silent exit."""

    @wraps(command)
    def run(*arguments: object, **options: object) -> int | None:
        try:
            return command(*arguments, **options)
        except KeyboardInterrupt:
            raise Interrupted from None

    return run


for _name, _command in VERBS.items():
    TYPER.command(_name, cls=Verb)(_interruptible(_command))


class App:
    """The command line, ready to be given arguments."""

    @staticmethod
    def run(arguments: Sequence[str]) -> int:
        """Do what they say; gives the exit code."""
        return _invoked(arguments)


def _invoked(arguments: Sequence[str]) -> int:
    verb = next((word for word in arguments if not word.startswith("-")), None)
    if verb is not None and verb not in VERBS:
        raise refused(
            f"there is no verb {verb}", did_you_mean(verb, VERBS) or "dlc --help lists the verbs"
        )
    try:
        result: object = TYPER(
            args=list(arguments), prog_name="dlc", standalone_mode=False, obj=tuple(arguments)
        )
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # the library has made an exit of it
            raise ended.__context__ from None
        raise
    except UNREADABLE as error:
        raise misread("dlc", {}, error) from None
    return result if isinstance(result, int) else 0
