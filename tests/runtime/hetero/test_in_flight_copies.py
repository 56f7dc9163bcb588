"""The host waits for exactly the copies that touch what it reads, and forgets no other."""

from __future__ import annotations

import ctypes

from dlc.runtime.hetero.in_flight_copies import AddressRange, InFlightCopies
from tests.runtime.gpu.fake_gpu import POISON, FakeGpu

COUNT = 16
FRESH = 7
"""The value of each byte that is copied; `POISON` stands where no copy has written."""


def test_a_copy_behind_the_one_that_was_waited_for_is_waited_for_later() -> None:
    with FakeGpu() as gpu:
        copies = InFlightCopies(gpu)
        source = _filled(gpu)
        targets = [gpu.pin(COUNT) for _ in range(3)]
        for target in targets:
            copies.download(_range(target), source)
        for number in range(3):
            copies.settle([_range(targets[number])], [])
            arrived = [FRESH] * (number + 1) + [POISON] * (2 - number)
            assert [_byte(target) for target in targets] == arrived
        copies.wait()
        copies.close()
    assert gpu.events == 0


def test_a_copy_beside_what_is_read_is_not_waited_for() -> None:
    with FakeGpu() as gpu:
        copies = InFlightCopies(gpu)
        target = gpu.pin(3 * COUNT) + COUNT
        copies.download(_range(target), _filled(gpu))
        copies.settle([_range(target - COUNT), _range(target + COUNT)], [])
        assert _byte(target) == POISON
        copies.settle([_range(target + COUNT - 1)], [])
        assert _byte(target) == FRESH
        copies.wait()
        copies.close()


def _filled(gpu: FakeGpu) -> AddressRange:
    """Memory of the device, each byte of which is FRESH."""
    place, stream = gpu.allocate(COUNT), gpu.create_stream()
    staged = gpu.pin(COUNT)
    ctypes.memset(staged, FRESH, COUNT)
    gpu.upload(place, staged, COUNT, stream)
    gpu.synchronize(stream)
    return _range(place)


def _range(first: int) -> AddressRange:
    return AddressRange(first, first + COUNT)


def _byte(place: int) -> int:
    return ctypes.c_uint8.from_address(place).value
