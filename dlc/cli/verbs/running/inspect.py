"""`dlc inspect`: what is in a model file."""

from __future__ import annotations

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress
from dlc.errors import visible


@options.compiling("chosen", "module", "shapes", "fixed", "dims")
def command(
    model: options.Model,
    *,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Show entry points, layers with parameters, weights, sections and imported symbols."""
    with progress(f"reading {model}"):
        found = driver.inspect_file(compilation.of(model))
    if as_json:
        print_json(found.data())
    else:
        print(visible(found.text))
