"""The order of examples: a permutation that depends on a seed and a purpose only.

A stable sort of random keys gives the permutation. The keys are the raw 64-bit stream of Philox4x64-10
(J. Salmon et al., SC 2011), which NumPy guarantees not to change, unlike its `permutation`.

>>> order(6, seed=1, purpose=SPLIT).tolist()
[3, 5, 2, 0, 1, 4]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
"""Numbers of examples."""

SPLIT = 0
"""The purpose of the permutation that selects the examples for the test."""


def epoch_purpose(epoch: int) -> int:
    """The purpose of the order of an epoch."""
    return 1 + epoch


def order(count: int, seed: int, purpose: int) -> Rows:
    """The permutation of 0 to `count - 1` for a seed (any u64) and a purpose."""
    key = np.array([seed, purpose], np.uint64)
    words = np.asarray(np.random.Philox(key=key).random_raw(count), np.uint64)
    return np.argsort(words, kind="stable").astype(np.int64, copy=False)
