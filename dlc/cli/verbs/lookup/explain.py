"""`dlc explain`: the page behind an error code."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import fill, indent
from typing import Annotated

import typer

from dlc.cli import options
from dlc.cli.report import print_json
from dlc.errors import UsageError
from dlc.errors.catalog import PAGES, Page


def command(
    code: Annotated[
        str,
        typer.Argument(help="A code such as D0301; a prefix lists all codes that begin with it."),
    ],
    as_json: options.Json = False,
) -> None:
    """Explain an error code."""
    prefix = code.upper().strip("[]")
    found = {name: page for name, page in PAGES.items() if name.startswith(prefix)}
    if not found:
        raise UsageError(
            f"there is no error code {code}", code="D0917", help="dlc explain D lists all"
        )
    if as_json:
        print_json({name: asdict(page) for name, page in found.items()})
    elif prefix in found:
        print(_text(prefix, found[prefix]))
    else:
        for name, page in found.items():
            print(f"{name}  {page.title}")


def _text(code: str, page: Page) -> str:
    parts = [f"{code}: {page.title}", fill(page.why, 80)]
    if page.wrong:
        parts.append(f"wrong:\n{indent(page.wrong, '  ')}")
    if page.right:
        parts.append(f"right:\n{indent(page.right, '  ')}")
    if page.without:
        parts.append(fill(f"No short program causes it: {page.without}.", 80))
    return "\n\n".join(parts)
