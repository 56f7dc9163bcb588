"""`dlc doc`: the page of a function or an operation."""

from __future__ import annotations

from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json


def command(
    name: Annotated[str, typer.Argument(help="A function such as softmax, or array.matmul.")],
    as_json: options.Json = False,
) -> None:
    """Show the signature, the meaning, an example and the derivative of one name."""
    page = driver.documentation(name)
    if as_json:
        print_json({"name": name, "text": page})
    else:
        print(page)
