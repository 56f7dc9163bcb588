"""`dlc lsp`: the language server for editors."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, cast

import typer

from dlc import driver
from dlc.cli.report import print_json
from dlc.errors import UsageError


def command(
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the requests that the server answers as JSON, and exit."
        ),
    ] = False,
) -> None:
    """Answer an editor: the language server protocol on stdin and stdout."""
    if find_spec("pygls") is None:
        raise UsageError(
            "pygls, which speaks with editors, is not installed",
            code="D0921",
            help="pip install 'dlc[lsp]'",
        )
    server = driver.make_server()
    if as_json:
        print_json({"requests": sorted(cast("Mapping[str, object]", server.protocol.fm.features))})
    else:
        server.serve()
