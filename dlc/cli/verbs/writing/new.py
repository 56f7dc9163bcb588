"""`dlc new`: a model to start from."""

from __future__ import annotations

from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json


def command(
    name: Annotated[str, typer.Argument(help="The model's name, such as my_model.")],
    as_json: options.Json = False,
) -> None:
    """Write NAME.dlm, a small model that compiles and runs."""
    path = driver.new_model(name)
    if as_json:
        print_json({"files": [str(path)]})
    else:
        print(f"wrote {path}\nrun it: dlc run {path} --random-inputs 0")
