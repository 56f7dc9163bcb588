"""A workshop for the tests on a GPU, and files with what they found.

A machine may be lent for some minutes only: with `--seconds` a run stops after so many, and the next one
goes on where it stopped. What was found is written down meanwhile, too.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import cast

import pytest

from dlc.driver.compile.host_target import to_run_here
from dlc.driver.compile.settings import Settings
from dlc.errors import Unsupported
from tests.gpu import report
from tests.gpu.cases import Case
from tests.gpu.report import Found
from tests.gpu.workshop import Workshop

TESTS = "tests/gpu/test_on_a_gpu.py"
EVERY = 20.0
"""Seconds after which what was found is written down again."""


class Findings:
    """What was found so far, and until when tests are begun."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        seconds = cast("float | None", config.getoption("seconds", default=None))
        self.end = None if seconds is None else time.monotonic() + seconds
        before = [] if seconds is None else report.earlier(config.rootpath)
        self._found = {each.name: each for each in before if each.outcome != "skipped"}
        self._written = time.monotonic()
        self._is_new = False

    def has(self, node: str) -> bool:
        """Whether a run before has a test."""
        return node.startswith(TESTS) and node.partition("::")[2] in self._found

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what came of each test on a GPU."""
        told = report.when == "call" or report.outcome != "passed"
        if not told or not report.nodeid.startswith(TESTS):
            return
        found = Found.of(report)
        self._found[found.name] = found
        self._is_new |= found.outcome != "skipped"
        if time.monotonic() - self._written > EVERY:
            self.write()

    def write(self) -> None:
        """Write it down, if there was a GPU."""
        if self._is_new:
            report.write(self._root, list(self._found.values()))
        self._written = time.monotonic()


FINDINGS = pytest.StashKey[Findings]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seconds`, for machines that are lent for a while."""
    parser.addoption(
        "--seconds",
        type=float,
        help="begin no more GPU tests after so many seconds; the next run with it does those that are left",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let what is found be remembered, where several processes test by the one that hears of all."""
    findings = config.stash[FINDINGS] = Findings(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(findings)


@pytest.fixture(scope="session")
def workshop(request: pytest.FixtureRequest) -> Generator[Workshop]:
    """Compiles all that was chosen, from the first test on; there is none without a GPU."""
    try:
        target = to_run_here(Settings(target="cuda")).target
    except Unsupported as error:
        pytest.skip(error.diagnostics[0].message)
    with Workshop(target) as made:
        made.begin(chosen(request.session.items))
        yield made


def chosen(items: list[pytest.Item]) -> Iterator[Case]:
    """The cases of the tests that will run, in their order."""
    for item in items:
        if isinstance(item, pytest.Function) and "workshop" in item.fixturenames:
            yield cast(Case, item.callspec.params["case"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a run before has found."""
    findings = config.stash[FINDINGS]
    known = [item for item in items if findings.has(item.nodeid)]
    if known:
        config.hook.pytest_deselected(items=known)
        items[:] = [item for item in items if item not in known]


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Stop in time."""
    end = item.config.stash[FINDINGS].end
    if end is not None and time.monotonic() > end:
        item.session.shouldstop = "the seconds are over; the next run goes on from here"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write down what was found."""
    session.config.stash[FINDINGS].write()
