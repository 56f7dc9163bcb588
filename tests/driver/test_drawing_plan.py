"""Pictures of plans: what is alive together lies apart, at the sizes that the title says."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dlc.driver.make import CompileRequest
from dlc.driver.show import Shown, show_stage
from dlc.errors import UsageError

EXAMPLES = Path(__file__).parents[2] / "examples"
SPACE = "{http://www.w3.org/2000/svg}"


def drawn(name: str, entry: str | None = None) -> ElementTree.Element:
    wanted = CompileRequest(str(EXAMPLES / f"{name}.dlm"))
    return ElementTree.fromstring(show_stage(wanted, Shown("plan", entry=entry, svg=True)))


def test_the_parts_of_devices_are_named() -> None:
    text = "dlc 1\nexport fn f(x: f32[8]) -> f32[8] = exp(x) * on cpu:1 { sin(x) } + on cpu:2 { cos(x) }\n"
    shown = show_stage(CompileRequest("model.dlm", text=text), Shown("plan", svg=True))
    names = [name for name in texts(ElementTree.fromstring(shown)) if name.startswith("cpu:")]
    assert sorted(names) == ["cpu:0", "cpu:1", "cpu:2"]
    assert not [name for name in texts(drawn("lenet")) if name.startswith("cpu:")]


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SPACE}text")]


@pytest.mark.parametrize("name", ["lenet", "tiny_gpt", "mandelbrot"])
def test_values_that_are_alive_together_lie_apart(name: str) -> None:
    boxes: list[tuple[float, float, float, float]] = []
    for element in drawn(name).iter(f"{SPACE}rect"):
        if element.get("class") == "input":
            x, y, width, height = (
                float(element.get(key, "")) for key in ("x", "y", "width", "height")
            )
            if height > 2:  # what is thinner is drawn thicker than it is
                boxes.append((x, x + width, y, y + height))
    assert len(boxes) > 3
    for one, other in combinations(boxes, 2):
        apart = one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
        assert apart, (one, other)


def test_the_title_says_how_many_bytes_at_which_sizes() -> None:
    found = texts(drawn("lenet", "predict"))
    assert found[0].startswith("predict: ") and found[0].endswith(" bytes at B = 1")
    assert {"0", "conv", "gemm"} <= set(found)


def test_one_entry_point_is_drawn_without_the_others() -> None:
    titles = [text for text in texts(drawn("first")) if " bytes" in text]
    assert [title.partition(":")[0] for title in titles] == ["steps", "chosen", "gradient", "slope"]
    (only,) = [text for text in texts(drawn("first", "slope")) if " bytes" in text]
    assert only.startswith("slope: ")


def test_loops_are_no_picture() -> None:
    with pytest.raises(UsageError, match="stage loop is no graph"):
        show_stage(CompileRequest(str(EXAMPLES / "poly.dlm")), Shown("loop", svg=True))
