"""`slow`: the three largest gaps between what a call takes and what the machine could do, with reasons."""

from __future__ import annotations

from typing import NamedTuple

from dlc.driver.profile.data import decisions_of
from dlc.driver.profile.measured import ProfileRequest, profile_model
from dlc.driver.run.outputs import JSON
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import Row
from dlc.runtime.profiling.table import number

MOST = 3
NEAR = 0.8
"""A share of the roof that nobody needs to explain."""
SHORT_MS = 0.02
"""A kernel as short as this is mostly its beginning and its end."""


class Slow(NamedTuple):
    """The answer for people, and for programs."""

    entry: str
    text: str
    data: JSON


def explain_slow(request: ProfileRequest) -> Slow:
    """Profile a model and answer from that. Raises what `profile_model` does."""
    return answer(profile_model(request))


def answer(profile: Profile) -> Slow:
    """The gaps, the largest first: time, floor, reasons, and the line of the text."""
    return Slow(profile.entry, _text(profile), _data(profile))


def _text(profile: Profile) -> str:
    gaps = largest_gaps(profile)
    lines = [
        f"{profile.entry} takes {number(profile.call_ms)} ms; its kernels could take "
        f"{number(sum(row.floor.ms for row in profile.rows))} of their {number(profile.kernels_ms)} ms"
    ]
    for place, row in enumerate(gaps, 1):
        lines += ["", f"{place}. {row.title}{f' ×{row.runs}' if row.runs > 1 else ''}"]
        lines.append(f"   {row.place} | {row.line}" if row.place else "   no place in a text")
        lines.append(
            f"   {number(row.ms)} ms, could be {number(row.floor.ms)} ({row.share:.0%} of the roof, "
            f"{_bound(row)})"
        )
        lines += [f"   {reason}" for reason in reasons(profile, row)]
    rest = profile.python_ms + profile.between_ms
    if rest > 0.1 * profile.call_ms:
        lines += ["", f"and {number(rest)} ms outside kernels: larger calls would share it"]
    if profile.transfers_ms > 0.1 * profile.call_ms:
        lines += [
            "",
            f"and {number(profile.transfers_ms)} ms for copies between host and GPU: arguments that are "
            "there already need none",
        ]
    return "\n".join(lines)


def _data(profile: Profile) -> JSON:
    return {
        "call_ms": profile.call_ms,
        "gaps": [
            {
                "title": row.title,
                "place": row.place or None,
                "ms": row.ms,
                "floor_ms": row.floor.ms,
                "bound": row.floor.bound or None,
                "reasons": reasons(profile, row),
            }
            for row in largest_gaps(profile)
        ],
    }


def largest_gaps(profile: Profile) -> list[Row]:
    """The kernels with the most milliseconds above their floor."""
    ranked = sorted(profile.rows, key=lambda row: row.floor.ms - row.ms)
    return [row for row in ranked[:MOST] if row.ms > row.floor.ms]


def reasons(profile: Profile, row: Row) -> list[str]:
    """Why a kernel is not at its floor, from what was measured and what the compiler decided."""
    found: list[str] = []
    if row.share >= NEAR:
        found.append("it is near the machine's best: only less work would make it faster")
    elif row.ms / row.runs < SHORT_MS:
        found.append(
            f"each run takes {1000 * row.ms / row.runs:.3g} µs: too short to reach full speed"
        )
    if profile.threads > 1 and not profile.on_gpu and row.busy_ms < 0.7 * profile.threads * row.ms:
        busy = row.busy_ms / row.ms if row.ms else 0.0
        found.append(f"{busy:.2g} of {profile.threads} threads work on it at a time")
    if row.floor.bound == "arithmetic" and row.share < NEAR:
        found.append(_arithmetic_on_gpu(row) if profile.on_gpu else _arithmetic(row))
    elif row.floor.bound and row.share < NEAR:
        found.append(f"it moves {row.gbytes:.3g} GB/s; a fusion with its neighbour would move less")
    refused = [text for text in decisions_of(profile, row) if ": not: " in text]
    found += [f"the compiler left it so: {text.replace(': not: ', ': ')}" for text in refused[:2]]
    return found


def _arithmetic(row: Row) -> str:
    rate = f"{row.gflops:.3g} GFLOP/s"
    if "winograd" in row.what:
        return f"{rate} after Winograd's transforms, which are time that the floor does not count"
    if "matmul" in row.what or "conv" in row.what:
        return f"{rate}: few rows, columns or channels leave registers empty, or panels leave the cache"
    return f"{rate}: sums and functions wait for each other instead of filling registers"


def _arithmetic_on_gpu(row: Row) -> str:
    rate = f"{row.gflops:.3g} GFLOP/s"
    if "matmul" in row.what or "conv" in row.what:
        return f"{rate}: few or narrow tiles leave multiprocessors idle, or wait for their operands"
    return f"{rate}: functions and sums of each thread wait for each other"


def _bound(row: Row) -> str:
    if not row.floor.bound:
        return "no roof is known"
    return "by its arithmetic" if row.floor.bound == "arithmetic" else f"by {row.floor.bound}"
