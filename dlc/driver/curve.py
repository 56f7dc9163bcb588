"""The curve of a training as a picture: each measure over the epochs, the test beside the training.

What is called `test_NAME` is drawn into the panel of NAME. Panels whose values span decades have a
logarithmic axis. What is not finite is left out. The figure is made once, of lines and texts, and written
as SVG or drawn as PNG.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import PurePath

from dlc.errors import UsageError
from dlc.runtime.atomic import write_file
from dlc.runtime.history import TEST, Record
from dlc.runtime.picture_files import require_pillow

Point = tuple[float, float]

_WIDTH, _PANEL = 720.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 76.0, 24.0, 34.0, 40.0
_SERIES = (("test", TEST, "#d97706"), ("training", "", "#1d4ed8"))
"""What is drawn into a panel, from the right: what it is called, its prefix and its colour."""
_ALONE = "#047857"
"""The colour of what is the only thing in its panel, and needs no name beside the panel's."""
_GRID, _INK, _SOFT = "#e5e7eb", "#111827", "#4b5563"
_DECADES = 1.5
"""From how many decades on an axis is logarithmic."""
_DOTS = 40
"""Up to how many points each of them is marked."""


@dataclass(frozen=True, slots=True)
class _Line:
    points: tuple[Point, ...]
    colour: str
    width: float


@dataclass(frozen=True, slots=True)
class _Dot:
    at: Point
    colour: str
    radius: float


@dataclass(frozen=True, slots=True)
class _Text:
    at: Point
    text: str
    anchor: str
    """Which part of the text stands there: start, middle or end."""
    size: float = 12
    colour: str = _SOFT


_Mark = _Line | _Dot | _Text


@dataclass(frozen=True, slots=True)
class _Axis:
    """Where a value lies between two ends, and the values that are marked."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """From 0 at the low end to 1 at the high end."""
        if self.logarithmic:
            first, last = math.log(self.low), math.log(self.high)
            return (math.log(value) - first) / (last - first)
        return (value - self.low) / (self.high - self.low)


def draw_curve(history: Sequence[Record], title: str = "") -> str:
    """The curve as SVG. Raises UsageError for a history without a finite number."""
    marks, height = _figure(history, title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {_WIDTH:.0f} {height:.0f}" font-family="system-ui, sans-serif">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f"{chr(10).join(map(_svg, marks))}\n</svg>\n"
    )


def paint_curve(history: Sequence[Record], title: str = "") -> bytes:
    """The curve as PNG, with two pixels for each unit of the SVG.

    Raises UsageError as `draw_curve` does, Unsupported (D0703) without Pillow.
    """
    require_pillow("the curve as PNG")
    from PIL import Image, ImageDraw, ImageFont

    marks, height = _figure(history, title)
    scale = 4  # twice the result, so that shrinking smooths the lines
    picture = Image.new("RGB", (round(_WIDTH * scale), round(height * scale)), "white")
    draw = ImageDraw.Draw(picture)
    anchors = {"start": "ls", "middle": "ms", "end": "rs"}
    for mark in marks:
        match mark:
            case _Line(points, colour, width):
                scaled = [(x * scale, y * scale) for x, y in points]
                draw.line(scaled, colour, round(width * scale), joint="curve")
            case _Dot((x, y), colour, radius):
                corners = [(x - radius) * scale, (y - radius) * scale]
                corners += [(x + radius) * scale, (y + radius) * scale]
                draw.ellipse(corners, colour)
            case _Text((x, y), text, anchor, size, colour):
                font = ImageFont.load_default(size * scale)
                draw.text((x * scale, y * scale), text, colour, font, anchors[anchor])
    stream = io.BytesIO()
    small = picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.LANCZOS)
    small.save(stream, "PNG")
    return stream.getvalue()


def write_curve(path: str, history: Sequence[Record], title: str = "") -> None:
    """Write the curve as its ending says. Raises UsageError for any but .svg and .png."""
    match PurePath(path).suffix.lower():
        case ".svg":
            write_file(path, [draw_curve(history, title).encode()])
        case ".png":
            write_file(path, [paint_curve(history, title)])
        case _:
            raise UsageError(
                f"{path}: a curve is written as .svg or .png",
                help="write --plot curve.svg",
            )


def _svg(mark: _Mark) -> str:
    match mark:
        case _Line(points, colour, width):
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            return (
                f'<polyline points="{path}" fill="none" stroke="{colour}" '
                f'stroke-width="{width:g}" stroke-linejoin="round"/>'
            )
        case _Dot((x, y), colour, radius):
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}"/>'
        case _Text((x, y), text, anchor, size, colour):
            return (
                f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}" '
                f'fill="{colour}">{escape(text)}</text>'
            )


def _figure(history: Sequence[Record], title: str) -> tuple[list[_Mark], float]:
    """Everything that is drawn, and how high the picture is."""
    panels = _panels(history)
    if not panels:
        raise UsageError(
            "there is no curve of a training that measured no finite number",
            help="train for at least one epoch",
        )
    marks: list[_Mark] = []
    top = 0.0
    if title:
        marks.append(_Text((_LEFT, 26), title, "start", 15, _INK))
        top = 28
    last = max(record.epoch for record in history)
    first = min(record.epoch for record in history)
    across = _Axis(first, max(last, first + 1), _whole_ticks(first, last))
    for name, series in panels.items():
        marks += _panel(name, series, across, top)
        top += _PANEL
    marks.append(_Text(((_LEFT + _WIDTH - _RIGHT) / 2, top - 4), "epoch", "middle"))
    return marks, top + 8


def _panels(history: Sequence[Record]) -> dict[str, dict[str, list[Point]]]:
    """For each measure the series of the training and of the test, as epochs and values."""
    panels: dict[str, dict[str, list[Point]]] = {}
    for record in history:
        for name, value in record.values.items():
            if math.isfinite(value):
                panel = panels.setdefault(name.removeprefix(TEST), {})
                panel.setdefault(name, []).append((record.epoch, value))
    return panels


def _panel(name: str, series: dict[str, list[Point]], across: _Axis, top: float) -> list[_Mark]:
    up = _axis([value for points in series.values() for _, value in points])

    def at(epoch: float, value: float) -> Point:
        x = _LEFT + across.place(epoch) * (_WIDTH - _LEFT - _RIGHT)
        return x, top + _PANEL - _BOTTOM - up.place(value) * (_PANEL - _TOP - _BOTTOM)

    marks = _grid(across, up, at)
    title = f"test {name}" if [*series] == [f"{TEST}{name}"] else name
    marks.append(_Text((_LEFT, top + 22), title, "start", 13, _INK))
    x = _WIDTH - _RIGHT
    for kind, prefix, colour in _SERIES:
        points = [at(*point) for point in series.get(prefix + name, ())]
        if not points:
            continue
        if len(series) > 1:
            marks.append(_Text((x, top + 22), kind, "end", 12, colour))
            x -= 8 * len(kind) + 12
        else:
            colour = _ALONE
        marks.append(_Line(tuple(points), colour, 2))
        if len(points) <= _DOTS:
            marks += [_Dot(point, colour, 2.6) for point in points]
    return marks


def _grid(across: _Axis, up: _Axis, at: Callable[[float, float], Point]) -> list[_Mark]:
    marks: list[_Mark] = []
    for value in up.ticks:
        left, right = at(across.low, value), at(across.high, value)
        marks.append(_Line((left, right), _GRID, 1))
        marks.append(_Text((left[0] - 8, left[1] + 4), f"{value:.6g}", "end"))
    base = up.low
    for epoch in across.ticks:
        x, y = at(epoch, base)
        marks.append(_Line(((x, y), (x, y + 4)), _SOFT, 1))
        marks.append(_Text((x, y + 18), f"{epoch:.0f}", "middle"))
    marks.append(_Line((at(across.low, base), at(across.high, base)), _SOFT, 1))
    return marks


def _axis(values: Sequence[float]) -> _Axis:
    """An axis on which all values have a place."""
    low, high = min(values), max(values)
    if low > 0 and math.log10(high) - math.log10(low) >= _DECADES:
        return _logarithmic_axis(low, high)
    if high == low:
        margin = abs(low) / 2 or 1.0
        low, high = low - margin, high + margin
    step = _step((high - low) / 4)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = tuple(k * step for k in range(first, last + 1))
    return _Axis(ticks[0], ticks[-1], ticks)


def _logarithmic_axis(low: float, high: float) -> _Axis:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, (last - first + 4) // 5)
    ends = 10.0**first, 10.0**last
    return _Axis(*ends, tuple(10.0**k for k in range(first, last + 1, every)), logarithmic=True)


def _step(least: float) -> float:
    """The next number from `least` on that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def _whole_ticks(first: int, last: int) -> tuple[float, ...]:
    """At most eleven whole numbers between two."""
    step = max(1, round(_step(max(1, last - first) / 10)))
    start = -(-first // step) * step
    return tuple(float(k) for k in range(start, last + 1, step))
