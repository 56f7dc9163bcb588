"""The GPUs of this machine by their names, and whether code for a kind of GPU runs on one."""

from __future__ import annotations

from dlc.errors import Unsupported
from dlc.runtime.cuda.driver import Driver, NoGpu
from dlc.runtime.cuda.nvidia import open_driver


def driver_of(device: str) -> Driver:
    """The GPU of a name: `cuda`, or `cuda:0`. Raises Unsupported (D0702) if there is none."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdecimal():
        raise Unsupported(
            f"there is no device {device!r}",
            code="D0702",
            help="there are cpu, and cuda:0 and so on",
        )
    try:
        return open_driver(int(number or 0))
    except NoGpu as error:
        raise Unsupported(f"{device} needs {error}", code="D0702") from None


def lacking(architecture: str) -> str | None:
    """Why code for GPUs such as `sm_80` does not run here, or None if it does."""
    try:
        found = open_driver().capability
    except NoGpu as error:
        return f"needs {error}"
    wanted = capability_of(architecture)
    if found < wanted or (architecture.endswith("a") and found != wanted):
        return f"needs a GPU of the kind {architecture}, this is sm_{found[0]}{found[1]}"
    return None


def capability_of(architecture: str) -> tuple[int, int]:
    """The numbers in a name such as `sm_90a`."""
    digits = architecture.removeprefix("sm_").rstrip("a")
    return int(digits[:-1]), int(digits[-1])
