"""The curve of a training as a picture."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="Matplotlib is not installed")

from matplotlib.axes import Axes

from dlc.driver.report.loss_curve import figure_of, write_curve
from dlc.errors import UsageError
from dlc.runtime.training.history import Record

HISTORY = [
    Record(
        epoch,
        10 * epoch,
        {"loss": 2.0 / epoch, "test_loss": 2.5 / epoch, "test_accuracy": epoch / 8},
    )
    for epoch in range(1, 6)
]


def curves(axes: Axes) -> dict[str, list[list[float]]]:
    """The points of each series of a panel."""
    return {
        str(line.get_label()): np.asarray(line.get_xydata(), float).tolist() for line in axes.lines
    }


def test_each_measure_has_a_panel_with_the_test_beside_the_training() -> None:
    loss, accuracy = figure_of(HISTORY, "").axes
    assert loss.get_title(loc="left") == "loss"
    assert curves(loss) == {
        "training": [[epoch, 2.0 / epoch] for epoch in range(1, 6)],
        "test": [[epoch, 2.5 / epoch] for epoch in range(1, 6)],
    }
    assert loss.get_legend() is not None
    assert accuracy.get_title(loc="left") == "test accuracy"
    assert list(curves(accuracy)) == ["test"]
    assert accuracy.get_legend() is None, "accuracy is alone"
    assert [axes.get_xlabel() for axes in (loss, accuracy)] == ["", "epoch"]


def test_values_over_decades_have_a_logarithmic_axis() -> None:
    wide = [Record(e, e, {"loss": 10.0**-e}) for e in range(1, 5)]
    narrow = [Record(e, e, {"loss": 1.0 / e}) for e in range(1, 5)]
    signed = [Record(e, e, {"loss": 10.0**-e - 0.01}) for e in range(1, 5)]
    scales = [figure_of(each, "").axes[0].get_yscale() for each in (wide, narrow, signed)]
    assert scales == ["log", "linear", "linear"]


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-300, 1e300, 5e-324])
def test_a_measure_that_never_changes_is_drawn(tmp_path: Path, value: float) -> None:
    write_curve(str(tmp_path / "c.svg"), [Record(e, e, {"loss": value}) for e in (1, 2)])
    ElementTree.parse(tmp_path / "c.svg")


def test_what_is_not_finite_is_left_out() -> None:
    values = [1.0, math.nan, 2.0, math.inf]
    history = [Record(e, e, {"loss": v, "other": math.nan}) for e, v in enumerate(values)]
    (panel,) = figure_of(history, "").axes
    assert curves(panel) == {"training": [[0.0, 1.0], [2.0, 2.0]]}


@pytest.mark.parametrize(("epochs", "marker"), [(1, "o"), (40, "o"), (41, "")])
def test_a_few_epochs_are_marked(epochs: int, marker: str) -> None:
    history = [Record(e, e, {"loss": 1 / e}) for e in range(1, epochs + 1)]
    (panel,) = figure_of(history, "").axes
    assert [line.get_marker() for line in panel.lines] == [marker]


def test_a_history_without_a_number_is_told() -> None:
    for history in ([], [Record(1, 1, {"loss": math.nan})], [Record(1, 1, {})]):
        with pytest.raises(UsageError, match="no curve"):
            figure_of(history, "")


def test_the_ending_says_how_it_is_written(tmp_path: Path) -> None:
    write_curve(str(tmp_path / "c.png"), HISTORY)
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"as \.svg or \.png"):
        write_curve(str(tmp_path / "c.pdf"), HISTORY)


def test_a_title_is_written_as_it_is(tmp_path: Path) -> None:
    title = "digits <1> & $more$"
    write_curve(str(tmp_path / "c.svg"), HISTORY, title)
    texts = ElementTree.parse(tmp_path / "c.svg").iter("{http://www.w3.org/2000/svg}text")
    assert title in [text.text for text in texts]


def test_the_same_curve_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        write_curve(str(tmp_path / name), HISTORY)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_without_matplotlib_the_way_out_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nowhere(name: str) -> None:
        """No package is installed."""

    monkeypatch.setattr(importlib.util, "find_spec", nowhere)
    with pytest.raises(UsageError, match="needs the package matplotlib") as caught:
        write_curve(str(tmp_path / "c.svg"), HISTORY)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.help) == ("D0921", "pip install 'dlc[plots]'")
