"""`dlc fmt`: the canonical layout of model text."""

from __future__ import annotations

from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json


def command(
    paths: Annotated[list[str], typer.Argument(help="Model texts, or folders of them.")],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a file would change.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Format model texts."""
    files, changed = 0, list[str]()
    for file, is_changed in (
        one for path in paths for one in driver.format_path(path, check=check)
    ):
        files += 1
        if is_changed:
            changed.append(str(file))
            if not as_json:
                print(f"would change {file}" if check else file)
    if as_json:
        print_json({"files": files, "changed": changed})
    if check and changed:
        raise typer.Exit(1)
