"""`dlc doctor`: whether this machine has what dlc needs."""

from __future__ import annotations

from dataclasses import asdict

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json


def command(as_json: options.Json = False) -> None:
    """Say what dlc finds on this machine; exits with 1 if something needed is missing."""
    found = driver.examine()
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            mark = "" if finding.level == "ok" else f"{finding.level}: "
            print(f"{finding.what:11} {mark}{finding.text}")
    if any(finding.level == "error" for finding in found):
        raise typer.Exit(1)
