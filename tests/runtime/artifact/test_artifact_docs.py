"""docs/artifact.md says what the code does: its tables are compared with the classes."""

from __future__ import annotations

import re
from pathlib import Path

from dlc.errors.catalog import PAGES
from dlc.runtime.artifact import arena_values, certificate, container, decisions, manifest
from tests.suites import together

TEXT = (Path(__file__).parents[3] / "docs" / "artifact.md").read_text(encoding="utf-8")


def _records() -> dict[str, tuple[str, ...]]:
    """The fields of every record that is stored, by its class."""
    return {
        name: getattr(value, "_fields")  # noqa: B009
        for module in (manifest, certificate, arena_values, decisions)
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and hasattr(value, "_fields")
    }


RECORDS = _records()


def rows(title: str) -> list[list[str]]:
    """The cells of the first table after a heading, without its head."""
    after = re.split(rf"^#+ {re.escape(title)}$", TEXT, flags=re.MULTILINE)[1]
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert table is not None, title
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@together("name", RECORDS)
def test_every_record_has_a_table_with_exactly_its_keys(name: str) -> None:
    assert [row[0].strip("`") for row in rows(name)] == list(RECORDS[name])


def test_there_are_records_to_compare() -> None:
    assert len(RECORDS) == 39


def test_every_kind_of_section_is_described_in_the_order_of_the_file() -> None:
    assert [row[0].strip("`") for row in rows("Sections")] == list(container.KINDS)


def test_the_header_is_described_to_the_byte() -> None:
    described = [row[0] for row in rows("The file")]
    assert described == ["0–7", "8–11", "12–15", "16–23", "24–31", "32–63", "64–", "body"]
    assert container.HEADER.size == 64
    assert " ".join(f"{byte:02x}" for byte in container.MAGIC) in TEXT


def test_every_code_on_the_page_has_a_page_of_its_own() -> None:
    codes = set(re.findall(r"D0[68]\d\d", TEXT))
    assert codes
    assert codes <= PAGES.keys()
    assert {code for code in PAGES if code.startswith("D060")} <= codes
