"""`dlc check`: verify models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import errors_data, note, notes, print_json, progress
from dlc.errors import DlcError, visible


@options.compiling("chosen", "module", "block", "shapes", "fixed", "dims")
def command(
    models: Annotated[list[str], typer.Argument(help="Models: .dlm, .dlir, .dlc or .onnx.")],
    *,
    compilation: options.Compilation,
    data: Annotated[str | None, typer.Option(help="Training data to check as well.")] = None,
    as_json: options.Json = False,
) -> int:
    """Check models completely and report every error."""
    if len(models) > 1:
        return _check_several(models, compilation, data, as_json=as_json)
    checked = _checked(models[0], compilation, data)
    if as_json:
        print_json(checked.data())
    else:
        _tell(checked)
    return 0


def _check_several(
    models: Sequence[str], compilation: options.Compilation, data: str | None, *, as_json: bool
) -> int:
    """Check each, whatever is wrong with others; gives the greatest of their exit codes."""
    found: list[dict[str, object]] = []
    code = 0
    for model in models:
        try:
            checked = _checked(model, compilation, data)
        except DlcError as error:
            code = max(code, error.exit_code)
            note(error.render())
            found.append({"path": model, **errors_data(error)})
            continue
        found.append(checked.data())
        if not as_json:
            _tell(checked)
    if as_json:
        print_json({"models": found})
    return code


def _checked(model: str, compilation: options.Compilation, data: str | None) -> driver.Checked:
    with progress(f"reading {model}"):
        return driver.check_model(compilation.of(model), data)


def _tell(checked: driver.Checked) -> None:
    """The remarks and the entry points of a model that is right."""
    notes(checked.remarks)
    for head in checked.heads:
        print(visible(head))
    note(f"{checked.path} is right")
