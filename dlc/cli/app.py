"""All verbs as one command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperOption

from dlc import __version__
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
from dlc.errors import UsageError

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

_BAD_USAGE = typer.BadParameter.__base__
"""What the library raises for any command line that it cannot read."""


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
            print_json({"version": __version__, "verbs": _summaries()})
        else:
            print(context.get_help())
    elif as_json:
        raise UsageError(
            "--json stands before the verb",
            code="D0901",
            help=f"write it behind: dlc {context.invoked_subcommand} ... --json",
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


class _Verb(TyperCommand):
    """A verb that takes each option once, but for those that list several values."""

    def parse_args(  # pyright: ignore[reportIncompatibleMethodOverride] - its own type is private
        self, ctx: typer.Context, args: list[str]
    ) -> list[str]:
        """What is left of the words. Raises UsageError (D0901) for an option given twice."""
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for option in given:
                once = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
                if once and given.count(option) > 1:
                    name = option.opts[-1]
                    raise UsageError(
                        f"{name} is given twice", code="D0901", help=f"write {name} once"
                    )
        return super().parse_args(ctx, args)


for _name, _command in VERBS.items():
    TYPER.command(_name, cls=_Verb)(_interruptible(_command))


class App:
    """The command line, ready to be given arguments."""

    @staticmethod
    def run(arguments: Sequence[str]) -> int:
        """Do what they say; gives the exit code."""
        return _invoked(arguments)


def _invoked(arguments: Sequence[str]) -> int:
    try:
        result: object = TYPER(
            args=list(arguments), prog_name="dlc", standalone_mode=False, obj=tuple(arguments)
        )
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # the library has made an exit of it
            raise ended.__context__ from None
        raise
    except Exception as error:
        if _BAD_USAGE is None or not isinstance(error, _BAD_USAGE):
            raise
        raise _misread(error) from None
    return result if isinstance(result, int) else 0


def _misread(error: Exception) -> UsageError:
    """The library's complaint in our form: with the option that it is about, and a way out."""
    describe: Callable[[], str] = getattr(error, "format_message", error.__str__)
    message = describe().rstrip(".")
    context: object = getattr(error, "ctx", None)
    verb = str(getattr(context, "command_path", "dlc"))
    return UsageError(
        message[:1].lower() + message[1:],
        code="D0901",
        help=f"{verb} --help lists what there is",
    )
