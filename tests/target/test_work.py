"""What kernels are said to cost decides who works on them: a small call stays on its own thread."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

import dlc
from dlc.runtime.calling.entry import EntryPoint
from dlc.target.work import tiles

TEXT = """\
dlc 1
dim B = 1..100000
export fn rows(x: f32[B, 64]) -> f32[B] = sum(x, axis=1)
export fn elements(x: f32[B, 64]) -> f32[B, 64] = relu(x * 2 + 1)
export fn running(x: f32[B, 64]) -> f32[B, 64] = cumsum(x, axis=1)
export fn sorted(x: f32[B, 64]) -> f32[B, 64] = sort(x)
"""


def test_the_only_tile_costs_what_it_has() -> None:
    assert tiles(64, 32_000, 250) == (1, 16)
    assert tiles(64_000, 32_000, 250) == (2, 8000)
    assert tiles(0, 32_000, 250) == (0, 1)


def test_small_calls_stay_on_one_thread_and_large_ones_do_not() -> None:
    model = dlc.compile(text=TEXT, threads=2)
    large, small = np.ones((20_000, 64), np.float32), np.ones((1, 64), np.float32)

    def threads(point: EntryPoint, x: NDArray[np.float32]) -> set[int]:
        return {stretch.thread for stretch in point.trace(x)[1]}

    for name, point in model.entry_points.items():
        # A busy machine may let the second thread begin only after some calls.
        end = time.monotonic() + 20
        while threads(point, large) != {0, 1}:
            assert time.monotonic() < end, name
        assert all(threads(point, small) == {0} for _ in range(20)), name
