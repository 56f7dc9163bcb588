"""How far the fuzzer of trainings says that rounding may carry what PyTorch computes."""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from benchmarks import fuzz  # noqa: E402

Tensor: TypeAlias = Any

EPS = 2.0**-23
TIMES = 200


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The peer, which imports its neighbours as a program does."""
    monkeypatch.syspath_prepend(str(Path(fuzz.__file__).parent))
    return __import__("contender_steps")


def spread(steps: ModuleType, run: Callable[[], Tensor]) -> float:
    """The most that random rounding changes a number, in units in the last place of 1."""
    with steps.Rounding(0, EPS):
        exact = float(run())
    found: list[float] = []
    for shake in range(1, TIMES):
        with steps.Rounding(shake, EPS):
            found.append(float(run()))
    return float(np.abs(np.array(found) - exact).max()) / EPS


def tensor(*rows: float) -> Tensor:
    return torch.tensor([rows], dtype=torch.float64, requires_grad=True)


def test_a_sum_is_as_uncertain_as_its_terms_are_large(steps: ModuleType) -> None:
    large, ones = tensor(1000.0, -1000.0, 1.0).detach(), torch.ones(3, 1, dtype=torch.float64)
    assert 1900 < spread(steps, lambda: large @ ones) <= 2001
    assert 1900 < spread(steps, large.sum) <= 2001


def test_an_element_is_as_uncertain_as_it_is_large(steps: ModuleType) -> None:
    x = tensor(0.5).detach()
    assert 0.45 < spread(steps, lambda: torch.tanh(x)) < 0.5


def test_the_gradient_of_a_single_score_is_as_uncertain_as_the_sums_that_cancel_in_it(
    steps: ModuleType,
) -> None:
    # Seed 250033 of the trainings: the sum is 0.007, and its terms add up to 0.86.
    dy = torch.tensor([[0.325, 0.623, -0.728]], dtype=torch.float64)
    v = torch.tensor([[0.472, -0.685, -0.386]], dtype=torch.float64)

    def gradient() -> Tensor:
        scores = tensor(0.3)
        (torch.softmax(scores, -1) @ v).backward(dy)
        return scores.grad

    assert 0.8 < spread(steps, gradient) < 2 * 0.87
