"""The timeline of a traced call: the wall time that each record of a thread's work accounts for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.abi import TraceWord

Words = NDArray[np.int64]
Cycles = NDArray[np.float64]


class Timeline(NamedTuple):
    """One traced call, in cycles."""

    wall: Cycles
    """By op id: each moment is divided equally among the records that run then."""
    busy: Cycles
    """By op id, summed over all threads."""
    threads: Cycles
    """By thread: how long it worked on ops."""
    span: int
    """From the first start to the last end."""
    covered: float
    """How long at least one thread worked: the sum of `wall`."""


def timeline(records: Words, ops: int, threads: int) -> Timeline:
    """The timeline of a call's records (`TraceWord`) of `ops` ops on `threads` threads.

    >>> found = timeline(np.array([[0, 0, 0, 10], [0, 1, 5, 10], [1, 0, 12, 20]]), 2, 2)
    >>> found.wall.tolist(), found.busy.tolist(), found.span, found.covered
    ([10.0, 8.0], [15.0, 8.0], 20, 18.0)
    """
    if not len(records):
        return Timeline(np.zeros(ops), np.zeros(ops), np.zeros(threads), 0, 0.0)
    op, thread = records[:, TraceWord.OP], records[:, TraceWord.THREAD]
    start, end = records[:, TraceWord.START], records[:, TraceWord.END]
    moments, where = np.unique(np.concatenate([start, end]), return_inverse=True)
    first, last = where[: len(records)], where[len(records) :]
    changes = np.bincount(first, minlength=len(moments)) - np.bincount(last, minlength=len(moments))
    running = np.cumsum(changes)[:-1]
    lengths = np.diff(moments).astype(np.float64)
    shares = np.divide(lengths, running, out=np.zeros(len(lengths)), where=running > 0)
    passed = np.concatenate([[0.0], np.cumsum(shares)])
    wall = _sums(op, passed[last] - passed[first], ops)
    worked = (end - start).astype(np.float64)
    return Timeline(
        wall,
        _sums(op, worked, ops),
        _sums(thread, worked, threads),
        int(moments[-1] - moments[0]),
        float(lengths[running > 0].sum()),
    )


def _sums(keys: Words, values: Cycles, count: int) -> Cycles:
    """The sum of the values of each key below `count`."""
    return np.bincount(keys, values, count).astype(np.float64)
