"""Sorting what a caller passes: by position or by name, defaults for the rest, sizes apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.errors.suggest import did_you_mean
from dlc.runtime.artifact.manifest import Entry, Input
from dlc.runtime.artifact.spelling import python_name
from dlc.runtime.calling.arguments import as_array, as_changed_array
from dlc.runtime.calling.signature import default_value, signature_text
from dlc.runtime.system.counts import counted

Array = NDArray[np.generic]


class ArgumentReader:
    """Reads the arguments of one entry point; `free` are the sizes that are given by name."""

    def __init__(self, entry: Entry, free: Sequence[str]) -> None:
        self._entry = entry
        self._free = {python_name(name): name for name in free}
        self._inouts = entry.inouts
        self._inputs = {python_name(item.name): item.name for item in entry.inputs}

    def read(
        self, args: Sequence[object], named: Mapping[str, object]
    ) -> tuple[list[Array], dict[str, int]]:
        """The arrays of all inputs in order, and the sizes given by name.

        Raises CallError: D0801 for arguments that are missing, unknown or too many, D0802 and D0805 for
        values that do not fit, D0820 for what cannot be changed in place.
        """
        values, given = self.sorted(args, named)
        pairs = zip(self._entry.inputs, values, strict=True)
        name, inouts = self._entry.name, self._inouts
        arrays = [
            (as_changed_array if item.name in inouts else as_array)(value, item, name)
            for item, value in pairs
        ]
        return arrays, given

    def sorted(
        self, args: Sequence[object], named: Mapping[str, object]
    ) -> tuple[list[object], dict[str, int]]:
        """The same, the values as they are given. Raises CallError (D0801)."""
        items = self._entry.inputs
        if len(args) > len(items):
            raise self._refuse(
                f"{counted(len(args), 'argument')} for {counted(len(items), 'input')}"
            )
        values = {item.name: value for item, value in zip(items, args, strict=False)}
        given: dict[str, int] = {}
        for name, value in named.items():
            if name in self._free:
                given[self._free[name]] = self._size(name, value)
            elif name not in self._inputs:
                raise self._unknown(name)
            elif self._inputs[name] in values:
                raise self._refuse(f"{name} is given twice")
            else:
                values[self._inputs[name]] = value
        return [
            values[item.name] if item.name in values else self._default(item) for item in items
        ], given

    def _default(self, item: Input) -> object:
        default = None if item.name in self._inouts else default_value(item)
        if default is None:
            raise self._refuse(f"the input {item.name} is missing")
        return default

    def _size(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise self._refuse(f"the size {name} must be a whole number")
        return index(value)

    def _unknown(self, name: str) -> CallError:
        known = [*self._inputs, *self._free]
        way_out = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
        return self._refuse(f"there is no input {name}", way_out)

    def _refuse(self, message: str, help: str | None = None) -> CallError:
        way_out = help or f"it is {signature_text(self._entry)}"
        return CallError(f"{self._entry.name}: {message}", code="D0801", help=way_out)
