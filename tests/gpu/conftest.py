"""What tests on a GPU are given, and files with what they found.

A machine may be lent for some minutes only: with `--seconds` a run stops after so many, and the next one
goes on where it stopped: with the tests that were not run yet, then with those that failed. What was found
is written down meanwhile, too. With `--compile-for` nothing runs on a GPU, and none is needed: the tests
are compiled for the GPU that it names, and assembled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from dlc.driver.compile.host_target import to_run_here
from dlc.driver.compile.settings import Settings
from dlc.errors import Unsupported
from dlc.runtime.artifact.contents import Artifact
from dlc.target.gpu import GPUS
from tests.gpu import report
from tests.gpu.cases import Case
from tests.gpu.report import Found
from tests.gpu.worker import CaseFailed, Worker
from tests.gpu.workshop import PATIENCE, NotCompiled, Workshop

TESTS = "tests/gpu/test_on_a_gpu.py"
EVERY = 20.0
"""Seconds after which what was found is written down again."""
OVER = "the seconds are over; the next run goes on from here"

Check: TypeAlias = Callable[[Case], None]


class Findings:
    """What was found so far, and until when tests are begun."""

    def __init__(self, config: pytest.Config) -> None:
        out = cast("str | None", config.getoption("out", default=None))
        self.compile_for = cast("str | None", config.getoption("compile_for", default=None))
        own = report.OUT / (self.compile_for or "")
        self._folders = [config.rootpath / folder for folder in (own, out) if folder]
        seconds = cast("float | None", config.getoption("seconds", default=None))
        self.end = None if seconds is None else time.monotonic() + seconds
        before = [] if seconds is None else report.earlier(self._folders[0], self.compile_for)
        self._found = {each.name: each for each in before if each.outcome != "skipped"}
        self._written = time.monotonic()
        self._is_new = False

    def before(self, node: str) -> str | None:
        """What a run before has found of a test, if it has."""
        found = self._found.get(node.partition("::")[2]) if node.startswith(TESTS) else None
        return None if found is None else found.outcome

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return float("inf") if self.end is None else max(0.0, self.end - time.monotonic())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what came of each test on a GPU."""
        told = report.when == "call" or report.outcome != "passed"
        if not told or not report.nodeid.startswith(TESTS):
            return
        found = Found.of(report)
        if found.outcome == "skipped" and found.name in self._found:
            return  # it was tried again, and there was no time
        self._found[found.name] = found
        self._is_new |= found.outcome != "skipped"
        if time.monotonic() - self._written > EVERY:
            self.write()

    def write(self) -> None:
        """Write it down, if there was a GPU."""
        for folder in self._folders if self._is_new else ():
            report.write(folder, list(self._found.values()), self.compile_for)
        self._written = time.monotonic()


FINDINGS = pytest.StashKey[Findings]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seconds` and `--out` for machines that are lent for a while, `--compile-for` for those before."""
    parser.addoption(
        "--seconds",
        type=float,
        help="stop the GPU tests after so many seconds; the next run with it does those that are left",
    )
    parser.addoption(
        "--compile-for",
        choices=tuple(GPUS),
        help="only compile the GPU tests, for this GPU, and assemble them by ptxas",
    )
    parser.addoption("--out", help=f"a folder for what the GPU tests find, besides {report.OUT}")


def pytest_configure(config: pytest.Config) -> None:
    """Let what is found be remembered, where several processes test by the one that hears of all."""
    findings = config.stash[FINDINGS] = Findings(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(findings)


@pytest.fixture(scope="session")
def workshop(request: pytest.FixtureRequest) -> Generator[Workshop]:
    """Compiles all that was chosen, from the first test on; there is none without a GPU to compile for."""
    compile_for = request.config.stash[FINDINGS].compile_for
    try:
        wanted = Settings(target="cuda" if compile_for is None else f"cuda:{compile_for}")
        target = (to_run_here(wanted) if compile_for is None else wanted).target
    except Unsupported as error:
        pytest.skip(error.diagnostics[0].message)
    with Workshop(target) as made:
        made.begin(chosen(request.session.items))
        yield made


@pytest.fixture(scope="session")
def worker(workshop: Workshop) -> Generator[Worker]:
    """A process that runs what was compiled."""
    with Worker() as made:
        yield made


@pytest.fixture
def check(workshop: Workshop, request: pytest.FixtureRequest) -> Check:
    """Compiles a case and checks it, in other processes; or only asks whether it was assembled."""
    findings = request.config.stash[FINDINGS]

    def checked(case: Case) -> None:
        try:
            artifacts = workshop.artifacts(case, min(PATIENCE, findings.left))
            if findings.compile_for is not None:
                check_machine_code(artifacts)
                return
            worker: Worker = request.getfixturevalue("worker")
            worker.check(case, artifacts, min(case.seconds, findings.left))
        except (NotCompiled, CaseFailed) as error:
            if not findings.left:
                pytest.skip(OVER)
            pytest.fail(f"{error}", pytrace=False)

    return checked


def check_machine_code(artifacts: Sequence[Path]) -> None:
    """Check that the first of these has machine code for a GPU, and delete them. Raises CaseFailed."""
    (target,) = Artifact.from_bytes(artifacts[0].read_bytes()).manifest.targets
    for file in artifacts:
        file.unlink()
    if target.gpu is None or not target.gpu.cubin:
        raise CaseFailed(
            f"there is no ptxas that knows {target.name}: `dlc doctor` names what is found"
        )


def chosen(items: list[pytest.Item]) -> Iterator[Case]:
    """The cases of the tests that will run, in their order."""
    for item in items:
        if isinstance(item, pytest.Function) and "workshop" in item.fixturenames:
            yield cast(Case, item.callspec.params["case"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed in a run before; what has failed comes last."""
    before = config.stash[FINDINGS].before
    passed = [item for item in items if before(item.nodeid) == "passed"]
    if passed:
        config.hook.pytest_deselected(items=passed)
    items[:] = sorted(
        [item for item in items if item not in passed],
        key=lambda item: before(item.nodeid) == "failed",
    )


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Stop in time."""
    if not item.config.stash[FINDINGS].left:
        item.session.shouldstop = OVER


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write down what was found."""
    session.config.stash[FINDINGS].write()
