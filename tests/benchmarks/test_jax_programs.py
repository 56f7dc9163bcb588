"""Whole programs of JAX through dlc: values and gradients against JAX."""

from __future__ import annotations

import pytest

pytest.importorskip("jax", reason="JAX is not installed: pip install 'dlc[jax]'")

from benchmarks.jax_programs.examine import CHECKS, examine
from benchmarks.jax_programs.program import load_programs

QUICK = ("MLP, dynamic batch", "branches of cond and switch", "jvp")
ROUNDED = ("bf16", "flax: encoder")
"""What has figures of rounding alone: sums in bf16, and the derivative by the bias of keys, which is 0."""


def agrees(name: str) -> None:
    found = examine(name)
    wrong = {check: found[check].why for check in CHECKS if found[check].why}
    assert not wrong
    assert all(found[check].error < 1e-5 for check in CHECKS) or any(
        each in name for each in ROUNDED
    )


@pytest.mark.parametrize("name", QUICK)
def test_a_program_gives_the_values_and_gradients_of_jax(name: str) -> None:
    agrees(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*load_programs()} - {*QUICK}))
def test_every_program_gives_the_values_and_gradients_of_jax(name: str) -> None:
    agrees(name)
