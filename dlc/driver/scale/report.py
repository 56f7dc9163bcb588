"""Predictions of scaling as text and as data."""

from __future__ import annotations

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
    widths = [max(len(row[k]) for row in rows) for k in range(len(_HEAD))]
    table = "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return f"{_title(found)}\n\n{table}\n\n{_end(found)}"


def _title(found: Scaling) -> str:
    asked = found.asked
    sizes = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    threads = f"{counted(asked.threads or 1, 'thread')} a rank"
    network = asked.network
    line = f"{network.name} ({network.message / 1e6:g} µs a message, {network.byte} ps a byte)"
    measured = "" if asked.step is None else f"; measured, {found.factor:.3g} times as predicted"
    batch = "the whole for each rank" if asked.weak else "divided among the ranks"
    return f"{found.entry} of {asked.request.path}: {sizes}, {batch}; {threads}; {line}{measured}"


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
        "bytes": round(spent.bytes),
        "share": round(row.share, DIGITS),
        "per_second": round(row.rate, DIGITS),
        "speedup": round(row.speedup, DIGITS),
        "efficiency": round(row.efficiency, DIGITS),
    }
