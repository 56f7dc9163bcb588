"""A table of costs of this machine: where it goes, its measurement, and its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dlc.driver.compile.cache import VARIABLE, chosen_cache
from dlc.driver.compile.cost_table import FILE, table_text, this_processor
from dlc.driver.tune.measure import FULL, HEADER, QUICK, MeasuredRow, host_rows, measure_rows
from dlc.errors import UsageError
from dlc.runtime.system.atomic_write import check_writable, write_file

_OWN, _USUAL = 0o600, 0o666
"""Permissions: what others may write is not read from a cache."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The table of this machine, and the file that it was written to."""

    path: Path
    processor: str
    rows: tuple[MeasuredRow, ...]

    @property
    def text(self) -> str:
        """The rows beside the built-in ones, for people."""
        return "\n".join([HEADER, *map(str, self.rows)])

    @property
    def data(self) -> dict[str, object]:
        """The same for programs."""
        rows = [
            {
                "cost": each.row.name,
                "unit": each.row.unit,
                "stored": each.row.value,
                "measured": each.now,
                "value": each.value,
            }
            for each in self.rows
        ]
        return {"out": str(self.path), "processor": self.processor, "rows": rows}


def tune_costs(out: Path | None = None, *, quick: bool = False) -> Tuned:
    """Measure the table of this machine and write it to a file; None is the one in the cache.

    Rows that are not measured are left out: they are those of the compiler, whichever it will be. Raises
    UsageError (D0502), before anything is measured, where the file cannot be written.
    """
    path = _cached_path() if out is None else out
    check_writable(path)
    found = tuple(measure_rows(host_rows(), QUICK if quick else FULL))
    table = {each.row.name: each.value for each in found if each.usable}
    mode = _OWN if out is None else _USUAL
    write_file(path, [table_text(table).encode()], mode=mode)
    return Tuned(path, this_processor(), found)


def _cached_path() -> Path:
    """The file in the cache. Raises UsageError (D0502) without a cache that keeps something."""
    cache = chosen_cache()
    if cache is None:
        raise UsageError(
            f"there is no cache to keep a table in: {VARIABLE} is empty, or there is no home",
            code="D0502",
            help="name a file, dlc tune -o costs.json, and pass it: --costs costs.json",
        )
    try:
        cache.check()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(
            f"nothing can be kept in {cache.folder}: {why}",
            code="D0502",
            help="name a file, dlc tune -o costs.json, and pass it: --costs costs.json",
        ) from None
    return cache.folder / FILE
