"""The curve of a training as a picture: each measure over the epochs, the test beside the training.

What is called `test_NAME` is drawn into the panel of NAME. Panels whose values span decades have a
logarithmic axis. What is not finite is left out. Matplotlib draws; it is imported when a curve is written.
"""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, TypeAlias

from dlc.errors import UsageError
from dlc.runtime.system.atomic_write import write_file
from dlc.runtime.training.history import TEST, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS: Final = (".svg", ".png")

Series: TypeAlias = Sequence[tuple[int, float]]
"""Epochs, each with the value of a measure."""

STYLE: Final = {
    "axes.edgecolor": "#4b5563",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "font.size": 9,
    "grid.color": "#e5e7eb",
    "legend.frameon": False,
    "lines.markersize": 4,
    "savefig.dpi": 200,
    "svg.fonttype": "none",  # texts stay texts: they can be searched, and the file is small
    "text.parse_math": False,  # a `$` in the name of a file is not a formula
    "svg.hashsalt": "dlc",  # the same curve gives the same bytes
    "ytick.left": False,
}
COLOURS: Final = {"training": "#1d4ed8", "test": "#d97706"}
WIDTH, PANEL = 7.2, 2.6
"""Inches: of the picture, and the height of a panel."""
DECADES: Final = 1.5
"""From how many decades on an axis is logarithmic."""
MARKED: Final = 40
"""Up to how many points each of them is marked."""


def require_matplotlib() -> None:
    """Raise UsageError (D0921) if Matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "drawing a curve needs the package matplotlib, which is not installed",
            code="D0921",
            help="pip install 'dlc[plots]'",
        )


def write_curve(path: str, history: Sequence[Record], title: str = "") -> None:
    """Write the curve as SVG or PNG, as its ending says.

    Raises UsageError: D0921 without Matplotlib, D0502 for a file that cannot be written, and one without
    a page for another ending and for a history without a finite number.
    """
    ending = PurePath(path).suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(
            f"{path}: a curve is written as .svg or .png", help="write --plot curve.svg"
        )
    require_matplotlib()
    from matplotlib import rc_context

    stream = io.BytesIO()
    with rc_context(STYLE):
        undated = {"Date": None} if ending == ".svg" else None
        figure_of(history, title).savefig(stream, format=ending[1:], metadata=undated)
    write_file(path, [stream.getvalue()])


def figure_of(history: Sequence[Record], title: str) -> Figure:
    """The picture: a panel for each measure, one below the other. Raises UsageError as `write_curve`."""
    panels = panels_of(history)
    if not panels:
        raise UsageError(
            "the training measured no finite number, so there is no curve to draw",
            help="train for at least one epoch",
        )
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure((WIDTH, PANEL * len(panels)), layout="constrained")
    if title:
        figure.suptitle(title)
    figure.subplots(len(panels), sharex=True)
    for axes, (name, panel) in zip(figure.axes, panels.items(), strict=True):
        _draw_panel(axes, name, panel)
    figure.axes[-1].set_xlabel("epoch")
    figure.axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return figure


def panels_of(history: Sequence[Record]) -> dict[str, dict[str, Series]]:
    """For each measure the finite values of the training and of the test."""
    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for record in history:
        for name, value in record.values.items():
            if math.isfinite(value):
                kind = "test" if name.startswith(TEST) else "training"
                panel = panels.setdefault(name.removeprefix(TEST), {})
                panel.setdefault(kind, []).append((record.epoch, value))
    return {name: {**panel} for name, panel in panels.items()}


def _draw_panel(axes: Axes, name: str, panel: Mapping[str, Series]) -> None:
    for kind, colour in COLOURS.items():
        if kind in panel:
            epochs = [epoch for epoch, _ in panel[kind]]
            values = [value for _, value in panel[kind]]
            marker = "o" if len(values) <= MARKED else ""
            axes.plot(epochs, values, color=colour, marker=marker, label=kind)
    axes.set_title(f"test {name}" if [*panel] == ["test"] else name, loc="left")
    if len(panel) > 1:
        axes.legend()
    values = [value for series in panel.values() for _, value in series]
    if min(values) > 0 and math.log10(max(values)) - math.log10(min(values)) >= DECADES:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
