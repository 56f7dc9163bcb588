"""What the README says of the repository beyond its blocks, which tests/test_documents.py runs."""

from __future__ import annotations

import re
import tomllib

from tests import documents
from tests.documents import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_models_of_the_readme_are_those_of_the_examples() -> None:
    shown = [block.text for block in documents.blocks("README.md") if block.kind == "dlm"]
    files = [(ROOT / f"examples/{name}.dlm").read_text() for name in ("digits", "poly")]
    assert shown == files
    assert len(files[0].rstrip().split("\n")) <= 10


def test_every_stage_of_the_way_is_shown() -> None:
    stages = re.findall(r"^\$ dlc show examples/poly.dlm .*--stage (\w+)", README, flags=re.M)
    assert stages == ["graph", "kernel", "plan", "loop", "llvm", "asm", "ptx"]


def test_every_folder_of_the_package_is_on_the_map() -> None:
    mapped = set(re.findall(r"\]\((dlc/\w+)\)", README))
    folders = {f"dlc/{path.parent.name}" for path in (ROOT / "dlc").glob("*/__init__.py")}
    assert mapped == folders


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^    make ([\w-]+)", README, flags=re.M):
        assert re.search(rf"^{target}:.*##", makefile, flags=re.M), target


def test_the_readme_is_what_a_package_index_shows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["readme"] == "README.md"
