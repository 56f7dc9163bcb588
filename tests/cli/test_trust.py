"""IR below the graph may use any memory: what would run it refuses it, unless it is said to be trusted."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dlc as package
from tests.cli.conftest import Command
from tests.suites import every

BELOW = ("kernel", "plan", "loop")
MODEL = """\
dlc 1
module Net {
  param w: f32[3, 4] = normal(1.0)
  export fn f(x: f32[2, 3]) -> f32[2, 4] = exp(x @ w)
}
"""
TRUSTED = ("--trust-ir",)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what `foreign` makes is kept, for all of these tests."""
    return tmp_path_factory.mktemp("foreign")


@pytest.fixture
def foreign(dlc: Command, folder: Path, made: Path) -> Callable[[str], None]:
    """Makes `foreign.dlir` of a level, and `foreign.dlc` of that, once."""

    def make(stage: str) -> None:
        (folder / "net.dlm").write_text(MODEL)
        if not (made / stage).exists():
            shown = dlc("show", "net.dlm", "--stage", stage)
            (folder / "foreign.dlir").write_text(shown.out)
            options = ("--weights", "init:0", "-o", "foreign.dlc", *TRUSTED)
            done = dlc("compile", "foreign.dlir", *options)
            assert done.code == 0, done.err
            (made / stage).mkdir()
            for file in ("foreign.dlir", "foreign.dlc"):
                shutil.copy(folder / file, made / stage / file)
        for file in ("foreign.dlir", "foreign.dlc"):
            shutil.copy(made / stage / file, folder / file)

    return make


@pytest.mark.parametrize(
    ("command", "stage"),
    every(
        2,
        itertools.product(
            [
                "run foreign.dlir --weights init:0 --random-inputs 0",
                "run foreign.dlir --weights init:0 --random-inputs 0 --untrusted",
                "run foreign.dlir --weights init:0 --random-inputs 0 --verify-each",
                "run foreign.dlc --random-inputs 0 --untrusted",
                "run foreign.dlc --random-inputs 0 --weights init:1",
                "run foreign.dlc --random-inputs 0 -O 0",
                "compile foreign.dlir --weights init:0 -o made.dlc",
                "compile foreign.dlir --weights init:0 --from {stage} -o made.dlc",
                "compile foreign.dlc -o made.dlc",
                "bench foreign.dlir --weights init:0 --seconds 0",
                "bench foreign.dlc --seconds 0 --untrusted",
            ],
            BELOW,
        ),
    ),
)
def test_every_verb_that_would_run_it_refuses_it(
    dlc: Command, foreign: Callable[[str], None], folder: Path, stage: str, command: str
) -> None:
    foreign(stage)
    done = dlc(*command.format(stage=stage).split())
    assert (done.code, done.out) == (5, "")
    assert "error[D0616]" in done.err
    assert "--trust-ir, if you trust it as a program" in done.err
    assert not (folder / "made.dlc").exists()


@pytest.mark.parametrize("stage", BELOW)
@pytest.mark.parametrize("file", ["foreign.dlir", "foreign.dlc"])
def test_python_refuses_it_alike(
    foreign: Callable[[str], None], folder: Path, stage: str, file: str
) -> None:
    foreign(stage)
    weights = None if file.endswith(".dlc") else "init:0"
    with pytest.raises(package.ArtifactError, match="D0616") as caught:
        package.compile(folder / file, weights=weights)
    assert "trust_ir=True, if you trust it as a program" in str(caught.value)
    with pytest.raises(package.UsageError, match="D0905"):
        package.trainer(folder / "foreign.dlir")
    model = package.compile(folder / file, weights=weights, trust_ir=True)
    expected = package.compile(folder / "net.dlm", weights="init:0")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(model.f(x), expected.f(x))


@pytest.mark.parametrize("stage", BELOW)
def test_what_python_advises_for_an_untrusted_artifact_runs_nothing_of_it(
    foreign: Callable[[str], None], folder: Path, stage: str
) -> None:
    foreign(stage)
    seen = package.load(folder / "foreign.dlc", untrusted=True)
    with pytest.raises(package.CallError, match="D0811") as caught:
        seen.f(np.ones((2, 3), np.float32))
    assert "compile the verified graph inside it, dlc.compile(path)" in str(caught.value)
    with pytest.raises(package.ArtifactError, match="D0616"):
        package.compile(folder / "foreign.dlc")


def test_a_gradient_check_refuses_it(dlc: Command, foreign: Callable[[str], None]) -> None:
    for stage in BELOW:
        foreign(stage)
        done = dlc("gradcheck", "foreign.dlir", "--weights", "init:0", "--random-inputs", "0")
        assert (done.code == 0, done.out) == (False, ""), stage


@pytest.mark.parametrize(
    ("command", "stage"),
    every(
        2,
        itertools.product(
            [
                "check foreign.dlir",
                "inspect foreign.dlir",
                "inspect foreign.dlc",
                "opt foreign.dlir --passes cse --verify-each",
                "show foreign.dlir --stage asm",
                "memory foreign.dlir",
                "why foreign.dlir",
                "run foreign.dlir --weights init:0 --random-inputs 0 --interpret",
                "run foreign.dlir --weights init:0 --random-inputs 0 --trust-ir",
                "run foreign.dlc --random-inputs 0 -O 0 --trust-ir",
                "bench foreign.dlir --weights init:0 --seconds 0 --trust-ir",
            ],
            BELOW,
        ),
    ),
)
def test_what_runs_none_of_it_and_who_trusts_it_take_it(
    dlc: Command, foreign: Callable[[str], None], stage: str, command: str
) -> None:
    foreign(stage)
    done = dlc(*command.split())
    assert done.code == 0, done.err
    assert "D0616" not in done.err


def test_a_graph_needs_no_trust(dlc: Command, foreign: Callable[[str], None]) -> None:
    foreign("graph")
    for file in ("foreign.dlir", "foreign.dlc"):
        done = dlc("run", file, "--random-inputs", "0", "--weights", "init:0", "--untrusted")
        assert done.code == 0, done.err


def test_to_trust_and_not_to_trust_is_a_contradiction(dlc: Command) -> None:
    done = dlc("run", "rows.dlm", "--random-inputs", "0", "--untrusted", "--trust-ir")
    assert done.code == 2
    assert "--untrusted and --trust-ir contradict each other" in done.err
