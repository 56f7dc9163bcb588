"""Times of a profile for the steps of the page: what `dlc profile --json` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple, cast

from dlc.driver.report.page.schema import JsonPage
from dlc.errors import UsageError
from dlc.runtime.system.mapped_files import map_file


def add_times(data: JsonPage, path: str) -> None:
    """Give the steps of the plan the seconds that a profile of the model says.

    Steps with the same code share its time, those from the same line alone if there are such. Raises
    UsageError: D0501 for a file that cannot be read, D0907 for one that is not a profile of this model.
    """
    entry, kernels = _read(path, {each["name"]: each["line"] for each in data["files"]})
    if entry not in {each["name"] for each in data["entries"]}:
        raise UsageError(
            f"{path} is a profile of {entry}, which is not an entry point here",
            code="D0907",
            help=f"dlc profile {data['model']} --json > FILE writes one",
        )
    nodes = data["nodes"]
    steps: dict[str, list[str]] = {}
    for step, code in data["links"]:
        if step[0] == "p":
            steps.setdefault(nodes[code]["name"], []).append(step)
    for kernel in kernels:
        called = steps.get(kernel.code, [])
        near = [step for step in called if kernel.line in nodes[step]["lines"]] or called
        for step in near:
            nodes[step]["seconds"] = nodes[step].get("seconds", 0.0) + kernel.seconds / len(near)


class _Kernel(NamedTuple):
    """A kernel of a profile: the name of its code, the line of the page's text, and its time."""

    code: str
    line: int
    seconds: float


def _read(path: str, starts: Mapping[str, int]) -> tuple[str, list[_Kernel]]:
    """The entry point of a profile, and its kernels; `starts` has the line of each file's name."""
    try:
        data = cast("Mapping[str, object]", json.loads(str(map_file(path), "utf-8")))
        kernels: list[_Kernel] = []
        for row in cast("list[Mapping[str, object]]", data["kernels"]):
            file, _, at = str(row["place"] or "").rpartition(":")[0].rpartition(":")
            line = starts[file] + int(at) if file in starts else 0
            kernels.append(_Kernel(str(row["kernel"]), line, float(cast("float", row["ms"])) / 1e3))
        return str(data["entry"]), kernels
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"{path} is not a profile",
            code="D0907",
            help="dlc profile MODEL --json > FILE writes one",
        ) from None
