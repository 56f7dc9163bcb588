"""NVTX ranges: profilers such as Nsight Systems show calls and kernels under names of the model's text.

They are made with `DLC_NVTX=1` in the environment, by the package `nvtx`, and cost nothing without it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Protocol, cast

from dlc.errors import UsageError
from dlc.runtime.system.switches import is_switched_on

NVTX = "DLC_NVTX"
"""The environment variable that asks for ranges."""

Annotate = Callable[[str], AbstractContextManager[object]]
"""A context whose time a profiler shows under a name."""


class _Nvtx(Protocol):
    def annotate(self, message: str, *, domain: str) -> AbstractContextManager[object]: ...


def annotate() -> Annotate:
    """What makes a range of a name, or nothing where none are asked for.

    Raises UsageError (D0902) where they are, and the package is missing.
    """
    if not is_switched_on(NVTX):
        return nullcontext
    try:
        nvtx = cast(_Nvtx, import_module("nvtx"))
    except ImportError:
        raise UsageError(
            f"{NVTX} asks for ranges, and the package nvtx is not installed",
            code="D0902",
            help="pip install nvtx",
        ) from None
    return lambda name: nvtx.annotate(name, domain="dlc")
