"""Tables of costs that users have: a file of `dlc tune`, the one in the cache, rows in an option.

A table of costs says which rows of the built-in one it changes (`dlc.target.cpu_costs`), so that a flag of
an artifact can tell by which table it was compiled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import cast

from dlc.driver.compile.cache import open_cache, read_own
from dlc.errors import DlcError, UsageError
from dlc.errors.options import option
from dlc.errors.suggest import did_you_mean
from dlc.errors.warn import warn_once
from dlc.runtime.cpu.features import host_model
from dlc.runtime.system.counts import whole_number
from dlc.runtime.system.mapped_files import map_file
from dlc.target.cpu import HOST, CpuTarget
from dlc.target.cpu_costs import CpuCosts

FILE = "costs.json"
"""What the tuned table is called in the folder of the cache."""
FORMAT = "dlc costs 1"
DEFAULT, TUNED = "default", "tuned"
"""The words for the built-in table, and for the one in the cache."""
USUAL: Mapping[str, int] = MappingProxyType(
    {row.name: cast("int", row.default) for row in fields(CpuCosts)}
)
"""The rows that there are."""
MOST_TIMES = 1000
"""The limit of a cost as a multiple of the usual one: estimates must fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class CostTable:
    """The rows of a table of costs that are not the built-in ones; none for the built-in table.

    >>> CostTable("", {"tile": 5_000_000, "product": 6}).text
    'product=6,tile=5000000'
    """

    name: str = field(compare=False)
    """How messages call it: `default`, or the file that it is from."""
    rows: Mapping[str, int] = field(default_factory=dict[str, int])
    processor: str = field(default="", compare=False)
    """The processor that it was measured on, where that is known."""

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def text(self) -> str:
        """The rows as `--costs` takes them."""
        return ",".join([f"{name}={value}" for name, value in sorted(self.rows.items())])

    def applied(self, cpu: CpuTarget) -> CpuTarget:
        """A processor with these costs."""
        return replace(cpu, costs=replace(cpu.costs, **self.rows)) if self.rows else cpu

    def changes(self, cpu: CpuTarget) -> CostTable:
        """The rows that are not the built-in ones of a processor."""
        changed = {
            name: value for name, value in self.rows.items() if getattr(cpu.costs, name) != value
        }
        return replace(self, rows=changed)


BUILT_IN = CostTable(DEFAULT)


def this_processor() -> str:
    """What a table of this machine is measured on: its model, and the width of its registers in bits.

    Machines of one name may differ in these, where one is a part of another.
    """
    bits = 8 * CpuTarget.named(HOST).vector_bytes
    return f"{host_model() or 'unknown'}, {bits} bits"


def cost_table(asked: str) -> CostTable:
    """The table that an option asks for: a word, rows (`product=6,tile=8000000`), or a file.

    Raises UsageError: D0902 for another word or row, D0501 for a file that cannot be read, D0928 for one
    that is no table, and where there is no tuned table.
    """
    if asked == DEFAULT:
        return BUILT_IN
    if asked == TUNED:
        return _tuned_or_fail()
    if "=" in asked and not Path(asked).is_file():
        return CostTable(asked, _rows_of(asked))
    if not _names_file(asked):
        raise UsageError(
            f"{option('costs')} is {asked!r}",
            code="D0902",
            help=f"use {option('costs', DEFAULT, TUNED)}, rows such as "
            f"{option('costs', 'product=6')}, or a file that dlc tune has written",
        )
    return parse_table(str(map_file(asked), "utf-8", "replace"), asked)


def _names_file(asked: str) -> bool:
    """Whether a text is the name of a file: there is one, or it looks like one."""
    return "/" in asked or "." in asked or Path(asked).is_file()


def _rows_of(text: str) -> dict[str, int]:
    """The rows in an option. Raises UsageError (D0902)."""
    rows: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        value = whole_number(number)
        wrong = _wrong_row(name, number if value is None else value)
        if wrong is not None:
            raise UsageError(f"{option('costs')}: {wrong}", code="D0902", help=_near(name))
        assert value is not None
        rows[name] = value
    return rows


def _near(name: str) -> str:
    return did_you_mean(name, USUAL) or "`dlc doctor` prints the rows that there are"


def _wrong_row(name: object, value: object) -> str | None:
    """What is wrong about a row, if anything is."""
    if not isinstance(name, str) or name not in USUAL:
        return f"no cost is called {name!r}"
    most = MOST_TIMES * USUAL[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        return f"the cost {name} is {value!r}, and not a whole number from 1 to {most:,}"
    return None


def table_text(rows: Mapping[str, int]) -> str:
    """A table of this machine as a file.

    >>> parse_table(table_text({"product": 6}), "costs.json").rows
    {'product': 6}
    """
    data = {"format": FORMAT, "processor": this_processor(), "costs": dict(rows)}
    return json.dumps(data, indent=1) + "\n"


def parse_table(text: str, name: str) -> CostTable:
    """The table in the text of a file of that name. Raises UsageError (D0928) where it is none."""
    try:
        data = cast("object", json.loads(text))
    except (ValueError, RecursionError):
        raise _no_table(name, "it is not JSON") from None
    match data:
        case {"format": str(form), "processor": str(processor), "costs": dict()}:
            rows = cast("dict[str, dict[str, int]]", data)["costs"]
        case _:
            raise _no_table(name, "it has not the fields format, processor and costs")
    if form != FORMAT:
        raise _no_table(name, f"its format is {form!r}, and not {FORMAT!r}")
    for row, value in rows.items():
        wrong = _wrong_row(row, value)
        if wrong is not None:
            raise _no_table(name, wrong)
    return CostTable(name, rows, processor)


def _no_table(name: str, why: str) -> UsageError:
    return UsageError(
        f"{name} is not a table of costs: {why}",
        code="D0928",
        help="measure it again with dlc tune, or leave it out",
    )


# The tuned table ---------------------------------------------------------------------------------


def tuned_path() -> Path | None:
    """Where the tuned table of this user is kept; None without a cache."""
    cache = open_cache()
    return None if cache is None else cache.folder / FILE


def read_tuned() -> CostTable | None:
    """The table in the cache, of whatever processor; None where there is none.

    Raises UsageError (D0928) where it is damaged, or not the user's own.
    """
    path = tuned_path()
    if path is None:
        return None
    try:
        data = read_own(path)
    except (OSError, ValueError):
        return None
    if not data:
        raise _no_table(str(path), "it is empty, or other users may write it")
    return parse_table(str(data, "utf-8", "replace"), str(path))


def tuned_here() -> CostTable | None:
    """The tuned table of this processor. One that is damaged is said once, and counts as none."""
    try:
        table = read_tuned()
    except DlcError as error:
        warn_once(f"{error.diagnostics[0].message}; the built-in table is used: run dlc tune again")
        return None
    return table if table is not None and table.processor == this_processor() else None


def _tuned_or_fail() -> CostTable:
    table = read_tuned()
    if table is not None and table.processor == this_processor():
        return table
    why = "there is none in the cache" if table is None else f"that is of {table.processor}"
    raise UsageError(
        f"there is no tuned table of costs for this processor: {why}",
        code="D0928",
        help=f"run dlc tune, or leave {option('costs', TUNED)} out",
    )


def rows_of_flag(text: str) -> CostTable:
    """The table by which an artifact with this flag was compiled; rows that there are not are left out."""
    pairs = [part.partition("=") for part in text.split(",")]
    numbers = {name: whole_number(text) for name, _, text in pairs}
    rows = {
        name: value
        for name, value in numbers.items()
        if value is not None and _wrong_row(name, value) is None
    }
    return CostTable("the artifact's", rows)


def host_with(table: CostTable | None) -> CpuTarget:
    """This machine with a table, or with the built-in one."""
    here = CpuTarget.named(HOST)
    return here if table is None else table.applied(here)
