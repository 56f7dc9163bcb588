"""`dlc doc`: print the reference page of a name."""

from __future__ import annotations

from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json


def command(
    name: Annotated[
        str,
        typer.Argument(help="A function, keyword, layer, dtype, operation, dialect or pass."),
    ],
    as_json: options.Json = False,
) -> None:
    """Show the signature, the meaning, an example and the derivative of one name."""
    page = driver.documentation(name)
    if as_json:
        print_json(page.data())
    else:
        print(page.text)
