"""`dlc check`: is a model right."""

from __future__ import annotations

from dlc import driver
from dlc.cli import options
from dlc.cli.report import note, notes, print_json, progress
from dlc.cli.values import parameters


def command(
    model: options.Model,
    module: options.Module = None,
    chosen: options.Chosen = [],  # noqa: B006 - typer wants it; nothing changes it
    as_json: options.Json = False,
) -> None:
    """Read a model completely and say everything that is wrong with it."""
    with progress(f"reading {model}"):
        checked = driver.check_model(model, module=module, parameters=parameters(chosen))
    if as_json:
        print_json(checked.data())
        return
    notes(checked.remarks)
    for head in checked.heads:
        print(head)
    note(f"{model} is right")
