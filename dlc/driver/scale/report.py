"""Predictions of scaling as text and as data."""

from __future__ import annotations

from collections.abc import Iterator

from dlc.driver.run.outputs import JSON
from dlc.driver.scale.predict import Scaled, Scaling
from dlc.runtime.system.counts import counted

DIGITS = 6
_HEAD = (
    "ranks",
    "examples",
    "step ms",
    "compute",
    "waits",
    "share",
    "per second",
    "faster",
    "efficiency",
)


def scaling_text(found: Scaling) -> str:
    """A table with a row for each number of ranks, and where scaling stops."""
    rows = [_HEAD, *[_cells(row) for row in found.rows]]
    if found.rows[0].bubble is not None:
        bubbles = ["bubble", *[f"{row.bubble or 0:.0%}".replace("%", " %") for row in found.rows]]
        rows = [(*row, bubble) for row, bubble in zip(rows, bubbles, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join([_title(found), "", table, "", *_stages(found), _end(found)])


def _title(found: Scaling) -> str:
    asked = found.asked
    sizes = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    threads = f"{counted(asked.threads or 1, 'thread')} a rank"
    network = asked.network
    line = f"{network.name} ({network.message / 1e6:g} µs a message, {network.byte} ps a byte)"
    measured = "" if asked.step is None else f"; measured, {found.factor:.3g} times as predicted"
    batch = "the whole for each rank" if asked.weak else "divided among the ranks"
    return f"{found.entry} of {asked.request.path}: {sizes}, {batch}; {threads}; {line}{measured}"


def _stages(found: Scaling) -> Iterator[str]:
    """What the stages of a pipeline compute, and what their bubble would be at the least."""
    first = found.rows[0]
    if first.bubble is None:
        return
    works = ", ".join(f"{work / 1e6:.4g}" for work in first.spent.stages)
    many = "a microbatch" if found.microbatches == 1 else f"{found.microbatches} microbatches"
    yield (
        f"on {counted(first.ranks, 'rank')} the {len(first.spent.stages)} stages compute {works} ms; "
        f"with equal work and {many} the bubble is {found.equal_bubble:.0%}".replace("%", " %")
    )


def _cells(row: Scaled) -> tuple[str, ...]:
    spent = row.spent
    return (
        str(row.ranks),
        str(row.examples),
        f"{spent.total / 1e6:.4g}",
        f"{spent.compute / 1e6:.4g}",
        f"{spent.exposed / 1e6:.4g}",
        f"{100 * row.share:.0f} %",
        f"{row.rate:.4g}",
        f"{row.speedup:.3g}",
        f"{100 * row.efficiency:.0f} %",
    )


def _end(found: Scaling) -> str:
    last = found.rows[-1]
    if not found.reason:
        return f"scales to {counted(last.ranks, 'rank')}"
    return f"scales to {counted(found.best, 'rank')}: {found.reason}"


def scaling_data(found: Scaling) -> JSON:
    """All figures, times in milliseconds."""
    asked = found.asked
    return {
        "model": asked.request.path,
        "entry": found.entry,
        "sizes": dict(found.sizes),
        "threads": asked.threads,
        "weak": asked.weak,
        "shard": asked.shard,
        "network": {
            "name": asked.network.name,
            "message_us": asked.network.message / 1e6,
            "byte_ps": asked.network.byte,
            "beside": asked.network.beside,
        },
        "factor": round(found.factor, DIGITS),
        "microbatches": found.microbatches,
        "rows": [_row(row) for row in found.rows],
        "scales_to": found.best,
        "reason": found.reason or None,
    }


def _row(row: Scaled) -> JSON:
    spent = row.spent
    return {
        "ranks": row.ranks,
        "examples": row.examples,
        "ms": round(spent.total / 1e6, DIGITS),
        "compute_ms": round(spent.compute / 1e6, DIGITS),
        "waits_ms": round(spent.exposed / 1e6, DIGITS),
        "latency_ms": round(spent.latency / 1e6, DIGITS),
        "transfer_ms": round(spent.transfer / 1e6, DIGITS),
        "collectives": round(spent.collectives),
        "messages": round(spent.messages, DIGITS),
        "bytes": round(spent.bytes),
        "share": round(row.share, DIGITS),
        "bubble": None if row.bubble is None else round(row.bubble, DIGITS),
        "stages_ms": [round(work / 1e6, DIGITS) for work in spent.stages],
        "per_second": round(row.rate, DIGITS),
        "speedup": round(row.speedup, DIGITS),
        "efficiency": round(row.efficiency, DIGITS),
    }
