"""Inner values of a call, as seen. Plain runs print results without the modules that compute these."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from dlc.runtime.arrays.tensor import Tensor

Source: TypeAlias = Literal["machine code", "recomputed", "evaluated"]
"""What computed a value: machine code; NumPy from operands of machine code; or NumPy from the inputs."""


class Seen(NamedTuple):
    """A value of a call. One in loops has all steps: an axis for each loop, the outermost first.

    `loops` are the lengths of these axes. Where the shape differs between steps it is the last step's.
    """

    value: Tensor
    loops: tuple[int, ...]
    source: Source
