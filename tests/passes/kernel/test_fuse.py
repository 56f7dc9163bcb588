"""What fusion costs."""

from __future__ import annotations

import pytest

from dlc.driver.compile.compile import lower
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.ir.core import Block, Op
from dlc.ir.passes import PASSES

LENGTH = 1_000


def chain(length: int) -> str:
    return f"dlc 1\nexport fn f(x: f32[3]) -> f32[3] = {' + '.join(['x'] * length)}\n"


def test_a_long_chain_is_fused_without_moving_each_step_more_than_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = open_model("model.dlm", text=chain(LENGTH))
    lower(opened, Settings(disabled=frozenset({"fuse"})), "kernel")
    moved = 0
    insert = Block.insert

    def counted(block: Block, op: Op, before: Op | None) -> None:
        nonlocal moved
        moved += 1
        insert(block, op, before)

    monkeypatch.setattr(Block, "insert", counted)
    PASSES["fuse"].run(opened.module, opened.context)
    assert LENGTH < moved < 8 * LENGTH
