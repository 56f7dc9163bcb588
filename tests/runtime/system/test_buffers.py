"""Blocks of memory: aligned, and zero where they say so."""

from __future__ import annotations

import pytest

from dlc.runtime.system.buffers import ALIGNMENT, POPULATED, address, zeros


@pytest.mark.parametrize("length", [0, 1, 1000, POPULATED - 1, POPULATED, POPULATED + 4097])
def test_a_block_of_zeros_is_aligned_and_can_be_written_to_its_last_byte(length: int) -> None:
    block = zeros(length)
    assert (block.size, address(block) % ALIGNMENT if length else 0) == (length, 0)
    assert not block.any()
    block[-1:] = 7
    assert block.sum() == (7 if length else 0)
