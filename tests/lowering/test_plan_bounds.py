"""Every example lies as low as its order of work allows, inference and training."""

from __future__ import annotations

import pytest

from dlc.driver.make import Wanted
from dlc.driver.memory.asked import Asked, memory_of
from tests.example_models import FOLDER, NAMES

PARTS = {"residual"}
"""Texts without an entry point."""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in PARTS])
def test_an_example_takes_no_more_than_is_in_use_at_once(name: str) -> None:
    for entry in memory_of(Asked(Wanted(str(FOLDER / f"{name}.dlm")))).entries:
        assert entry.arena == entry.order_bound, entry.name
