"""`dlc ops`: list functions, layers, operations and passes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json
from dlc.errors import UsageError


def command(
    word: Annotated[
        str | None, typer.Argument(help="List only entries that contain this word.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List functions, keywords, dtypes, layers, operations of the IR and passes: what dlc doc shows."""
    found = driver.list_entries(word)
    if not found:
        raise UsageError(
            f"nothing has {word!r} in it", code="D0914", help="dlc ops lists everything"
        )
    if as_json:
        print_json([asdict(entry) for entry in found])
        return
    group = ""
    for entry in found:
        if entry.group != group:
            group = entry.group
            print(f"{group}")
        print(f"  {entry.signature}\n      {entry.summary}")
