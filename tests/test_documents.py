"""The pages of the repository are true: what they show runs, and prints what they say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from dlc.cli import main
from dlc.driver.compile.pipelines import PIPELINE
from dlc.frontend.elaborate import elaborate
from dlc.ir.passes import PASSES
from tests import documents
from tests.documents import ROOT, Block
from tests.suites import together

PAGES = (
    "README.md",
    "docs/adding.md",
    "docs/architecture.md",
    "docs/debugging.md",
    "docs/gpu.md",
    "docs/gpu_kernels.md",
    "docs/memory.md",
    "docs/profiling.md",
    "docs/python.md",
    "docs/target.md",
    "docs/from-pytorch.md",
    "docs/recipes.md",
    "docs/training.md",
    "docs/tutorial.md",
)
"""Those whose every block runs; the references have tests of their own."""

TRAINS = ("docs/recipes.md", "docs/training.md", "docs/tutorial.md")
"""Those whose programs train one model after the other."""
SEEN = ("docs/from-pytorch.md", "docs/gpu_kernels.md", "docs/memory.md", "docs/profiling.md")
"""Those whose programs begin a process for little that the commands on the pages do not show."""
LONG = (
    *("docs/tutorial.md", "docs/gpu.md", "docs/recipes.md"),
    *("docs/debugging.md", "docs/memory.md", "docs/training.md"),
)
"""Those whose commands take long."""

LINKED = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.md")),
)
BLOCKS = [block for page in PAGES for block in documents.blocks(page)]


def of_kind(kind: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind == kind]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: with the examples, as in a clone."""
    # A copy: a model's data may not lie behind a symbolic link.
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_kind_that_is_tested(page: str) -> None:
    found = [block.kind for block in documents.blocks(page)]
    assert found
    assert set(found) <= {"dlm", "console", "python", "text"}
    assert all(found[k - 1] == "python" for k, kind in enumerate(found) if kind == "text")


@pytest.mark.parametrize("block", of_kind("dlm"), ids=str)
def test_a_model_text_on_a_page_is_right(block: Block, checkout: Path) -> None:
    """Beside the texts of the page that have a file."""
    for other in documents.blocks(block.page):
        if other.kind == "dlm" and other.title:
            (checkout / other.title).write_text(other.text, encoding="utf-8")
    (checkout / "page.dlm").write_text(block.text, encoding="utf-8")
    assert not elaborate("page.dlm").warnings


@pytest.mark.usefixtures("avx2")
def test_the_command_for_every_question_runs(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those in the table that the page about debugging begins with, if the page does not run them below."""
    page = (checkout / "docs/debugging.md").read_text(encoding="utf-8")
    table = page.partition("| question | command |")[2].partition("\n\n")[0]
    commands = [shlex.split(command) for command in re.findall(r"`dlc ([^`]+)`", table)]
    assert len(commands) > 12
    blocks = documents.blocks("docs/debugging.md")
    below = [
        each for block in blocks if block.kind == "console" for each in documents.commands(block)
    ]
    run = [sorted(command.words[1:]) for command in below]
    for command in [each for each in commands if sorted(each) not in run]:
        code = main(command)
        out, err = capsys.readouterr()
        assert code == 0, f"{command}\n{err}"
        assert out, command


@pytest.mark.usefixtures("avx2")
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.long if page in LONG else ()) for page in PAGES]
)
def test_commands_on_a_page_print_what_it_says(
    page: str, checkout: Path, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    changes: list[documents.Change] = []
    for block in documents.blocks(page):
        if block.kind == "dlm" and block.title:
            (checkout / block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "console":
            for command in documents.commands(block):
                assert command.words[0] == "dlc", block
                code = main(command.words[1:])
                out, err = capsys.readouterr()
                assert code == 0, f"{block}: {err}"
                new = documents.refreshed(command.prints, out) if out else ""
                changes.append(documents.Change(command.start, command.prints, new))
                is_told = bool(command.prints) and pytestconfig.getoption("update")
                assert new == command.prints or is_told, f"{block}: {command.words}\n{out}"
    if pytestconfig.getoption("update"):
        documents.replace_in(page, changes)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.long if page in (*TRAINS, *SEEN) else ())
        for page in PAGES
        if documents.programs(documents.blocks(page))
    ],
)
def test_programs_on_a_page_print_what_it_says(
    page: str, checkout: Path, pytestconfig: pytest.Config
) -> None:
    """In a process of their own: they may add to dlc what other tests must not see."""
    found = documents.blocks(page)
    command = [sys.executable, "-W", "error", "-c", documents.programs(found)]
    environment = {"PYTHONPATH": str(ROOT), "DLC_CACHE": os.environ["DLC_CACHE"]}
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    changes: list[documents.Change] = []
    for block, output in documents.printed(found, done.stdout):
        new = documents.refreshed(block.text, output)
        changes.append(documents.Change(block.start, block.text, new))
        assert new == block.text or pytestconfig.getoption("update"), f"{block}\n{output}"
    if pytestconfig.getoption("update"):
        documents.replace_in(page, changes)


@together("page", [*LINKED, "CHANGELOG.md"])
def test_links_on_a_page_lead_somewhere(page: str) -> None:
    for link in documents.links(page):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in documents.anchors(target), link


@cache
def sources() -> list[str]:
    """All modules of the repository, from its root."""
    return [
        path.relative_to(ROOT).as_posix()
        for folder in ("dlc", "tests", "benchmarks", "examples", "docs", "supply_chain")
        for path in (ROOT / folder).rglob("*.py")
    ]


@together("page", LINKED)
def test_files_named_on_a_page_exist(page: str) -> None:
    """`dlc/ir/core.py` from the root of the repository; `core.py` or `ir/core.py` by its end."""
    for name in re.findall(r"`([\w/]+\.py|dlc/[\w/]+|tests/[\w/]+)`", documents.prose(page)):
        is_there = (ROOT / name).exists() or any(path.endswith(f"/{name}") for path in sources())
        assert is_there or name in NO_FILES, name


NO_FILES = ("utils.py",)
"""Named on a page because there is none."""


def test_the_glossary_has_every_pass() -> None:
    assert PIPELINE, "the modules that define the passes are loaded"
    rows = re.findall(r"^\| ([^|]*) \|", documents.prose("docs/glossary.md"), re.M)
    terms = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert terms == {
        name for name, each in PASSES.items() if each.function.__module__[:4] == "dlc."
    }


@pytest.mark.parametrize(
    ("said", "found", "new"),
    [
        ("a 1\n...\n", "a 1\nb\n", "a 1\n...\n"),
        ("loss 0.5...\n", "loss 0.51\n", "loss 0.5...\n"),
        ("old\n", "new\nlines\n", "new\nlines\n"),
        ("...\nx = 1\n...\nz = 1\n...\n", "w\nx = 2\ny\nz = 2\nv\n", "...\nx = 2\n...\nz = 2\n..."),
    ],
)  # fmt: skip
def test_outputs_on_a_page_are_brought_up_to_date(said: str, found: str, new: str) -> None:
    assert documents.refreshed(said, found).rstrip() == new.rstrip()
    assert documents.agrees(found, new)


PAGE = """\
1
```console
$ dlc \\
  one
1
$ dlc two
$ dlc three
1
```
```python
print(1)
```
```text
```
```text
1
```
"""


def test_an_output_is_put_where_it_belongs(tmp_path: Path) -> None:
    """Also one that was empty, and one whose text stands elsewhere on the page too."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    console, _, empty, full = documents.blocks(str(page))
    one, two, three = documents.commands(console)
    assert [one.words, two.words, three.words] == [
        ("dlc", name) for name in ("one", "two", "three")
    ]
    assert [one.prints, two.prints, three.prints] == ["1\n", "", "1\n"]
    changes = [
        documents.Change(two.start, two.prints, "2\n"),
        documents.Change(three.start, three.prints, "3\n"),
        documents.Change(empty.start, empty.text, documents.refreshed(empty.text, "4")),
        documents.Change(full.start, full.text, documents.refreshed(full.text, "5")),
    ]
    documents.replace_in(str(page), changes)
    wanted = PAGE.replace("two\n", "two\n2\n").replace("three\n1", "three\n3")
    assert page.read_text() == wanted.replace("text\n```", "text\n4\n```").replace(
        "text\n1", "text\n5"
    )
