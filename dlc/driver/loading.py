"""`dlc.load` and `dlc.Model`: those of the runtime, with the compiler to ask for inner values of a call."""

from __future__ import annotations

from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.model import Model, load

__all__ = ["Model", "load"]


def _observer():
    from dlc.driver.run.entry_values import values_of

    return values_of


EntryPoint.observers[:] = [_observer]
