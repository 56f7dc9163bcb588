"""A workshop for the tests on a GPU, and files with what they found."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import cast

import pytest

from dlc.driver.here import to_run_here
from dlc.driver.settings import Settings
from dlc.errors import Unsupported
from tests.gpu import report
from tests.gpu.cases import Case
from tests.gpu.workshop import Workshop

TESTS = "tests/gpu/test_on_a_gpu.py"
reports: list[pytest.TestReport] = []


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


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what came of each test on a GPU."""
    told = report.when == "call" or report.outcome != "passed"
    if told and report.nodeid.startswith(TESTS):
        reports.append(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write it down, if there was a GPU."""
    if any(found.outcome != "skipped" for found in reports):
        report.write(session.config.rootpath, reports)
