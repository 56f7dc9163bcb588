"""The model texts on the error pages show what the pages say."""

from __future__ import annotations

from dlc.errors import ModelError
from dlc.errors.catalog import PAGES
from dlc.frontend.elaborate import elaborate
from tests.suites import together

COMPILED = ("D0205", "D0222", "D0406")
"""Codes of texts that are told when a text is compiled, or needs a file: `test_programs` does it."""
SHOWN = [
    code
    for code, page in PAGES.items()
    if code not in COMPILED
    and code.startswith(("D01", "D02", "D03", "D04", "D053"))
    and page.wrong.startswith("dlc 1\n")
]
"""Codes whose pages show a whole model text, not an excerpt or a command."""


def codes_told(text: str) -> set[str]:
    """The codes of all errors and warnings that a model text causes."""
    try:
        told = elaborate("shown.dlm", text=text).warnings
    except ModelError as error:
        told = error.diagnostics
    return {diagnostic.code for diagnostic in told}


def test_pages_of_all_subjects_of_model_text_show_whole_texts() -> None:
    assert {code[:3] for code in SHOWN} == {"D01", "D02", "D03", "D04", "D05"}


@together("code", SHOWN)
def test_the_wrong_text_of_a_page_causes_its_code(code: str) -> None:
    assert code in codes_told(PAGES[code].wrong)


@together("code", SHOWN)
def test_the_right_text_of_a_page_is_a_model_without_warnings(code: str) -> None:
    assert codes_told(PAGES[code].right) == set()
