"""docs/errors.md lists all error codes; `pytest tests/errors/catalog/test_index.py --update` writes it."""

from __future__ import annotations

import pytest

from dlc.errors.catalog import PAGES
from tests.documents import ROOT

PAGE = ROOT / "docs" / "errors.md"
SUBJECTS = {
    "D01": "Syntax: how a text is written",
    "D02": "Names and modules",
    "D03": "Types and shapes",
    "D04": "Control flow and derivatives",
    "D05": "Files, weights and data",
    "D06": "Artifacts",
    "D07": "What dlc cannot do",
    "D08": "Calls",
    "D09": "The command line, and failures of dlc itself",
}
HEAD = """\
# Errors

For whoever meets an error. Each error has a code, a place, the two things that disagree, and a way out;
this page lists the codes, made from the pages behind them. `dlc explain D0304` prints such a page: why it
is wrong, a text that shows it, and the corrected text. In Python every error is a `dlc.DlcError`, and its
`diagnostics` say the same.

Exit codes of the command line: 0 done, 1 the model is wrong, 2 usage, 3 numbers differ, 4 unsupported,
5 artifact refused, 70 a failure of dlc itself, 130 interrupted.
"""


def index() -> str:
    """The page as it should be."""
    parts = [HEAD]
    for subject, title in SUBJECTS.items():
        rows = [
            f"| {code} | {in_cell(page.title)} |"
            for code, page in sorted(PAGES.items())
            if code.startswith(subject)
        ]
        parts.append(
            "\n".join([f"## {title}\n", "| code | what is wrong |", "| --- | --- |", *rows])
        )
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def in_cell(text: str) -> str:
    return text.replace("|", "\\|")


def test_the_index_has_every_error_code(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("update"):
        PAGE.write_text(index(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == index()


def test_every_code_belongs_to_a_subject_of_the_index() -> None:
    assert {code[:3] for code in PAGES} == SUBJECTS.keys()
