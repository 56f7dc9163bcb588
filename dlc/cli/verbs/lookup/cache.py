"""`dlc cache`: what the cache on disk holds."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import note, print_json
from dlc.cli.verb import refused


def command(
    action: Annotated[
        Literal["ls", "explain", "prune"],
        typer.Argument(help="List the entries, explain one or the cache, or drop old ones."),
    ] = "ls",
    key: Annotated[
        str, typer.Argument(help="The entry to explain: the beginning of its key.")
    ] = "",
    older: Annotated[
        float,
        typer.Option(
            "--older", metavar="DAYS", min=0, help="Drop entries that were not used for this long."
        ),
    ] = 30.0,
    as_json: options.Json = False,
) -> None:
    """List, explain or prune the cache of compiled code."""
    if key and action != "explain":
        raise refused(f"dlc cache {action} takes no key", "dlc cache explain KEY tells what it is")
    if action == "explain":
        _explain(key, as_json=as_json)
        return
    entries = driver.list_cache() if action == "ls" else driver.prune_cache(older)
    if as_json:
        print_json({"entries": [entry.data() for entry in entries]})
    elif action == "ls":
        print(driver.entries_text(entries))
    else:
        total = sum(entry.bytes for entry in entries)
        note(f"dropped {len(entries):,} entries, {total:,} bytes")


def _explain(key: str, *, as_json: bool) -> None:
    if not key:
        text = driver.cache_text()
        if as_json:
            print_json({"text": text})
        else:
            print(text)
        return
    entry = driver.entry_of(key)
    if as_json:
        print_json(entry.data())
    else:
        print(entry.text)
