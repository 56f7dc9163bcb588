"""Compiling the same graph again takes what the cache has, and nothing that does not belong to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.driver.compile import compile_cache
from dlc.driver.compile.compile import Report, compile_model
from dlc.driver.compile.settings import Settings
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.model import Model
from tests.driver.source.test_weight_sources import opened


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_CACHE", str(tmp_path))


def compiled(weights: str = "init:1", level: int = 2, text: str = "") -> tuple[Artifact, bool]:
    """The artifact, and whether it came from the cache."""
    model, report = opened(), Report()
    if text:
        model.texts = {"net.dlm": text}
    return compile_model(model, Settings(level), weights, report=report), report.recalled


def test_the_second_compilation_gives_the_same_bytes_from_the_cache() -> None:
    first, at_first = compiled()
    second, again = compiled()
    assert (at_first, again) == (False, True)
    assert first.to_bytes() == second.to_bytes()


def test_other_weights_are_no_reason_to_compile_again() -> None:
    compiled("init:1")
    made, recalled = compiled("init:2")
    fresh, _ = compiled("init:2", level=1)
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    assert recalled
    np.testing.assert_allclose(
        np.asarray(Model(made).f(x)), np.asarray(Model(fresh).f(x)), rtol=1e-4, atol=1e-4
    )


def test_another_level_or_text_is_compiled() -> None:
    compiled()
    assert not compiled(level=1)[1]
    assert not compiled(text="dlc 1\n# the same, a line further down\n")[1]


def test_another_compiler_compiles_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled()
    monkeypatch.setattr(compile_cache, "_compiler", lambda: b"another")
    assert not compiled()[1]


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    first, _ = compiled()
    for path in tmp_path.rglob("*.o"):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    second, recalled = compiled()
    assert not recalled
    assert first.to_bytes() == second.to_bytes()
