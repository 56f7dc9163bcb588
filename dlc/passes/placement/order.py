"""For sizes that are known only when a model runs: which buffer lies above which."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.passes.placement.buffers import Buffer


def order_above(buffers: Sequence[Buffer], offsets: Sequence[int]) -> list[list[int]]:
    """For each buffer those alive with it that lie below it.

    At any sizes, each may lie where the highest of those below it ends: no two overlap.

    >>> order_above([Buffer(64, 0, 1), Buffer(128, 1, 2)], [128, 0])
    [[1], []]
    """
    above: list[list[int]] = []
    for i, buffer in enumerate(buffers):
        above.append(
            [
                j
                for j, other in enumerate(buffers)
                if j != i and buffer.meets(other) and (offsets[j], j) < (offsets[i], i)
            ]
        )
    return above
