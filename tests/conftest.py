"""What all tests share, and the text cases in tests/cases (see tests/cases/golden.py)."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Self

import pytest
from _pytest.doctest import DoctestModule

from dlc.codegen.llvm import background, target_machine
from dlc.driver.compile import cache, cost_table
from dlc.driver.report.cached import list_cache
from dlc.errors import DlcError
from dlc.runtime.cpu.features import LEVELS
from dlc.target import cpu
from tests.cases import golden, runner

DAYS = 7
"""For which LLVM's work is kept when no test needs it."""


@pytest.fixture
def avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this machine were of the level x86-64-v3, for figures that depend on the width of vectors."""
    monkeypatch.setattr(target_machine, "host_processor", lambda: "x86-64-v3")
    monkeypatch.setattr(cpu, "host_features", lambda: LEVELS["x86-64-v3"])


@pytest.fixture(scope="session", autouse=True)
def no_further_processes() -> Iterator[None]:
    """Compiling starts no processes beside this one: the tests have one for each processor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "MOST_PROCESSES", 0)
        yield


@pytest.fixture(scope="session", autouse=True)
def short_profiles() -> Iterator[None]:
    """A profile takes the fewest rounds, not 1.5 seconds: tests do not look at its times."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("calling", "gpu", "hetero"):
            patch.setattr(f"dlc.runtime.{kind}.profiled.ENOUGH_SECONDS", 0.02)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update", action="store_true", help="write what the text cases give into their files"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("update") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--update writes files: run it without -n")
    config.pluginmanager.register(Examples())
    keep_bytecode()
    gc.disable()  # until all tests are known: what is collected stays
    if not hasattr(config, "workerinput"):
        share_cache(config.rootpath)
        # There is a process of tests for each processor: threads of NumPy would only wait for one.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


class Examples:
    """Looks for examples in the docstrings of those files alone that have one, also below `dlc`.

    Elsewhere pytest imports every module and searches all its docstrings, in each process of the tests.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        found = yield
        return [
            each
            for each in found
            if not isinstance(each, DoctestModule) or b">>> " in file_path.read_bytes()
        ]


def share_cache(root: Path) -> None:
    """Give all processes of the tests one cache, beside pytest's own.

    LLVM's work is kept from run to run, a week long: its text and its version tell all of it. Programs are
    compiled anew in each run, once for all tests, and nothing that was tuned before decides anything.
    """
    folder = root / ".pytest_cache" / "objects"
    os.environ[cache.VARIABLE] = str(folder)
    for entry in list_cache():
        if entry.kind != "kernels" or entry.days > DAYS:
            cache.DiskCache(folder).drop(entry.key)
    (folder / cost_table.FILE).unlink(missing_ok=True)


def keep_bytecode() -> None:
    """Keep the bytecode of modules, as Python does by itself, for the hundreds of processes of the tests.

    Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each would compile all of dlc anew, which
    takes longer than what most of them do.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_finish() -> None:
    """Let the collector of garbage look less often, and never at the tests, half a million objects."""
    gc.freeze()
    gc.set_threshold(300_000)
    gc.enable()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CaseFile | None:
    if file_path.suffix == ".dlir" and "cases" in file_path.parts:
        return CaseFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]
    return None


class CaseFile(pytest.File):
    def collect(self) -> Iterator[CaseItem]:
        try:
            cases = golden.split(self.path.read_text(encoding="utf-8"))
        except golden.BadCase as error:
            raise self.CollectError(f"{self.path}: {error}") from error
        for index, case in enumerate(cases):
            yield CaseItem.from_case(self, index, case)


class CaseItem(pytest.Item):
    index: int
    case: golden.Case

    @classmethod
    def from_case(cls, parent: CaseFile, index: int, case: golden.Case) -> Self:
        item: Self = cls.from_parent(parent, name=case.title)  # pyright: ignore[reportUnknownMemberType]
        item.index, item.case = index, case
        return item

    def runtest(self) -> None:
        try:
            if self.config.getoption("update") and not self.case.errors:
                self._update()
            elif failure := golden.check(self.case, runner.run_case):
                self._fail(failure)
        except DlcError as error:
            self._fail(error.render())

    def _update(self) -> None:
        output = runner.run_case(self.case)
        file = self.path.read_text(encoding="utf-8")
        self.path.write_text(golden.with_output(file, self.index, output), encoding="utf-8")

    def _fail(self, reason: str) -> None:
        pytest.fail(f"{self.path}:{self.case.line}: {self.name}\n{reason}", pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.line - 1, self.name
