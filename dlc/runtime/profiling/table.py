"""A profile as a table: text of 80 columns for terminals, HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc.errors import visible
from dlc.runtime.profiling.rows import Measurements, Row
from dlc.runtime.profiling.stages import stage_lines

WIDTH = 80
HEADER = "     ms      %  roof  bound    GF/s  GB/s  "
NOTABLE = 0.005
"""A part of a call that is worth a line."""
NAME = WIDTH - len(HEADER)
_BOUNDS = {"arithmetic": "arith", "memory": "mem"}


def as_text(profile: Measurements, rows: Sequence[Row], by: str, most: int) -> str:
    """The table; of more than `most` rows (0: of none) the others are one."""
    shown = rows[:most] if most else rows
    lines = [heading(profile), "", HEADER + by]
    lines += [_row_text(profile, row) for row in shown]
    rest = rows[len(shown) :]
    if rest:
        lines.append(_line(profile, sum(row.ms for row in rest), f"{len(rest)} more"))
    what = "their launches" if profile.on_gpu else "waves begin and end"
    lines.append(_line(profile, profile.between_ms, f"between kernels: {what}"))
    if profile.uses_gpu:
        lines.append(_line(profile, profile.transfers_ms, "copies between host and GPU"))
    lines.append(_line(profile, profile.python_ms, "around them: arguments and results"))
    if profile.interrupted_ms > NOTABLE * profile.call_ms:
        lines.append(_line(profile, profile.interrupted_ms, "interrupted by other work"))
    return visible("\n".join([*lines, "", *footer(profile)]))


def heading(profile: Measurements) -> str:
    """What was timed."""
    at = "".join(f", {name} = {value}" for name, value in profile.dims.items())
    threads = f"{profile.threads} thread{'s' if profile.threads > 1 else ''}"
    where = f"{profile.device}, {threads}" if profile.uses_gpu else threads
    if profile.on_gpu:
        where = profile.device
    return f"{profile.model}: {profile.entry} takes {number(profile.call_ms)} ms on {where}{at}"


def footer(profile: Measurements) -> Iterator[str]:
    """How well the machine is used, and how the figures came about."""
    if profile.threads > 1 and not profile.on_gpu:
        busy = ", ".join(f"{share:.0%}" for share in profile.busy)
        yield f"threads in kernels: {busy} of the time; the rest waits for the others"
    floors = sum(row.floor.ms for row in profile.rows)
    # What stages of a pipeline wait and send are rows without a kernel.
    kernels = sum(row.ms for row in profile.rows if row.kernel)
    if floors and kernels:
        yield (
            f"roof: {number(floors)} of {number(kernels)} ms in kernels ({floors / kernels:.0%})"
        )
    if profile.stages is not None:
        yield from stage_lines(profile.stages)
    lengthened = max(0.0, profile.overhead)
    what = "timing kernels" if profile.uses_gpu else "the trace"
    yield f"{profile.rounds} rounds; {what} lengthened a call by {lengthened:.1%}, left out above"


def number(value: float) -> str:
    """Milliseconds with three or four digits."""
    return f"{value:.4g}" if value < 1000 else f"{value:,.0f}"


def _row_text(profile: Measurements, row: Row) -> str:
    bound = _BOUNDS.get(row.floor.bound, row.floor.bound)
    share = f"{row.share:4.0%}" if row.floor.bound else "   -"
    figures = f"{share}  {bound:5} {_rate(row.gflops, 7)} {_rate(row.gbytes, 5)}"
    return f"{_ms(row.ms)} {_percent(profile, row.ms)}  {figures}  {_name(row, NAME)}"


def _name(row: Row, width: int) -> str:
    """The title in `width` columns, with the number of runs."""
    times = f" ×{row.runs}" if row.runs > 1 else ""
    return shortened(row.title, width - len(times)) + times


def _line(profile: Measurements, ms: float, name: str) -> str:
    return f"{_ms(ms)} {_percent(profile, ms)}{'':{len(HEADER) - 14}}{name}"


def _ms(ms: float) -> str:
    return f"{ms:7.4f}" if ms < 10 else f"{ms:7.2f}" if ms < 1000 else f"{ms:7.0f}"


def _percent(profile: Measurements, ms: float) -> str:
    return f"{100 * ms / profile.call_ms if profile.call_ms else 0:6.1f}"


def _rate(value: float, width: int) -> str:
    return f"{value:{width}.1f}" if value < 1000 else f"{value:{width}.0f}"


def shortened(text: str, width: int) -> str:
    """A name in `width` columns: the beginning of a path is left out first, then the end of the rest.

    >>> shortened("encoder.layers.11.mlp.up · matmul 128×512×2048", 34)
    '…11.mlp.up · matmul 128×512×2048'
    >>> shortened("encoder.layers.11.mlp.up", 12)
    '…11.mlp.up'
    """
    if len(text) <= width:
        return text
    path, mark, what = text.partition(" · ")
    # Without a mark it is a path alone, or a line of a text, which keeps its beginning.
    while "." in path and (mark or " " not in text):
        path = path.partition(".")[2]
        if len(f"…{path}{mark}{what}") <= width:
            return f"…{path}{mark}{what}"
    left_out = "…" if len(path) + len(mark) + len(what) < len(text) else ""
    return f"{left_out}{path}{mark}{what}"[: width - 1] + "…"


def roofline_text(profile: Measurements) -> str:
    """Each kernel's time and floor, the largest gap first."""
    lines = [heading(profile), "", "     ms   floor  share  bound  kernel"]
    for row in sorted(profile.rows, key=lambda row: row.floor.ms - row.ms):
        bound = _BOUNDS.get(row.floor.bound, row.floor.bound)
        floor = (
            f"{_ms(row.floor.ms)}  {row.share:5.0%}" if row.floor.bound else f"{'-':>7}  {'-':>5}"
        )
        lines.append(f"{_ms(row.ms)} {floor}  {bound:5}  {_name(row, WIDTH - 31)}")
    return visible("\n".join([*lines, "", *footer(profile)]))


def as_html(profile: Measurements, rows: Sequence[Row], by: str, most: int) -> str:
    """The table for a notebook."""
    import html  # its table of characters is loaded for notebooks only

    def cells(*texts: str) -> str:
        return "".join(f"<td>{html.escape(visible(text))}</td>" for text in texts)

    body = [
        cells(
            f"{row.ms:.4f}",
            _percent(profile, row.ms),
            f"{row.share:.0%} {row.floor.bound}" if row.floor.bound else "-",
            f"{row.gflops:.1f}",
            f"{row.gbytes:.1f}",
            row.title,
            f"{row.place} {row.line}",
        )
        for row in rows[:most]
    ]
    names = ("ms", "%", "roof", "GF/s", "GB/s", by, "line")
    head = "".join(f"<th>{name}</th>" for name in names)
    notes = "<br>".join(html.escape(line) for line in (heading(profile), *footer(profile)))
    return (
        f"<p>{notes}</p><table><thead><tr>{head}</tr></thead><tbody>"
        + "".join(f"<tr>{row}</tr>" for row in body)
        + "</tbody></table>"
    )
