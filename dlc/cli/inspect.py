"""`dlc inspect`: what is in a model file."""

from __future__ import annotations

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress


def command(model: options.Model, as_json: options.Json = False) -> None:
    """Show entry points, layers with parameters, weights, sections and imported symbols."""
    with progress(f"reading {model}"):
        found = driver.inspect_file(model)
    if as_json:
        print_json(found.data())
    else:
        print(found.text)
