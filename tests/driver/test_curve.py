"""The curve of a training as a picture."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from dlc.driver.curve import draw_curve, paint_curve, write_curve
from dlc.errors import UsageError
from dlc.runtime.history import Record

SVG = "{http://www.w3.org/2000/svg}"
HISTORY = [
    Record(
        epoch,
        10 * epoch,
        {"loss": 2.0 / epoch, "test_loss": 2.5 / epoch, "test_accuracy": epoch / 8},
    )
    for epoch in range(1, 6)
]


def texts(svg: str) -> list[str]:
    return [found.text or "" for found in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def curves(svg: str) -> list[list[tuple[float, float]]]:
    """The points of each series."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    thick = [e for e in found if e.get("stroke-width") == "2"]
    return [
        [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", e.get("points", ""))]
        for e in thick
    ]


def test_each_measure_has_a_panel_with_the_test_beside_the_training() -> None:
    told = texts(draw_curve(HISTORY, "digits <1> & more"))
    assert told[0] == "digits <1> & more"
    assert [text for text in told if text.endswith(("loss", "accuracy"))] == [
        "loss",
        "test accuracy",
    ]
    assert told.count("training") == 1 and told.count("test") == 1, "accuracy is alone"
    assert told[-1] == "epoch"


def test_points_lie_where_their_values_are() -> None:
    test, training, _ = curves(draw_curve(HISTORY))
    across = [x for x, _ in training]
    np.testing.assert_allclose(np.diff(across), np.diff(across)[0], atol=0.11)
    # A linear axis: equal differences of values are equal lengths.
    up = {2.0 / e: y for e, (_, y) in enumerate(training, 1)}
    scale = (up[2.0] - up[1.0]) / (2.0 - 1.0)
    for (_, high), (_, low), epoch in zip(test, training, range(1, 6), strict=True):
        assert high - low == pytest.approx(scale * 0.5 / epoch, abs=0.2)


def test_values_over_decades_have_a_logarithmic_axis() -> None:
    history = [Record(e, e, {"loss": 10.0**-e}) for e in range(1, 5)]
    svg = draw_curve(history)
    [points] = curves(svg)
    steps = np.diff([y for _, y in points])
    np.testing.assert_allclose(steps, steps[0], atol=0.11)
    assert {"0.1", "0.01", "0.001", "0.0001"} <= set(texts(svg))


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-300, 1e300, 5e-324])
def test_a_measure_that_never_changes_is_a_level_line(value: float) -> None:
    history = [Record(e, e, {"loss": value}) for e in (1, 2)]
    [[(_, one), (_, two)]] = curves(draw_curve(history))
    assert one == two and 34 < one < 210


def test_what_is_not_finite_is_left_out() -> None:
    values = [1.0, math.nan, 2.0, math.inf]
    history = [Record(e, e, {"loss": v, "other": math.nan}) for e, v in enumerate(values)]
    svg = draw_curve(history)
    assert [len(points) for points in curves(svg)] == [2]
    assert "other" not in texts(svg)


def test_one_epoch_is_a_dot() -> None:
    svg = draw_curve([Record(1, 5, {"loss": 1.0})])
    assert len(list(ElementTree.fromstring(svg).iter(f"{SVG}circle"))) == 1


@pytest.mark.parametrize("epochs", [1, 2, 7, 11, 100, 1234])
def test_a_few_epochs_are_marked(epochs: int) -> None:
    history = [Record(e, e, {"loss": 1 / e}) for e in range(1, epochs + 1)]
    svg = draw_curve(history)
    below = [e for e in ElementTree.fromstring(svg).iter(f"{SVG}text") if e.get("y") == "228.0"]
    assert 1 <= len(below) <= 11


def test_a_history_without_a_number_is_told() -> None:
    for history in ([], [Record(1, 1, {"loss": math.nan})], [Record(1, 1, {})]):
        with pytest.raises(UsageError, match="no curve"):
            draw_curve(history)


def test_the_ending_says_how_it_is_written(tmp_path: Path) -> None:
    write_curve(str(tmp_path / "c.svg"), HISTORY)
    assert (tmp_path / "c.svg").read_text(encoding="utf-8") == draw_curve(HISTORY)
    with pytest.raises(UsageError, match=r"as \.svg or \.png"):
        write_curve(str(tmp_path / "c.pdf"), HISTORY)


def test_the_same_figure_is_painted_as_png(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    write_curve(str(tmp_path / "c.png"), HISTORY, "digits")
    assert (tmp_path / "c.png").read_bytes() == paint_curve(HISTORY, "digits")
    with image.open(io.BytesIO(paint_curve(HISTORY, "digits"))) as picture:
        pixels = np.asarray(picture).astype(int)
    height, width = pixels.shape[:2]
    svg = draw_curve(HISTORY, "digits")
    assert f'width="{width // 2}" height="{height // 2}"' in svg
    for points, colour in zip(curves(svg), ([217, 119, 6], [29, 78, 216]), strict=False):
        for x, y in points[1:-1]:
            assert np.abs(pixels[round(2 * y), round(2 * x)] - colour).max() < 60
