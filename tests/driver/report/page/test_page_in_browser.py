"""The page of `dlc show --html` in a browser: it is drawn, walked through and searched, wide and narrow."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from dlc.driver.report.page.data import page_data
from dlc.driver.report.page.page import page_of
from dlc.driver.run.request import CompileRequest
from tests.browser import Page, browser_page, find_browser
from tests.suites import every

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")
EXAMPLES = Path(__file__).parents[4] / "examples"
SEEN = """(() => {
  const boxes = [...document.querySelectorAll(".box")].filter(box => !box.classList.contains("name"));
  return boxes.map(box => box.querySelector("text").textContent);
})()"""
LARGER = {
    "12 blocks of a transformer": CompileRequest(
        str(EXAMPLES / "tiny_gpt.dlm"), parameters={"L": 12}
    ),
    "a step of training": CompileRequest(str(EXAMPLES / "digits_mlp.dlm"), to_train=True),
}
OVERLAPS = """(() => {
  const boxes = [...document.querySelectorAll(".box > rect")].map(rect => rect.getBoundingClientRect());
  let count = 0;
  boxes.forEach((a, k) => boxes.slice(k + 1).forEach(b => {
    const beside = a.right <= b.left + 1 || b.right <= a.left + 1;
    const above = a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
    if (!beside && !above) count++;
  }));
  return count;
})()"""


@pytest.fixture(scope="module")
def browser() -> Generator[Page]:
    with browser_page() as page:
        yield page


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page_of(page_data(CompileRequest(str(EXAMPLES / "tiny_gpt.dlm")))))
    return path


@pytest.fixture
def page(browser: Page, path: Path, request: pytest.FixtureRequest) -> Page:
    width, height = getattr(request, "param", (1440, 900))
    browser.errors.clear()
    browser.requests.clear()
    browser.resize(width, height)
    browser.open(path, "!!window.app")
    return browser


def seen(page: Page) -> list[str]:
    """The titles of all boxes in the picture."""
    return texts(page, SEEN)


def texts(page: Page, expression: str) -> list[str]:
    """The texts that an expression gives."""
    return [str(text) for text in cast(list[object], page.evaluate(expression))]


@pytest.mark.parametrize("page", [(1440, 900), (390, 844)], indirect=True)
def test_the_page_fits_its_screen_and_loads_nothing(page: Page, path: Path) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert {"ids", "gather", "matmul", "logits"} <= set(seen(page))
    assert page.evaluate(OVERLAPS) == 0
    smallest = page.evaluate("app.panes[0].view.scale * 11")
    assert isinstance(smallest, float | int) and smallest >= 7.5
    assert not page.errors
    assert page.requests == [path.as_uri()]


@pytest.mark.long
@pytest.mark.parametrize("name", every(2, LARGER))
def test_larger_pages_fit_a_desk_and_a_phone(name: str, browser: Page, tmp_path: Path) -> None:
    """The labels of what is seen are legible, and no boxes cover others."""
    path = tmp_path / "page.html"
    path.write_text(page_of(page_data(LARGER[name])))
    assert path.stat().st_size < 5_000_000
    browser.errors.clear()
    for width, height in ((1440, 900), (390, 844)):
        browser.resize(width, height)
        browser.open(path, "!!window.app")
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert seen(browser)
        assert browser.evaluate(OVERLAPS) == 0
        smallest = browser.evaluate("app.panes[0].view.scale * 11")
        assert isinstance(smallest, float | int) and smallest >= 7.5
    assert not browser.errors


def test_with_several_entry_points_the_page_fits_a_phone(browser: Page, tmp_path: Path) -> None:
    path = tmp_path / "poly.html"
    path.write_text(page_of(page_data(CompileRequest(str(EXAMPLES / "poly.dlm")))))
    browser.resize(390, 844)
    browser.open(path, "!!window.app")
    assert browser.evaluate("document.getElementById('entry').options.length") == 3
    right = browser.evaluate("document.getElementById('help-button').getBoundingClientRect().right")
    assert isinstance(right, float | int) and right <= 390
    browser.evaluate("""(() => {
      const entry = document.getElementById("entry");
      entry.value = 1;
      entry.dispatchEvent(new Event("change"));
    })()""")
    assert {"x", "dy"} <= set(seen(browser))


def test_modules_open_and_close(page: Page) -> None:
    page.press("c")
    closed = seen(page)
    page.press("o")
    opened = seen(page)
    assert "▸ scan" in closed and "nn.softmax" not in closed
    assert "nn.softmax" in opened and not [title for title in opened if title.startswith("▸")]
    assert page.evaluate(OVERLAPS) == 0
    assert not page.errors


def test_a_click_shows_where_an_operation_came_from_and_what_became_of_it(page: Page) -> None:
    page.press("o")
    page.evaluate("""(() => {
      const boxes = [...document.querySelectorAll(".box")];
      const softmax = boxes.find(box => box.textContent.startsWith("nn.softmax"));
      softmax.scrollIntoView({ block: "center" });
      softmax.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    })()""")
    told = page.evaluate("document.getElementById('inspector').textContent")
    assert isinstance(told, str)
    for word in ("tiny_gpt.dlm:14", "softmax(where(", "Became", "kernel.", "asm", "Decisions"):
        assert word in told
    marked = page.evaluate("document.querySelector('.line.lit').textContent")
    assert isinstance(marked, str) and "softmax" in marked
    page.press("Escape")
    assert page.evaluate("document.getElementById('inspector').hidden")
    assert not page.errors


def test_a_line_of_any_level_selects_what_stands_there(page: Page) -> None:
    page.evaluate("app.panes[1].show('asm')")
    page.evaluate("app.selectLine('asm', 20)")
    assert page.evaluate("app.selection.ids.length") == 1
    reached = page.evaluate("[...app.selection.relatives].map(id => id[0]).sort().join('')")
    assert isinstance(reached, str) and set(reached) >= {"p"}
    assert not page.errors


def test_the_search_finds_operations_and_lines_and_goes_there(page: Page) -> None:
    page.press("/")
    page.call("Input.insertText", text="softmax")
    groups = texts(page, "[...document.querySelectorAll('#found h3')].map(h => h.textContent)")
    assert {"operations", "text", "graph"} <= set(groups)
    page.press("ArrowDown")
    page.press("Enter")
    name = page.evaluate("app.model.nodes[app.selection.ids[0]].name")
    assert isinstance(name, str) and "softmax" in name
    assert page.evaluate("document.getElementById('found').hidden")
    assert not page.errors


@pytest.mark.parametrize("view", ["memory", "plan", "llvm", "decisions"])
def test_every_view_draws_what_it_has(page: Page, view: str) -> None:
    page.evaluate(f"app.panes[1].show('{view}')")
    page.wait(
        "document.querySelectorAll('.pane')[1].querySelectorAll('.root, .line, .row').length > 5"
    )
    assert not page.errors


@pytest.mark.long
@pytest.mark.parametrize("page", [(390, 844)], indirect=True)
def test_by_value_every_bar_of_the_memory_has_its_label(page: Page) -> None:
    page.evaluate("app.panes[0].show('memory')")
    page.wait("document.querySelectorAll('.root').length > 0")
    counts = page.evaluate("""[
      document.querySelectorAll('.root').length, document.querySelectorAll('.memory .inside').length,
    ]""")
    assert isinstance(counts, list) and counts[0] == counts[1] > 5
    assert not page.errors
