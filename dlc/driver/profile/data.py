"""A profile as data for programs (`docs/json.md`), and read back for `--compare`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple, cast

from dlc.driver.run.outputs import JSON
from dlc.errors import UsageError
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import Row
from dlc.runtime.profiling.stages import stage_data
from dlc.runtime.system.mapped_files import map_file

VERSION = 1
DIGITS = 7


class OldKernel(NamedTuple):
    """A kernel of a profile that was written to a file."""

    path: str
    what: str
    ms: float
    decisions: tuple[str, ...]


class OldProfile(NamedTuple):
    """What a comparison needs of a profile in a file."""

    model: str
    entry: str
    device: str
    dims: Mapping[str, int]
    threads: int
    call_ms: float
    kernels: tuple[OldKernel, ...]


def profile_data(profile: Profile) -> JSON:
    """All figures, and beside each kernel what was decided about its line."""
    return {
        "version": VERSION,
        "model": profile.model,
        "entry": profile.entry,
        "device": profile.device,
        "dims": dict(profile.dims),
        "threads": profile.threads,
        "rounds": profile.rounds,
        "call_ms": round(profile.call_ms, DIGITS),
        "processor_ms": round(profile.processor_ms, DIGITS),
        "python_ms": round(profile.python_ms, DIGITS),
        "between_ms": round(profile.between_ms, DIGITS),
        "transfers_ms": round(profile.transfers_ms, DIGITS),
        "interrupted_ms": round(profile.interrupted_ms, DIGITS),
        "overhead": round(profile.overhead, 5),
        "busy": [round(share, 4) for share in profile.busy],
        "stages": None if profile.stages is None else stage_data(profile.stages),
        "kernels": [_kernel(profile, row) for row in profile.by("kernel")],
    }


def _kernel(profile: Profile, row: Row) -> JSON:
    return {
        "title": row.title,
        "path": row.path,
        "what": row.what,
        "kernel": row.kernel,
        "place": row.place or None,
        "line": row.line,
        "runs": row.runs,
        "ms": round(row.ms, DIGITS),
        "busy_ms": round(row.busy_ms, DIGITS),
        "operations": row.operations,
        "bytes": row.bytes,
        "floor_ms": round(row.floor.ms, DIGITS),
        "bound": row.floor.bound or None,
        "predicted_ms": round(row.predicted_ms, DIGITS),
        "decisions": list(decisions_of(profile, row)),
    }


def decisions_of(profile: Profile, row: Row) -> tuple[str, ...]:
    """What the compiler decided about the line that a kernel comes from."""
    return profile.decisions.get(row.place.rpartition(":")[0], ())


def read_profile(path: str) -> OldProfile:
    """A profile that `dlc profile --json` wrote.

    Raises UsageError: D0501 for a file that cannot be read, D0907 for one that is something else.
    """
    try:
        found: object = json.loads(str(map_file(path), "utf-8"))
        data = cast("Mapping[str, object]", found)
        kernels = cast("list[Mapping[str, object]]", data["kernels"])
        dims = cast("Mapping[str, int]", data["dims"])
        return OldProfile(
            str(data["model"]),
            str(data["entry"]),
            str(data["device"]),
            {name: int(size) for name, size in dims.items()},
            int(cast("int", data["threads"])),
            float(cast("float", data["call_ms"])),
            tuple(
                OldKernel(
                    str(each["path"]),
                    str(each["what"]),
                    float(cast("float", each["ms"])),
                    tuple(map(str, cast("list[str]", each["decisions"]))),
                )
                for each in kernels
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"{path} is not a profile",
            code="D0907",
            help="dlc profile MODEL --json > OLD.json writes one",
        ) from None
