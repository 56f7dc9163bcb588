"""Compiling a model of twice the length takes about twice the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from tests.suites import each_value

TIMES = 4
"""How much longer the second model is."""
SLACK = 2.5
"""How much more than in proportion it may take: as long as the square would be 4, and machines are busy."""


def in_function(lines: list[str], result: str) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"dlc 1\nexport fn f(x: f32[4]) -> f32[4] {{\n{body}\n  return {result}\n}}\n"


def chain(count: int) -> str:
    """Kernels that read each other."""
    lines = [f"let v{k + 1} = cumsum(v{k}, axis=0)" for k in range(count)]
    return in_function(["let v0 = x", *lines], f"v{count}")


def elementwise(count: int) -> str:
    """A formula that is fused."""
    lines = [f"let v{k + 1} = sin(v{k})" for k in range(count)]
    return in_function(["let v0 = x", *lines], f"v{count}")


def wide(count: int) -> str:
    """Values that are all live at once."""
    lines = [
        f"let v{k} = cumsum(x * x, axis=0, exclusive={str(k % 2 == 0).lower()}) * x"
        for k in range(count)
    ]
    sums = [f"let s{k + 1} = s{k} + v{k}" for k in range(count)]
    return in_function([*lines, "let s0 = x", *sums], f"s{count}")


def constants(count: int) -> str:
    """Names at the top of a text."""
    lines = "\n".join(f"const c{k} = {k}.5" for k in range(count))
    return f"dlc 1\n{lines}\nexport fn f(x: f32[4]) -> f32[4] = x + c0 + c{count - 1}\n"


def exports(count: int) -> str:
    """Entry points."""
    lines = [f"export fn f{k}(x: f32[4]) -> f32[4] = sin(x)" for k in range(count)]
    return "\n".join(["dlc 1", *lines, ""])


LENGTHS: dict[Callable[[int], str], int] = {
    chain: 250,
    elementwise: 20,
    wide: 60,
    constants: 1_000,
    exports: 40,
}


def seconds(text: str, level: int) -> float:
    """The processor's time for a compilation."""
    begun = time.process_time()
    compile_model(open_model("long.dlm", text=text), Settings(level))
    return time.process_time() - begun


@pytest.mark.parametrize(("made", "level"), each_value(LENGTHS, (0, 2)))
@pytest.mark.parametrize("scale", [1, pytest.param(16, marks=pytest.mark.long)])
def test_time_grows_in_proportion(
    made: Callable[[int], str],
    level: int,
    scale: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DLC_CACHE", str(tmp_path))
    length = LENGTHS[made] * scale
    short, long = (seconds(made(count), level) for count in (length, TIMES * length))
    assert long < SLACK * TIMES * short + 0.2
