"""Conditions on the sizes of a call, beyond the bounds of the dims, for an operation to have a meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlc.ir.dims import Size


@dataclass(frozen=True, slots=True)
class Need:
    """A size that is 0 or more in every call, or that equals another one, `equals`.

    `told` says what is wrong with a call where it does not; `{n}` in it stands for what the size is then,
    and `{m}` for what the other one is. The error is D0804 for what has no shape then, and D0807 for
    elements that are not there, which only matter where the operation runs.
    """

    size: Size
    told: str
    code: Literal["D0804", "D0807"] = "D0804"
    equals: Size | None = None
