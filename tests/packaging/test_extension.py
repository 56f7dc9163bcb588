"""An operation from a package of its own: installed, compiled, differentiated, shown at every level."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.packaging.conftest import ROOT, pip_install, run

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "dlc-softsign"
version = "1.2"

[project.entry-points."dlc.ops"]
softsign = "dlc_softsign"
"""

MODULE = '''\
"""Softsign as an operation of its own."""

from dlc.dialects import array
from dlc.dialects.array.arithmetic import plus
from dlc.dialects.decomposed import Decomposed
from dlc.frontend.builtins.registry import builtin
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum
from dlc.ir.core import Builder
from dlc.ir.core import Value
from dlc.ir.define import op, operand
from dlc.ir.types import Type


@op("extra.softsign")
class Softsign(Decomposed):
    """`x / (1 + |x|)`: like tanh, but slower to reach 1."""

    source: Value = operand()

    def infer(self) -> Type:
        return self.source.type

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        x = self.source
        return (emit(array.Divide(x, plus(emit, emit(array.Abs(x)), 1))),)


@builtin("soft_sign(x: float)", "between layers", "Slow tanh.", "soft_sign([0, 1])", "[0.0, 0.5]")
def _soft_sign(at: Trace, x: Value) -> Datum:
    return at(Softsign(x))
'''

MODEL = """\
dlc 1
export fn f(x: f32[3] = [-1, 0, 3]) -> f32[3] = soft_sign(x)
export fn df(x: f32[3] = [-1, 0, 3]) -> f32[3] = vjp(soft_sign, wrt=x)(x, dy=ones([3]))
"""

MARKS = {
    "text": "soft_sign(x)",
    "graph": '"extra.softsign"',
    "kernel": "scalar.divide",
    "plan": "mem.program",
    "loop": "loop.func",
    "llvm": "fdiv",
    "asm": "divps",
}
"""What each level shows of it."""
END = "<<< the end of a command >>>"
IN_TURN = f"""
import sys
from dlc.cli import main
for number, command in enumerate(sys.argv[1:]):
    print(end={END!r} if number else "", flush=True)
    assert main(command.split()) == 0
"""
"""All commands in one process."""

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed, in a folder with a model of it."""
    folder = tmp_path_factory.mktemp("extension")
    (folder / "package").mkdir()
    (folder / "package" / "pyproject.toml").write_text(PROJECT)
    (folder / "package" / "dlc_softsign.py").write_text(MODULE)
    pip_install("--target", str(folder / "site"), str(folder / "package"), cwd=folder)
    (folder / "model.dlm").write_text(MODEL)
    return folder / "site"


def python(site: Path, *arguments: str) -> CompletedProcess[str]:
    """A Python process that has the package and dlc, beside the model."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
        "DLC_CACHE": str(site.parent / "cache"),
    }
    return run([sys.executable, *arguments], site.parent, env)


def printed(site: Path, *commands: str) -> list[str]:
    """What commands of dlc print where the package is installed."""
    done = python(site, "-c", IN_TURN, *commands)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(END)


@pytest.fixture(scope="module")
def dlc(site: Path) -> Command:
    """The command line where the package is installed beside dlc."""
    return lambda *arguments: python(site, "-m", "dlc", *arguments)


def test_it_compiles_and_has_a_derivative_compiled_and_evaluated(site: Path) -> None:
    derivative = "run model.dlm --entry df"
    value, *derivatives = printed(
        site, "run model.dlm --entry f", derivative, f"{derivative} --interpret"
    )
    assert value == "f: f32[3]\n[-0.5   0.    0.75]\n"
    assert derivatives == ["df: f32[3]\n[0.25   1.     0.0625]\n"] * 2


@pytest.mark.long
def test_it_is_shown_at_every_level(site: Path) -> None:
    texts = printed(site, *[f"show model.dlm --stage {stage} --entry f" for stage in MARKS])
    for (stage, mark), text in zip(MARKS.items(), texts, strict=True):
        assert mark in text, stage


@pytest.mark.long
def test_it_is_listed_and_documented_like_any_other(site: Path) -> None:
    ops, page, doctor = printed(site, "ops soft_sign", "doc extra.softsign", "doctor")
    assert "soft_sign(x: float)" in ops
    assert "x / (1 + |x|)" in page
    assert "softsign (dlc-softsign 1.2)" in doctor


@pytest.mark.long
def test_its_artifact_runs_without_it(dlc: Command, tmp_path: Path) -> None:
    assert dlc("compile", "model.dlm", "-o", str(tmp_path / "model.dlc")).returncode == 0
    command = [sys.executable, "-m", "dlc", "run", "model.dlc", "--entry", "f"]
    done = run(command, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout == "f: f32[3]\n[-0.5   0.    0.75]\n"


def test_a_package_that_fails_is_named(dlc: Command, tmp_path: Path) -> None:
    (tmp_path / "dlc_broken-3.dist-info").mkdir()
    (tmp_path / "dlc_broken-3.dist-info" / "METADATA").write_text("Name: dlc-broken\nVersion: 3\n")
    points = tmp_path / "dlc_broken-3.dist-info" / "entry_points.txt"
    points.write_text("[dlc.ops]\nbroken = dlc_broken\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = run([sys.executable, "-m", "dlc", "ops"], tmp_path, env)
    assert done.returncode == 2
    assert "error[D0922]: the operations of dlc-broken 3 cannot be loaded" in done.stderr
    assert "uninstall dlc-broken" in done.stderr
