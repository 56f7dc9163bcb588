"""What must hold of the repository as a whole: packaging, links, documentation of every error."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from dlc.errors.catalog import PAGES, Page

ROOT = Path(__file__).parents[1]
LINKS = ("dialects", "runtime", "cli")
DEFERRED = {
    "dlc/__init__.py": "its names are imported on first use",
    "dlc/cli/__init__.py": "the plain run of an artifact does without the command line's library",
    "dlc/driver/source/open.py": "an importer is loaded when a file of its kind is opened",
    "dlc/driver/source/import_request.py": "an importer is loaded when a file of its kind is opened",
    "dlc/driver/torch/backend.py": "PyTorch looks it up where the compiler may not be installed",
    "dlc/runtime/machines.py": "a model without code for a GPU does without the modules for GPUs",
}
"""Files whose functions import our own modules, with the reason."""

GENERATED = re.compile(r"\.git|\.venv.*|\..*_cache|__pycache__|.*\.egg-info|build|dist|out")

INSIDE = re.compile(r"^(?!from|import).*\b(?:from|import)\s+dlc\b", re.MULTILINE)
"""A line with an import of ours that does not begin the line."""

SUBJECTS = {
    "syntax": "D01",
    "names": "D02",
    "types": "D03",
    "control": "D04",
    "weights": "D05",
    "artifact": "D06",
    "unsupported": "D07",
    "call": "D08",
    "usage": "D09",
}

BUILD = """
import sys
from setuptools import build_meta
folder = sys.argv[1]
build_meta.build_sdist(folder)
build_meta.build_wheel(folder)
"""


def files(folder: Path) -> Iterator[Path]:
    """Every file below a folder that is not generated; links are not followed."""
    for path in folder.iterdir():
        if path.is_symlink() or GENERATED.fullmatch(path.name):
            continue
        if path.is_dir():
            yield from files(path)
        else:
            yield path


def sources() -> Iterator[tuple[Path, str]]:
    """Every Python file of the package with its text."""
    for path in files(ROOT / "dlc"):
        if path.suffix == ".py":
            yield path, path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    """The names in the source archive and in the wheel, both built from a copy of the tree."""
    folder = tmp_path_factory.mktemp("build")
    tree = folder / "tree"
    shutil.copytree(
        ROOT,
        tree,
        symlinks=True,
        ignore=lambda _, names: [name for name in names if GENERATED.fullmatch(name)],
    )
    command = [sys.executable, "-c", BUILD, str(folder)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [archive] = folder.glob("*.tar.gz")
    [wheel] = folder.glob("*.whl")
    with tarfile.open(archive) as opened, zipfile.ZipFile(wheel) as unzipped:
        inside = [member.name.partition("/")[2] for member in opened if not member.isdir()]
        return inside, unzipped.namelist()


def package_files() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in files(ROOT / "dlc"))


@pytest.mark.parametrize("name", LINKS)
def test_the_link_leads_into_the_package(name: str) -> None:
    link = ROOT / name
    # A checkout without links has a file with the target's name instead.
    target = link.readlink().as_posix() if link.is_symlink() else link.read_text(encoding="utf-8")
    assert target == f"dlc/{name}"
    assert (ROOT / "dlc" / name / "__init__.py").is_file()


def test_the_wheel_holds_the_package_and_nothing_else(
    distributions: tuple[list[str], list[str]],
) -> None:
    _, wheel = distributions
    assert sorted(name for name in wheel if ".dist-info/" not in name) == package_files()
    [metadata] = {name.split("/")[0] for name in wheel if ".dist-info/" in name}
    assert f"{metadata}/licenses/LICENSE" in wheel


def test_the_source_archive_holds_each_file_once(
    distributions: tuple[list[str], list[str]],
) -> None:
    archive, _ = distributions
    assert len(archive) == len(set(archive))
    assert sorted(name for name in archive if name.startswith("dlc/")) == package_files()
    assert not {name.split("/")[0] for name in archive} & {"tests", *LINKS}


def test_every_package_says_what_it_is() -> None:
    silent = [
        path
        for path, text in sources()
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(text))
    ]
    assert silent == []


def test_our_own_packages_are_imported_at_the_top_of_a_file() -> None:
    hidden: list[str] = []
    for path, text in sources():
        if path.relative_to(ROOT).as_posix() in DEFERRED:
            continue
        if INSIDE.search(text):  # most files need not be parsed
            hidden += [f"{path}:{line}" for line in imports_in_functions(ast.parse(text))]
    assert hidden == []


def test_our_own_modules_are_imported_by_statements() -> None:
    """A string is for optional packages alone: tools follow only import statements."""
    named = [
        f"{path}: {call[0]}"
        for path, text in sources()
        if path.is_relative_to(ROOT / "dlc")
        for call in re.finditer(r"import_module\(f?\"dlc\b", text)
    ]
    assert named == []


def test_every_folder_of_the_package_has_its_tests_at_the_same_path() -> None:
    """Those of `dlc/a/b` are in `tests/a/b`, or in `tests/a/test_b.py` where one file has them all."""
    homeless: list[str] = []
    for folder in {path.parent for path, _ in sources() if path.name != "__init__.py"}:
        home = ROOT / "tests" / folder.relative_to(ROOT / "dlc")
        if not any(home.glob("test_*.py")) and not home.with_name(f"test_{home.name}.py").exists():
            homeless.append(home.relative_to(ROOT).as_posix())
    assert sorted(homeless) == []


def imports_in_functions(tree: ast.Module) -> Iterator[int]:
    """The lines where a function imports something of dlc."""
    for outer in ast.walk(tree):
        if not isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for node in ast.walk(outer):
            match node:
                case ast.Import(names=names, lineno=line):
                    modules = [alias.name for alias in names]
                case ast.ImportFrom(module=str(module), lineno=line):
                    modules = [module]
                case _:
                    continue
            if any(module.split(".")[0] == "dlc" for module in modules):
                yield line


def test_an_import_in_a_function_is_noticed() -> None:
    text = "from dlc import ir\ndef f():\n    if f:\n        import dlc.text\n"
    assert INSIDE.search(text) and not INSIDE.search(text[:30])
    assert list(imports_in_functions(ast.parse(text))) == [4]


def test_no_file_names_a_folder_of_one_machine() -> None:
    folder = re.compile(r"(?<![\w./])/(?:work|root|home|Users)/")
    found: list[str] = []
    for path in files(ROOT):
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except UnicodeDecodeError:
            continue  # not a text
        found += [f"{path}:{n}: {line}" for n, line in enumerate(lines, 1) if folder.search(line)]
    assert found == []


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_error_page_has_its_subjects_code_a_title_and_a_reason(subject: str) -> None:
    pages: dict[str, Page] = import_module(f"dlc.errors.catalog.{subject}").PAGES
    for code, page in pages.items():
        assert re.fullmatch(rf"{SUBJECTS[subject]}\d\d", code)
        assert page.title, code
        assert page.why, code
        assert PAGES[code] is page


def test_every_file_of_error_pages_has_its_place() -> None:
    folder = ROOT / "dlc" / "errors" / "catalog"
    assert {path.stem for path in files(folder)} == {*SUBJECTS, "__init__", "page"}


def test_every_error_code_has_a_page() -> None:
    catalog = ROOT / "dlc" / "errors" / "catalog"
    used = {
        code
        for path, text in sources()
        if catalog not in path.parents
        for code in re.findall(r"\"(D\d{4})\"", text)
    }
    assert sorted(used - PAGES.keys()) == []
