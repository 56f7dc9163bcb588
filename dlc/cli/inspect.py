"""`dlc inspect`: what is in a model file."""

from __future__ import annotations

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress
from dlc.cli.values import parameters
from dlc.errors import visible


def command(
    model: options.Model,
    module: options.Module = None,
    chosen: options.Chosen = [],  # noqa: B006 - typer wants it; nothing changes it
    as_json: options.Json = False,
) -> None:
    """Show entry points, layers with parameters, weights, sections and imported symbols."""
    with progress(f"reading {model}"):
        found = driver.inspect_file(model, module=module, parameters=parameters(chosen))
    if as_json:
        print_json(found.data())
    else:
        print(visible(found.text))
