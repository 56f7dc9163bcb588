"""One bit of a file flips, as on a failing disk: no file with a checksum is taken for a whole one.

`docs/safety.md` has the same as a table. A bit may mean nothing, such as one of a time stamp in a zip
archive; then the numbers are those that were written.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dlc.driver.compile.cache import DiskCache
from dlc.errors import DlcError
from dlc.runtime.arrays import npz, safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from tests.runtime.building import tiny

ARRAYS = {
    "w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "ids": np.array([3, 1, 2], np.int64),
}


def flips(data: bytes, count: int | None = None) -> Iterator[bytes]:
    """The data with each bit flipped, or with so many of them."""
    bits = range(8 * len(data))
    for bit in bits if count is None else random.Random(count).sample(bits, count):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def accepted(
    read: Callable[[memoryview, str], dict[str, Callable[[], Tensor]]], data: bytes
) -> bool:
    """Whether all arrays can be read; then they must be those that were written."""
    try:
        entries = read(memoryview(data), "w")
        found = {name: entries[name]() for name in ARRAYS if name in entries}
    except DlcError:
        return False
    for name, tensor in found.items():
        assert tensor.dtype == Tensor(ARRAYS[name]).dtype
        np.testing.assert_array_equal(tensor.bits, ARRAYS[name])
    return len(found) == len(ARRAYS)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_no_flipped_bit_changes_an_array_of_an_npz_file(save: Callable[..., None]) -> None:
    buffer = io.BytesIO()
    save(buffer, **ARRAYS)
    data = buffer.getvalue()
    assert accepted(npz.entries, data)
    refused = sum(not accepted(npz.entries, flipped) for flipped in flips(data))
    assert refused > 8 * sum(array.nbytes for array in ARRAYS.values()) // 2


def test_no_flipped_bit_of_an_artifact_is_taken() -> None:
    data = tiny().artifact().to_bytes()
    assert Artifact.from_bytes(data).to_bytes() == data
    for flipped in flips(data, 1500):
        with pytest.raises(DlcError):
            Artifact.from_bytes(flipped)


def test_no_flipped_bit_of_a_file_in_the_cache_is_taken(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put("abcd", b"object")
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    for flipped in flips(file.read_bytes()):
        file.write_bytes(flipped)
        assert cache.get("abcd") is None


def test_a_flipped_bit_of_numbers_in_a_safetensors_file_passes_unnoticed() -> None:
    """The format has no checksum; what it says of types, shapes and places is checked."""
    tensors = {name: Tensor(array) for name, array in ARRAYS.items()}
    data = b"".join(safetensors.pieces(tensors, {}))
    numbers = sum(array.nbytes for array in ARRAYS.values())
    for flipped in flips(data[-numbers:]):
        entries = safetensors.entries(memoryview(data[:-numbers] + flipped), "w")
        assert {name for name in ARRAYS if (entries[name]().bits != ARRAYS[name]).any()}
