"""The command line: parse the arguments and dispatch to a verb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Annotated

import typer

from dlc.cli.report import Interrupted, print_json, say_version
from dlc.cli.verb import UNREADABLE, Verb, misread, refused
from dlc.errors.suggest import did_you_mean
from dlc.version import VERSION

VERBS = (
    "compile",
    "run",
    "train",
    "show",
    "opt",
    "bench",
    "profile",
    "probe",
    "scale",
    "check",
    "gradcheck",
    "diff",
    "reduce",
    "fmt",
    "import",
    "inspect",
    "stubs",
    "memory",
    "why",
    "ops",
    "doc",
    "lsp",
    "cache",
    "tune",
    "new",
    "doctor",
    "explain",
)
"""The verbs, in the order of the help."""


def dlc(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the version, or the verbs, as JSON.")
    ] = False,
) -> None:
    """Print the version, or the help if no verb is named."""
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
            "--json is before the verb",
            f"write it after the verb: dlc {context.invoked_subcommand} ... --json",
        )


def _summaries() -> dict[str, str]:
    """One line about each verb."""
    return {name: (_command(name).__doc__ or "").partition("\n")[0] for name in VERBS}


def _command(verb: str) -> Callable[..., int | None]:
    """The function of a verb. Its module is imported here, so that only the verb that runs is loaded."""
    match verb:
        case "compile":
            from dlc.cli.verbs.compile import command
        case "run":
            from dlc.cli.verbs.run import command
        case "train":
            from dlc.cli.verbs.train import command
        case "show":
            from dlc.cli.verbs.show import command
        case "opt":
            from dlc.cli.verbs.opt import command
        case "bench":
            from dlc.cli.verbs.bench import command
        case "profile":
            from dlc.cli.verbs.profile import command
        case "probe":
            from dlc.cli.verbs.probe import command
        case "scale":
            from dlc.cli.verbs.scale import command
        case "check":
            from dlc.cli.verbs.check import command
        case "gradcheck":
            from dlc.cli.verbs.gradcheck import command
        case "diff":
            from dlc.cli.verbs.diff import command
        case "reduce":
            from dlc.cli.verbs.reduce import command
        case "fmt":
            from dlc.cli.verbs.fmt import command
        case "import":
            from dlc.cli.verbs.importing import command
        case "inspect":
            from dlc.cli.verbs.inspect import command
        case "memory":
            from dlc.cli.verbs.memory import command
        case "why":
            from dlc.cli.verbs.why import command
        case "stubs":
            from dlc.cli.verbs.stubs import command
        case "ops":
            from dlc.cli.verbs.ops import command
        case "doc":
            from dlc.cli.verbs.doc import command
        case "cache":
            from dlc.cli.verbs.cache import command
        case "tune":
            from dlc.cli.verbs.tune import command
        case "lsp":
            from dlc.cli.verbs.lsp import command
        case "new":
            from dlc.cli.verbs.new import command
        case "doctor":
            from dlc.cli.verbs.doctor import command
        case "explain":
            from dlc.cli.verbs.explain import command
        case _:
            raise AssertionError(verb)
    return command


def _interruptible(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Wrap a command so that typer does not turn Ctrl-C into a silent exit."""

    @wraps(command)
    def run(*arguments: object, **options: object) -> int | None:
        try:
            return command(*arguments, **options)
        except KeyboardInterrupt:
            raise Interrupted from None

    return run


@cache
def _parser(verbs: tuple[str, ...]) -> Callable[..., object]:
    """The command line with these verbs. Making it takes longer than most answers to wrong arguments."""
    parser = typer.Typer(
        name="dlc",
        help="A deep-learning compiler that a person can read from end to end.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    parser.callback(invoke_without_command=True)(dlc)
    for verb in verbs:
        parser.command(verb, cls=Verb)(_interruptible(_command(verb)))
    return typer.main.get_command(parser)


class App:
    """The parsed command line, as `dlc.cli.main` sees it."""

    @staticmethod
    def run(arguments: Sequence[str]) -> int:
        """Carry out a command line and return its exit code."""
        return _invoked(arguments)


def _invoked(arguments: Sequence[str]) -> int:
    verb = next((word for word in arguments if not word.startswith("-")), None)
    if verb is not None and verb not in VERBS:
        raise refused(
            f"there is no verb {verb}", did_you_mean(verb, VERBS) or "dlc --help lists the verbs"
        )
    verbs = tuple(arguments[:1]) if arguments and arguments[0] == verb else VERBS
    try:
        result = _parser(verbs)(
            args=list(arguments), prog_name="dlc", standalone_mode=False, obj=tuple(arguments)
        )
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # the library has made an exit of it
            raise ended.__context__ from None
        raise
    except UNREADABLE as error:
        raise misread("dlc", {}, error) from None
    return result if isinstance(result, int) else 0
