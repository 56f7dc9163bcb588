"""The command line: parse the arguments and dispatch to a verb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Annotated

import typer

from dlc.cli.report import Interrupted, print_json, say_version
from dlc.cli.verb import UNREADABLE, Verb, misread, refused
from dlc.cli.verbs import debugging, lookup, measuring, running, showing, writing
from dlc.errors.suggest import did_you_mean
from dlc.first_use import imported, names
from dlc.version import VERSION

GROUPS = {
    "Compile and run": running,
    "Write models": writing,
    "See what the compiler does": showing,
    "Measure": measuring,
    "Find faults": debugging,
    "Look things up": lookup,
}
"""The headings of the help, each with the folder of its verbs, which says their order."""
VERBS = {name.rstrip("_"): (group, name) for group in GROUPS.values() for name in names(group)}
"""The folder of each verb and its name there, which has a `_` where Python has the word, too: `import`."""


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
    module = imported(*VERBS[verb])
    command: Callable[..., int | None] = vars(module)["command"]
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
    headings = {group: heading for heading, group in GROUPS.items()}
    for verb in verbs:
        group, _ = VERBS[verb]
        command = _interruptible(_command(verb))
        parser.command(verb, cls=Verb, rich_help_panel=headings[group])(command)
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
    verbs = tuple(arguments[:1]) if arguments and arguments[0] == verb else tuple(VERBS)
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
