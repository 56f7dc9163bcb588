"""What is said about texts with mistakes, as in tests/text/errors/*.txt; `--update` rewrites them.

A case is `=== title`, a text, `---`, and the report.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlc.errors import catalog, render
from dlc.errors.catalog import Page
from dlc.text.model.parser import parse
from dlc.text.source import Source
from tests.suites import together

FOLDER = Path(__file__).parent / "errors"
FILES = sorted(FOLDER.glob("*.txt"))


@dataclass(frozen=True, slots=True)
class Case:
    title: str
    text: str
    expected: str

    def report(self) -> str:
        diagnostics = parse(Source("model.dlm", self.text)).diagnostics
        sources = {"model.dlm": self.text}
        return "".join(f"{render(found, sources)}\n" for found in diagnostics)

    def __str__(self) -> str:
        return f"=== {self.title}\n{self.text}---\n{self.report()}"


def cases_in(path: Path) -> list[Case]:
    pieces = re.split(r"^=== (.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    titles, bodies = pieces[1::2], pieces[2::2]
    halves = [re.split(r"^---\n", body, maxsplit=1, flags=re.MULTILINE) for body in bodies]
    return [Case(title, *half) for title, half in zip(titles, halves, strict=True)]


CASES = [case for path in FILES for case in cases_in(path)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_mistake_gets_the_report_that_is_written_down(
    path: Path, request: pytest.FixtureRequest
) -> None:
    cases = cases_in(path)
    if request.config.getoption("update"):
        path.write_text("".join(map(str, cases)), encoding="utf-8")
        return
    for case in cases:
        assert case.report() == case.expected, case.title


def test_at_least_forty_kinds_of_mistake_are_written_down() -> None:
    assert len({case.title for case in CASES}) == len(CASES) >= 40


@together("case", CASES, ids=lambda case: case.title)
def test_every_mistake_is_reported_with_a_code_that_has_a_page(case: Case) -> None:
    found = parse(Source("model.dlm", case.text)).diagnostics
    assert found
    assert {diagnostic.code for diagnostic in found} <= set(catalog.PAGES)


def pages() -> list[tuple[str, Page]]:
    """Those of model text; IR text has the codes from D0150 on."""
    return [(code, page) for code, page in catalog.PAGES.items() if "D0100" <= code < "D0150"]


def test_every_page_about_model_text_is_of_a_code_that_the_parser_gives() -> None:
    folder = Path(__file__).parents[3] / "dlc" / "text"
    given = set(re.findall(r"D01[0-4]\d", "".join(p.read_text() for p in folder.rglob("*.py"))))
    assert {code for code, _ in pages()} == given


@pytest.mark.parametrize(("code", "page"), [p for p in pages() if p[1].right.startswith("dlc 1")])
def test_a_page_shows_a_text_with_the_mistake_and_one_without(code: str, page: Page) -> None:
    assert code in {found.code for found in parse(Source("wrong", page.wrong)).diagnostics}
    assert not parse(Source("right", page.right)).diagnostics
