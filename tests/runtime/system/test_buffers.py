"""Blocks of memory: aligned, and zero where they say so."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.runtime.system.buffers import (
    ALIGNMENT,
    POPULATED,
    address,
    aligned_array,
    copy_bytes,
    zeros,
)


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


@pytest.mark.parametrize("length", [0, 1, 5, 1 << 20])
def test_bytes_are_copied_between_addresses_and_no_others(length: int) -> None:
    source = np.arange(length + 2, dtype=np.int64).astype(np.uint8)
    target = np.full(length + 2, 7, np.uint8)
    copy_bytes(address(target) + 1, address(source) + 1, length)
    assert target.tolist() == [7, *source[1:-1].tolist(), 7]


def test_a_piece_of_memory_is_copied_over_itself() -> None:
    array = np.arange(8, dtype=np.uint8)
    copy_bytes(address(array) + 2, address(array), 6)
    assert array.tolist() == [0, 1, 0, 1, 2, 3, 4, 5]
