"""Every example lies as low as its order of work allows, inference and training."""

from __future__ import annotations

import pytest

from dlc.dialects import func
from dlc.driver.compile.settings import Settings
from dlc.driver.memory.asked import MemoryRequest, memory_of
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.open import open_model
from dlc.planning.offset_assignment import cases_of
from tests.example_models import FOLDER, NAMES
from tests.suites import every

PARTS = {"residual"}
"""Texts without an entry point."""


LARGE = (
    "byte_lm",
    "char_gpt",
    "diffusion",
    "digits_cnn",
    "digits_gan",
    "lenet",
    "llama",
    "seq2seq",
)
"""Examples whose plans take long."""
SMALL = [name for name in NAMES if name not in {*PARTS, *LARGE}]


@pytest.mark.parametrize(
    "name", [*every(12, SMALL), *(pytest.param(name, marks=pytest.mark.long) for name in LARGE)]
)
def test_an_example_takes_no_more_than_is_in_use_at_once(name: str) -> None:
    path = FOLDER / f"{name}.dlm"
    blocks = [block.name or None for block in open_model(path).blocks]
    for block in blocks or [None]:
        request = CompileRequest(str(path), block=block)
        for entry in memory_of(MemoryRequest(request)).entries:
            assert entry.arena == entry.order_bound, (entry.name, block)


def test_more_effort_is_a_choice_that_an_artifact_follows_from() -> None:
    assert Settings(plan_effort=3).options().plan_effort == 3
    assert Settings(plan_effort=3).flags == (*Settings().flags, "--plan-effort=3")


def test_a_plan_is_looked_at_up_to_its_bounds_and_of_training_up_to_the_batch() -> None:
    opened = open_model(FOLDER / "digits_mlp.dlm")
    function = opened.module.symbol("predict")
    assert isinstance(function, func.Func)
    assert [case["B"] for case in cases_of(function, None)] == [*(1 << k for k in range(12)), 2048]
    assert [case["B"] for case in cases_of(function, 20)] == [1, 2, 4, 8, 16, 20]
