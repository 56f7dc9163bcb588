"""A profile: where the time of a call goes, with the tables that show it."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.runtime.profiling import table
from dlc.runtime.profiling.rows import By, Measurements


@dataclass(frozen=True, slots=True)
class Profile(Measurements):
    """What `model.f.profile(x)` gives and `dlc profile` prints."""

    def table(self, by: By = "kernel", rows: int = 25) -> str:
        """The dearest rows as text of 80 columns; all of them with `rows=0`."""
        return table.as_text(self, self.by(by), by, rows)

    def roofline(self) -> str:
        """All kernels with time, floor and share, those with the largest gap first."""
        return table.roofline_text(self)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return table.as_html(self, self.by("kernel"), "kernel", 100)
