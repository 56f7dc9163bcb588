"""Running artifacts on NVIDIA GPUs, through the driver interface of cuda-python.

What a model for a processor may do without is brought in when it is first used: `cuda.machine`, `cuda.gpu`
and `cuda.exchange` are there for who has imported `dlc.runtime.cuda`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc.runtime.cuda import exchange, gpu, machine

__all__ = ["exchange", "gpu", "machine"]

if not TYPE_CHECKING:  # a checker knows the modules, and that there are no others

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'dlc.runtime.cuda' has no attribute {name!r}")
        return import_module(f"dlc.runtime.cuda.{name}")
