"""Names of devices."""

from __future__ import annotations

from dlc.errors import Unsupported
from dlc.runtime.system.counts import whole_number

CPU = "cpu"
FIRST_GPU = "cuda:0"


def device_named(name: object) -> str:
    """The canonical name of a device. Raises Unsupported (D0702) for what is not the name of one.

    >>> device_named("cuda"), device_named("cuda:1"), device_named("cpu:0")
    ('cuda:0', 'cuda:1', 'cpu')
    """
    if name in (CPU, "cpu:0"):
        return CPU
    if isinstance(name, str):
        kind, _, number = name.partition(":")
        ordinal = 0 if name == kind else whole_number(number)
        if kind == "cuda" and ordinal is not None:
            return f"cuda:{ordinal}"
    raise Unsupported(
        f"there is no device {name!r}", code="D0702", help="there are cpu, and cuda:0 and so on"
    )


def device_or_none(name: str | None) -> str | None:
    """The canonical name of a device, or None for None."""
    return None if name is None else device_named(name)
