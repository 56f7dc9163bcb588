"""The site of the documents: every page is there and in the navigation, and links lead to pages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.documents import ROOT

FOLDER = ROOT / "docs" / "site"
CONFIG = (FOLDER / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The program, with pages laid out in a folder of the test."""
    spec = importlib.util.spec_from_file_location("build", FOLDER / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["PAGES"] = tmp_path_factory.mktemp("pages")
    module.stage()
    return module


def test_the_navigation_has_every_page(builder: ModuleType) -> None:
    named = set(re.findall(r"- (?:[^:\n]+: )?([\w/.-]+\.md)$", CONFIG, re.M))
    assert named == {page.relative_to(ROOT).as_posix() for page in builder.sources()}


def test_links_of_the_pages_lead_to_pages(builder: ModuleType) -> None:
    pages: Path = builder.PAGES
    for page in pages.rglob("*.md"):
        for found in builder.LINK.finditer(page.read_text(encoding="utf-8")):
            if not found["code"]:
                assert (page.parent / found[3]).exists(), (page, found[3])


def test_a_linked_text_has_a_page_that_shows_it(builder: ModuleType) -> None:
    text = (ROOT / "examples" / "vit.dlm").read_text(encoding="utf-8")
    shown = (builder.PAGES / "examples" / "vit.dlm.md").read_text(encoding="utf-8")
    assert f"````dlm\n{text}````" in shown
    assert "(vit.dlm.md)" in (builder.PAGES / "examples" / "README.md").read_text(encoding="utf-8")


def test_nothing_comes_from_another_site() -> None:
    assert "font: false" in CONFIG and "http" not in CONFIG
