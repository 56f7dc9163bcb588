"""Each request of an operation to the system fails, as SQLite tests it: what is promised then holds.

An operation that fails raises a DlcError, leaves every file as it was or whole, and no temporary one; the
next attempt works. `docs/safety.md` says so, with the number of requests of each operation.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from dlc.errors import DlcError
from dlc.runtime.system.pages import Pages
from tests.faults.injection import ERRORS, Faults, failing
from tests.faults.operations import OPERATIONS, Operation

SHARE = 5
"""Of the requests of an operation, so many fail in `make test`; all do in `make test-all`."""


class Sweep:
    """One operation, again and again from the same files."""

    def __init__(self, operation: Operation, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.operation = operation
        self.template = home / "template"
        self.folder = home / "folder"
        self.patch = patch
        self.template.mkdir()
        self._use_cache(self.template)
        operation.prepare(self.template)
        self.before = contents(self.template)
        self.after: dict[str, bytes] = {}
        self.run(None)  # what is imported or made once in a process
        self.requests = self.run(None).made
        """What the operation asks for, by kind."""

    def _use_cache(self, folder: Path) -> None:
        self.patch.setenv(
            "DLC_CACHE", str(folder / self.operation.cache) if self.operation.cache else ""
        )

    def run(self, at: int | None, *, onwards: bool = False) -> Faults:
        """The operation with a fault, and again without: every promise is checked."""
        operation, folder = self.operation, self.folder
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.template, folder)
        self.patch.chdir(folder)
        self._use_cache(folder)
        state = operation.begin(folder)
        result: object = None
        failure: DlcError | None = None
        with failing(at, onwards=onwards) as faults:
            try:
                result = operation.run(state, folder)
            except DlcError as error:
                failure = error
        if failure is None:
            operation.check(result, folder)
        else:
            assert at is not None
            self._check_files(folder)
            operation.check(operation.run(state, folder), folder)
        if at is None:
            self.after = contents(folder)
        self._check_files(folder)
        return faults

    def _check_files(self, folder: Path) -> None:
        """Every file is as it was, or where it is replaced the whole new one, and there are no others."""
        found = contents(folder)
        written = set(self.operation.writes)
        for name in self.before.keys() | found.keys():
            if self.operation.cache and Path(name).parts[0] == self.operation.cache:
                assert not name.endswith(".tmp"), name
            elif name in written:
                assert found.get(name) in (self.before.get(name), self.after.get(name)), name
            else:
                assert found.get(name) == self.before.get(name), name


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def spread(total: int) -> Iterable[int]:
    """Some of the numbers from 1 to a total, the first and the last among them."""
    if total <= SHARE:
        return range(1, total + 1)
    return sorted({1 + k * (total - 1) // (SHARE - 1) for k in range(SHARE)})


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_survives_a_failing_request(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(OPERATIONS[name], tmp_path, monkeypatch)
    for at in spread(sweep.requests.total()):
        sweep.run(at)


@pytest.mark.long
@pytest.mark.parametrize("onwards", [False, True], ids=["once", "onwards"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_survives_each_failing_request(
    name: str, onwards: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only that request, or it and all that follow."""
    sweep = Sweep(OPERATIONS[name], tmp_path, monkeypatch)
    for at in count(1):
        if sweep.run(at, onwards=onwards).failed is None:
            break
    print(f"{name}: {sweep.requests.total()} requests, {dict(sweep.requests)}")


def test_requests_of_every_kind_fail_as_the_system_lets_them_fail(tmp_path: Path) -> None:
    def requests() -> None:
        (tmp_path / "a").write_bytes(b"a")
        (tmp_path / "a").read_bytes()
        (tmp_path / "a").replace(tmp_path / "b")
        (tmp_path / "c").mkdir()
        (tmp_path / "c").rmdir()
        np.zeros(3)
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
        Pages(8).make_executable()

    with failing() as faults:
        requests()
    assert faults.made.keys() == {*ERRORS} - {"fsync"}
    failed: set[str | None] = set()
    for at in range(1, faults.made.total() + 1):
        with failing(at) as faults, pytest.raises((OSError, MemoryError, RuntimeError)):
            requests()
        failed.add(faults.failed)
    assert failed == {*ERRORS} - {"fsync"}
    requests()


def test_the_page_about_safety_counts_the_requests_of_every_operation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "safety.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z ]+) \| [0-9]+ \|", page, re.MULTILINE)
    assert rows == list(OPERATIONS)
