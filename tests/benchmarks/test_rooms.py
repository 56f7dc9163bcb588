"""benchmarks/rooms.py: rooms, arrows, circles and text cases of a small checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import rooms

FILES = {
    "dlc/__init__.py": "",
    "dlc/text/__init__.py": "",
    "dlc/text/lexer.py": "import re\nfrom dlc.text.ir import parser\n",
    "dlc/text/ir/__init__.py": "",
    "dlc/text/ir/parser.py": "from dlc.text.ir.printer import show\n",
    "dlc/text/ir/printer.py": "def show():\n    from dlc.text.ir import parser\n",
    "tests/cases/passes/cse.dlir": "// RUN: cse\n// -----\n// RUN: cse\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_arrows_are_counted_between_the_rooms_of_a_package(checkout: Path) -> None:
    assert list(rooms.folders(rooms.imports_of(checkout))) == [rooms.Folder("text", 5, 2, 1)]


def test_a_circle_of_imports_is_found_also_inside_a_function(checkout: Path) -> None:
    circles = rooms.strongly_connected(rooms.imports_of(checkout))
    assert circles == [["dlc.text.ir.parser", "dlc.text.ir.printer"]]


def test_text_cases_and_lines_are_counted(checkout: Path) -> None:
    assert rooms.pass_cases(checkout) == 2
    assert rooms.lines_of(checkout / "dlc") == 5


def test_full_folders_and_long_files_are_named(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "MANY_MODULES", 2)
    monkeypatch.setattr(rooms, "MANY_LINES", 1)
    dlc = checkout / "dlc"
    (dlc / "text" / "ir" / "short.py").touch()
    assert rooms.full_folders(dlc) == [(3, dlc / "text" / "ir")]
    assert [path.name for _, path in rooms.long_files(dlc)] == ["lexer.py", "printer.py"]


def test_no_folder_has_more_modules_than_a_reader_takes_in() -> None:
    full = [each for tree in rooms.TREES for each in rooms.full_folders(rooms.ROOT / tree)]
    assert [folder for count, folder in full if count > 28] == []


def test_no_modules_of_the_package_import_each_other_in_a_circle() -> None:
    assert rooms.strongly_connected(rooms.imports_of(rooms.ROOT)) == []
