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
    """Lay out model texts."""
    found = [one for path in paths for one in driver.format_path(path, check=check)]
    changed = [str(file) for file, is_changed in found if is_changed]
    if as_json:
        print_json({"files": len(found), "changed": changed})
    else:
        for file in changed:
            print(f"would change {file}" if check else file)
    if check and changed:
        raise typer.Exit(1)
