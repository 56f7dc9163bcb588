"""The GPUs of this machine by device name, and whether code for a compute capability runs on one."""

from __future__ import annotations

from dlc.errors import Unsupported
from dlc.runtime.cuda.driver import Driver, NoGpu
from dlc.runtime.cuda.nvidia import open_driver
from dlc.runtime.system.device_names import CPU, FIRST_GPU, device_named


def driver_of(device: str) -> Driver:
    """The GPU of a name: `cuda`, or `cuda:0`. Raises Unsupported (D0702) if there is none."""
    try:
        return _opened(device)
    except NoGpu as error:
        raise Unsupported(f"{device} needs {error}", code="D0702") from None


def own_gpu(place: int) -> str:
    """The GPU of one of the processes of this machine, which take them in turns.

    Raises Unsupported (D0702) if there is none.
    """
    return f"cuda:{place % driver_of(FIRST_GPU).count}"


def _opened(device: str) -> Driver:
    canonical = device_named(device)
    if canonical == CPU:
        raise NoGpu(f"a GPU, and {device} is none")
    return open_driver(int(canonical.partition(":")[2]))


def lacking(architecture: str, device: str) -> str | None:
    """Why code for an architecture such as `sm_80` does not run on a device; None if it does."""
    try:
        capability = _opened(device).capability
    except NoGpu as error:
        return f"needs {error}"
    required = capability_of(architecture)
    if capability < required or (architecture.endswith("a") and capability != required):
        return (
            f"needs a GPU of the kind {architecture}, {device} is sm_{capability[0]}{capability[1]}"
        )
    return None


def capability_of(architecture: str) -> tuple[int, int]:
    """The compute capability that a name such as `sm_90a` spells."""
    digits = architecture.removeprefix("sm_").rstrip("a")
    return int(digits[:-1]), int(digits[-1])
