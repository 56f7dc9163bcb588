"""The plan of an entry point as a picture: the arena over time, and below it the bytes in use.

Waves go from left to right, bytes upwards. A rectangle is a root while it is in use, in the colour of what
makes it; what is said about it appears where the pointer rests. Roots too small to be seen are counted, not
drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

from dlc.driver.call_memory.facts import EntryMemory, Root, Work, sizes_text
from dlc.driver.drawing.svg import document
from dlc.driver.memory.asked import ModelMemory
from dlc.driver.memory.report import also_text, waves_text
from dlc.runtime.model_repr import bytes_text
from dlc.runtime.system.counts import counted

KINDS = {
    "move": ("copy", "concat", "scatter", "update", "send", "reshape", "transpose", "permute"),
    "order": ("prefix scan", "sort", "nonzero", "top_k"),
    "product": ("matmul", "conv", "attention"),
    "sum": ("fold", "sum", "mean", "max", "min", "norm", "pool", "cross_entropy"),
}
"""The colours: what these occur in, the first that does; `formula` is anything else."""
WORDS = {
    "product": "products",
    "sum": "sums, maxima",
    "formula": "formulas",
    "move": "copies",
    "order": "sorting, running sums",
}
"""The labels of the legend."""

LEFT, RIGHT, TOP = 88.0, 216.0, 66.0
PLOT, STRIP, GAP, FOOT = 400.0, 90.0, 30.0, 44.0
"""Heights: of the arena, of the bytes in use below it, between them, and of what is written below."""
WIDEST, NARROWEST = 90.0, 1.0
"""The width of a wave, as far as the plot is neither too wide nor too narrow."""
_PLOT_LEAST, _PLOT_MOST = 460.0, 1020.0
_SEEN = 0.25
"""The least height that is drawn."""
_LINE = 11.0
"""The least height that has room for a label."""
_LETTER = 6.7
"""Width of a letter of a label."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The contents of an `<svg>` element, its size in pixels, and the width of a wave."""

    width: float
    height: float
    column: float
    parts: tuple[str, ...]

    @property
    def inside(self) -> str:
        return "\n".join(self.parts)


def kind_of(root: Root) -> str:
    """The colour of a root: what makes it."""
    what = root.maker.what if root.maker is not None else "copy"
    computed = what.rpartition(" · ")[2]
    found = (kind for kind, words in KINDS.items() if any(word in computed for word in words))
    return next(found, "formula")


def draw(entry: EntryMemory, line: Callable[[str], str]) -> Picture:
    """The picture of an entry point; `line` gives the line of the text at a place."""
    return _Drawing(entry, line).picture


def svg_file(memory: ModelMemory) -> str:
    """The pictures of all entry points as one SVG file, in the reader's choice of light or dark."""
    pictures = [draw(entry, memory.line) for entry in memory.entries]
    width = max([picture.width for picture in pictures], default=0.0)
    height = sum(picture.height for picture in pictures)
    parts: list[str] = []
    top = 0.0
    for picture in pictures:
        parts.append(f'<g transform="translate(0 {top:.1f})">\n{picture.inside}\n</g>')
        top += picture.height
    return document(width, height, parts, _literal_style())


# Colours ------------------------------------------------------------------------------------------

_LIGHT = {
    "paper": "#ffffff",
    "ink": "#111827",
    "soft": "#5b6472",
    "grid": "#e5e7eb",
    "bound": "#b91c1c",
    "peak": "#fde8e8",
    "use": "#94a3b8",
    "product": "#1d4ed8",
    "product-fill": "#c3d9fd",
    "sum": "#b45309",
    "sum-fill": "#fbe3b3",
    "formula": "#15803d",
    "formula-fill": "#c5efd2",
    "move": "#6b7280",
    "move-fill": "#e1e4e9",
    "order": "#7e22ce",
    "order-fill": "#ead7fb",
}
_DARK = {
    "paper": "#0d1117",
    "ink": "#e6edf3",
    "soft": "#9ba6b4",
    "grid": "#232a33",
    "bound": "#f87171",
    "peak": "#331a1d",
    "use": "#64748b",
    "product": "#60a5fa",
    "product-fill": "#1b3565",
    "sum": "#fbbf24",
    "sum-fill": "#4a3410",
    "formula": "#4ade80",
    "formula-fill": "#12432a",
    "move": "#9ca3af",
    "move-fill": "#30363f",
    "order": "#c084fc",
    "order-fill": "#41215f",
}


def colours(where: str) -> str:
    """CSS that names the colours for an element, in light and in dark."""
    light = ";".join(f"--{name}:{colour}" for name, colour in _LIGHT.items())
    dark = ";".join(f"--{name}:{colour}" for name, colour in _DARK.items())
    return f"{where}{{{light}}}\n@media (prefers-color-scheme:dark){{{where}{{{dark}}}}}\n"


STYLE = "".join(
    [
        "svg .paper{fill:var(--paper)}\n",
        "svg text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:var(--soft)}\n",
        "svg .title{font-weight:bold;font-size:14px;fill:var(--ink)}\n",
        "svg .inside{fill:var(--ink);pointer-events:none}\n",
        "svg .grid{stroke:var(--grid)}svg .axis{stroke:var(--soft)}\n",
        "svg .bound{stroke:var(--bound);stroke-dasharray:5 3;fill:none}\n",
        "svg .lead{stroke:var(--soft);stroke-width:.7;fill:none}\n",
        "svg .told{fill:var(--bound)}svg .peak{fill:var(--peak)}\n",
        "svg .use{fill:var(--use);fill-opacity:.45;stroke:var(--use)}\n",
        *[
            f"svg .{kind}{{fill:var(--{kind}-fill);stroke:var(--{kind});stroke-width:.7}}"
            f"svg .{kind}.thin{{fill:var(--{kind});stroke:none}}\n"
            for kind in WORDS
        ],
        "svg .root:hover,svg .root.lit{stroke-width:2.5;filter:saturate(1.6)}\n",
    ]
)
"""CSS of the pictures."""


def _literal_style() -> str:
    """The same with the colours themselves: what converts pictures seldom knows names in CSS."""
    dark = _named_in(STYLE, _DARK)
    return f"{_named_in(STYLE, _LIGHT)}@media (prefers-color-scheme:dark){{\n{dark}}}\n"


def _named_in(style: str, colours: Mapping[str, str]) -> str:
    """Style with these colours in place of their names."""
    return re.sub(r"var\(--([a-z-]+)\)", lambda name: colours[name[1]], style)


# The drawing --------------------------------------------------------------------------------------


class _Drawing:
    """One entry point."""

    def __init__(self, entry: EntryMemory, line: Callable[[str], str]) -> None:
        self.entry = entry
        self.line = line
        room = max(_PLOT_LEAST, min(entry.waves * WIDEST, _PLOT_MOST))
        self.column = max(room / max(1, entry.waves), NARROWEST)
        self.width = self.column * max(1, entry.waves)

    @cached_property
    def picture(self) -> Picture:
        width = LEFT + self.width + RIGHT
        if not self.entry.roots:
            return Picture(width, TOP, self.column, tuple(self._title()))
        parts = [*self._title(), *self._legend(), *self._peak(), *self._grid(), *self._roots()]
        parts += [*self._devices(), *self._bounds(), *self._labels(), *self._in_use()]
        parts += self._waves()
        height = self.floor + GAP + STRIP + FOOT
        return Picture(width, height, self.column, tuple(parts))

    floor = TOP + PLOT

    def x(self, wave: float) -> float:
        """The x coordinate at which a wave begins."""
        return LEFT + wave * self.column

    def y(self, offset: float) -> float:
        """The y coordinate of a byte of the arena."""
        return self.floor - offset * PLOT / max(1, self.entry.arena)

    def _title(self) -> Iterator[str]:
        entry = self.entry
        size = bytes_text(entry.arena) if entry.roots else "nothing in the arena"
        yield _text(LEFT, 22, f"{entry.name}{sizes_text(entry.dims)}: {size}", "title")

    def _legend(self) -> Iterator[str]:
        x = LEFT
        used = {kind_of(root) for root in self.entry.roots}
        for kind, word in WORDS.items():
            if kind in used:
                yield f'<rect class="{kind}" x="{x:.1f}" y="36" width="12" height="12" rx="2"/>'
                yield _text(x + 18, 46, word)
                x += 34 + len(word) * _LETTER
        hidden = [root for root in self.entry.roots if not self._is_seen(root)]
        if hidden:
            total = bytes_text(sum(root.bytes for root in hidden))
            told = f"not drawn: {counted(len(hidden), 'root')}, {total} in all"
            yield _text(x + 8, 46, told)

    def _peak(self) -> Iterator[str]:
        bottom = self.floor + GAP + STRIP
        yield (
            f'<rect class="peak" x="{self.x(self.entry.peak):.1f}" y="{TOP:g}" '
            f'width="{self.column:.1f}" height="{bottom - TOP:.1f}"/>'
        )

    def _grid(self) -> Iterator[str]:
        right = self.x(self.entry.waves)
        for offset in byte_marks(self.entry.arena):
            y = self.y(offset)
            yield f'<path class="grid" d="M{LEFT:g} {y:.1f}H{right:.1f}"/>'
            yield _text(LEFT - 8, y + 4, short_bytes(offset), anchor="end")

    # The roots.

    def _roots(self) -> Iterator[str]:
        return (self._root(root) for root in self.entry.roots if self._is_seen(root))

    def _is_seen(self, root: Root) -> bool:
        return root.bytes * PLOT >= _SEEN * self.entry.arena

    def _root(self, root: Root) -> str:
        x, width = self.x(root.first), (root.last - root.first + 1) * self.column
        height = root.bytes * PLOT / self.entry.arena
        thin = height < 3 or width < 3
        inset = 0.0 if thin else 0.5
        return (
            f'<rect class="root {kind_of(root)}{" thin" if thin else ""}" data-root="{root.number}" '
            f'x="{x + inset:.1f}" y="{self.y(root.end) + inset:.2f}" '
            f'width="{max(width - 2 * inset, 0.6):.1f}" height="{max(height - 2 * inset, 0.6):.2f}"'
            f"{'' if thin else ' rx=' + chr(34) + '2' + chr(34)}>"
            f"<title>{escape(self._said(root))}</title></rect>"
        )

    def _labels(self) -> Iterator[str]:
        """The names of roots, where they fit."""
        for root in self.entry.roots:
            width = (root.last - root.first + 1) * self.column
            middle = self.y(root.offset + root.bytes / 2)
            label = _fitting([root.title, root.main.name or root.main.type], width - 8)
            if label and root.bytes * PLOT >= _LINE * self.entry.arena:
                yield _text(self.x(root.first) + width / 2, middle + 4, label, "inside", "middle")

    def _said(self, root: Root) -> str:
        """The tooltip of a root, in lines."""
        lines = [
            root.title,
            f"{root.bytes:,} bytes at {root.offset:,}, waves {waves_text(root)}",
            *self._told("made by", root.maker),
            *self._told("kept for", root.last_reader),
        ]
        also = also_text(root)
        return "\n".join([*lines, f"also there: {also}"] if also else lines)

    def _told(self, how: str, work: Work | None) -> Iterator[str]:
        if work is not None:
            yield f"{how} {work.what} in wave {work.wave}, {work.place}".rstrip(", ")
            if line := self.line(work.place):
                yield f"    {line}"

    # What stands around them.

    def _devices(self) -> Iterator[str]:
        """A line where the part of each device begins, where there are several."""
        starts: dict[str, int] = {}
        for root in self.entry.roots:
            starts[root.device] = min(root.offset, starts.get(root.device, root.offset))
        for device, start in starts.items() if len(starts) > 1 else ():
            y = self.y(start)
            yield f'<path class="axis" d="M{LEFT:g} {y:.1f}H{self.x(self.entry.waves):.1f}"/>'
            yield _text(LEFT + 4, y - 4, device)

    def _bounds(self) -> Iterator[str]:
        """The arena's end and both lower bounds, with their names at the right."""
        entry, right = self.entry, self.x(self.entry.waves)
        marks = {"arena": entry.arena, "this order": entry.order_bound}
        marks["any order"] = entry.any_order_bound
        named: dict[int, list[str]] = {}
        for name, size in marks.items():
            named.setdefault(size, []).append(name)
        above = -20.0
        for size, names in sorted(named.items(), reverse=True):
            y = self.y(size)
            style = "axis" if names == ["arena"] else "bound"
            above = max(y + 4, above + 28)
            yield f'<path class="{style}" d="M{LEFT:g} {y:.1f}H{right:.1f}"/>'
            yield f'<path class="lead" d="M{right:.1f} {y:.1f}l8 {above - 4 - y:.1f}h4"/>'
            said = "" if style == "axis" else "told"
            yield _text(right + 16, above, ", ".join(names), said)
            yield _text(right + 16, above + 13, bytes_text(size), said)

    def _in_use(self) -> Iterator[str]:
        """The bytes in use over time."""
        entry, bottom = self.entry, self.floor + GAP + STRIP
        scale = STRIP / max(1, entry.arena)
        path = f"M{LEFT:g} {bottom:g}"
        for wave, size in enumerate(entry.alive):
            path += f"V{bottom - size * scale:.1f}H{self.x(wave + 1):.1f}"
        yield f'<path class="use" d="{path}V{bottom:g}Z"/>'
        yield f'<path class="axis" d="M{LEFT:g} {bottom:g}H{self.x(entry.waves):.1f}"/>'
        yield _text(LEFT - 8, bottom - STRIP / 2 + 4, "in use", anchor="end")
        peak = entry.alive[entry.peak]
        x, y = self.x(entry.peak + 0.5), bottom - peak * scale
        yield f'<circle class="told" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
        told = f"peak: wave {entry.peak}, {bytes_text(peak)}"
        at_left = x - LEFT < self.width / 2
        yield _text(x + (7 if at_left else -7), y - 6, told, "told", "start" if at_left else "end")

    def _waves(self) -> Iterator[str]:
        """The numbers of waves, as many as have room."""
        y = self.floor + GAP + STRIP + 16
        step = next(s for s in _steps() if s * self.column >= 34 or s >= self.entry.waves)
        for wave in range(0, self.entry.waves, step):
            yield _text(self.x(wave + 0.5), y, str(wave), anchor="middle")
        yield _text(LEFT - 8, y, "wave", anchor="end")


def byte_marks(size: int) -> list[int]:
    """Round numbers of bytes from 0 to `size`, some three to six of them.

    >>> byte_marks(5 << 20) == [0, 1 << 20, 2 << 20, 3 << 20, 4 << 20, 5 << 20]
    True
    """
    step = 1 << max(0, (max(1, size) // 3).bit_length() - 1)
    return list(range(0, size + 1, step))


def short_bytes(size: int) -> str:
    """A round number of bytes.

    >>> short_bytes(0), short_bytes(64), short_bytes(1 << 20), short_bytes(3 << 9)
    ('0', '64 bytes', '1 MiB', '1.5 KiB')
    """
    return bytes_text(size).replace(".0 ", " ") if size else "0"


def _steps() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50 and so on."""
    step = 1
    while True:
        yield from (step, 2 * step, 5 * step)
        step *= 10


def _fitting(labels: Sequence[str], width: float) -> str:
    """The first that is not too long, else the beginning of the last.

    >>> _fitting(["hidden: f32[8, 64]", "hidden"], 60.0), _fitting(["hidden"], 30.0), _fitting(["h"], 5)
    ('hidden', 'hid…', '')
    """
    room = int(width / _LETTER)
    short = next((label for label in labels if label and len(label) <= room), "")
    rest = next((label for label in reversed(labels) if label), "")
    return short or (f"{rest[: room - 1]}…" if room > 2 else "")


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    named = f' class="{style}"' if style else ""
    placed = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}"{placed}>{escape(text)}</text>'
