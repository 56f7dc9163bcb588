"""Blocks of memory: aligned, and zero where they say so."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.runtime.system.buffers import ALIGNMENT, POPULATED, address, aligned_array, zeros


@pytest.mark.parametrize("length", [0, 1, 1000, POPULATED - 1, POPULATED, POPULATED + 4097])
def test_a_block_of_zeros_is_aligned_and_can_be_written_to_its_last_byte(length: int) -> None:
    block = zeros(length)
    assert (block.size, address(block) % ALIGNMENT if length else 0) == (length, 0)
    assert not block.any()
    block[-1:] = 7
    assert block.sum() == (7 if length else 0)


def test_small_arrays_are_aligned_and_share_no_memory() -> None:
    dtype = np.dtype(np.float32)
    arrays = [aligned_array((count,), dtype, 4 * count) for count in (0, 1, 10, 16, 17) * 40]
    for number, array in enumerate(arrays):
        assert address(array) % ALIGNMENT == 0
        array[:] = number
    assert all((array == number).all() for number, array in enumerate(arrays))


def test_the_address_is_that_of_the_first_element() -> None:
    whole = np.zeros((3, 5, 7), np.int16)
    for array in (whole, whole[1:], whole[:, 2:, 3:], whole.T, whole[:0]):
        assert address(array) == array.__array_interface__["data"][0]
