"""Models that were changed at random, from the file to its loops: nothing but diagnostics, and soon.

IR may begin at its loops: it is compiled, and what is made of it passes the checks of a loader.

Artifacts are treated likewise in tests/runtime/artifact/test_manifest_checks.py, weights in
tests/runtime/weights/test_files.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from dlc.driver.compile.compile import compile_model, lower
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.driver.source.source_model import SourceModel
from dlc.errors import ArtifactError, DlcError, InternalError
from dlc.runtime.model import Model
from tests.fuzz.corpus import dumps, networks, texts
from tests.fuzz.mutation import mutated_bytes, mutated_text

SECONDS = 2.0
FEW, MANY = 80, 10_000
SETTINGS = Settings(2, "cpu:x86-64-v3")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that refer to files find none; what a failure leaves behind is not left here."""
    monkeypatch.chdir(tmp_path)


def to_loops(opened: SourceModel) -> None:
    lower(opened, SETTINGS, "loop")


def to_artifact(opened: SourceModel) -> None:
    opened.trust_ir = True
    try:
        Model(compile_model(opened, SETTINGS, "init:0"), threads=1).close()
    except ArtifactError as error:
        raise AssertionError("the compiler made what the loader refuses") from error


def survives(
    read: Callable[[], SourceModel], label: object, finish: Callable[[SourceModel], None] = to_loops
) -> bool:
    """Whether a model is one to the end. Fails the test for any other end than a diagnostic."""
    start = time.process_time()
    refusal = None
    try:
        finish(read())
    except InternalError:
        raise
    except DlcError as error:
        refusal = error.render()
    assert refusal is None or "error[D" in refusal, label
    assert time.process_time() - start < SECONDS, label
    return refusal is None


def survive(
    make: Callable[[Random], Callable[[], SourceModel]],
    count: int,
    finish: Callable[[SourceModel], None] = to_loops,
) -> None:
    """So many mutants, some of which are models."""
    accepted = sum(survives(make(Random(seed)), seed, finish) for seed in range(count))
    assert 0 < accepted < count


# Model text.


def mutant_text(corpus: Sequence[str]) -> Callable[[Random], Callable[[], SourceModel]]:
    def make(random: Random) -> Callable[[], SourceModel]:
        text = mutated_text(random.choice(corpus), corpus, random)
        return lambda: open_model("mutant.dlm", text=text)

    return make


def test_mutated_model_texts_are_compiled_or_refused() -> None:
    survive(mutant_text(texts()), FEW)


@pytest.mark.long
def test_ten_thousand_mutated_model_texts_are_compiled_or_refused() -> None:
    survive(mutant_text(texts()), MANY)


# IR.


def mutant_ir(corpus: Sequence[str]) -> Callable[[Random], Callable[[], SourceModel]]:
    def make(random: Random) -> Callable[[], SourceModel]:
        text = mutated_text(random.choice(corpus), corpus, random)
        Path("mutant.dlir").write_bytes(text.encode("utf-8", "surrogatepass"))
        return lambda: open_model("mutant.dlir")

    return make


def test_mutated_ir_of_any_level_is_compiled_or_refused() -> None:
    survive(mutant_ir(dumps()), FEW, to_artifact)


@pytest.mark.long
def test_ten_thousand_mutated_irs_of_any_level_are_compiled_or_refused() -> None:
    survive(mutant_ir(dumps()), MANY, to_artifact)


# ONNX.


def mutant_network(corpus: Sequence[bytes]) -> Callable[[Random], Callable[[], SourceModel]]:
    def make(random: Random) -> Callable[[], SourceModel]:
        Path("mutant.onnx").write_bytes(mutated_bytes(random.choice(corpus), random))
        return lambda: open_model("mutant.onnx")

    return make


def test_mutated_networks_are_compiled_or_refused() -> None:
    survive(mutant_network(networks()), FEW)


@pytest.mark.long
def test_ten_thousand_mutated_networks_are_compiled_or_refused() -> None:
    survive(mutant_network(networks()), MANY)
