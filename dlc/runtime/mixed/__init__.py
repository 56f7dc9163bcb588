"""Running programs on a processor and a GPU together.

`mixed.machine` and `mixed.parts` are brought in when they are first used, as `dlc.runtime.cuda` does it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlc.runtime.mixed import machine, parts

__all__ = ["machine", "parts"]

if not TYPE_CHECKING:  # a checker knows the modules, and that there are no others

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'dlc.runtime.mixed' has no attribute {name!r}")
        return import_module(f"dlc.runtime.mixed.{name}")
