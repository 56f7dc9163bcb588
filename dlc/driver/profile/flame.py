"""A profile as a flame graph: modules inside modules, kernels on top, as wide as the time that they take.

B. Gregg, "The Flame Graph" (CACM 59, 2016). The picture is one SVG without scripts; a pointer over a part
shows its figures. Its colour says how far the part is from the roof of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from dlc.errors import visible
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.profiling.rows import Row
from dlc.runtime.profiling.table import heading, number

WIDTH = 1200.0
ROW = 20.0
TOP = 44.0
CHARACTER = 6.6
"""Width of a character at 11 px in the usual monospaced fonts."""
LEAST = 0.4
"""Narrower parts are left out."""
SHARES = ((0.75, "#86c98b"), (0.4, "#f2cf66"), (0.0, "#ee8a6a"))
"""From which share of the roof on a kernel has a colour."""
UNKNOWN, MODULE = "#c3c9d4", "#dfe4ec"


@dataclass(slots=True)
class _Part:
    """A module with what is in it, or a kernel."""

    name: str
    rows: list[Row] = field(default_factory=list[Row])
    parts: dict[str, _Part] = field(default_factory=dict[str, "_Part"])
    is_kernel: bool = False

    @property
    def ms(self) -> float:
        return sum(row.ms for row in self.rows)


def flame_svg(profile: Profile) -> str:
    """The picture."""
    root = _Part(profile.entry, list(profile.rows))
    for number_, row in enumerate(profile.rows):
        part = root
        for name in filter(None, row.path.split(".")):
            part = part.parts.setdefault(name, _Part(name))
            part.rows.append(row)
        part.parts[f"{number_}:"] = _Part(row.what or row.kernel, [row], is_kernel=True)
    depth = _depth(root)
    height = TOP + depth * ROW + 30
    boxes = "\n".join(_boxes(root, 0.0, WIDTH / max(root.ms, 1e-12), depth - 1, profile))
    legend = "green: above 75 % of the roof, yellow: above 40 %, red: below; grey: unknown"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" '
        f'font-family="ui-monospace, monospace" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text x="6" y="18" font-size="14">{_text(heading(profile))}</text>\n'
        f'<text x="6" y="{height - 8:.0f}" fill="#555555">{legend}</text>\n{boxes}\n</svg>\n'
    )


def _depth(part: _Part) -> int:
    """How many rows a part is high; paths are short, so this recursion is."""
    return 1 + max((_depth(inner) for inner in part.parts.values()), default=0)


def _boxes(part: _Part, x: float, scale: float, level: int, profile: Profile) -> Iterator[str]:
    """A part and, above it, what is in it, in the order in which it runs."""
    width = part.ms * scale
    if width < LEAST:
        return
    yield _box(part, x, width, TOP + level * ROW, profile)
    for inner in part.parts.values():
        yield from _boxes(inner, x, scale, level - 1, profile)
        x += inner.ms * scale


def _box(part: _Part, x: float, width: float, y: float, profile: Profile) -> str:
    floor = sum(row.floor.ms for row in part.rows)
    share = floor / part.ms if part.ms else 0.0
    told = f"{part.name}: {number(part.ms)} ms, {part.ms / profile.call_ms:.1%} of the call"
    if floor:
        told += f", {share:.0%} of the roof"
    if part.is_kernel:
        told += f"\n{part.rows[0].title}\n{part.rows[0].place} {part.rows[0].line}"
    colour = MODULE
    if part.is_kernel:
        colour = next(c for least, c in SHARES if share >= least) if floor else UNKNOWN
    room = int((width - 6) / CHARACTER)
    name = part.name if len(part.name) <= room else part.name[: room - 1] + "…" if room > 2 else ""
    return (
        f'<g><title>{_text(told)}</title><rect x="{x:.2f}" y="{y:.0f}" width="{max(0.3, width - 0.5):.2f}" '
        f'height="{ROW - 1:.0f}" rx="2" fill="{colour}"/>'
        f'<text x="{x + 3:.2f}" y="{y + 14:.0f}">{_text(name)}</text></g>'
    )


def _text(text: str) -> str:
    return escape(visible(text))
