"""Choice of an entry point."""

from __future__ import annotations

from collections.abc import Iterable

from dlc.errors import UsageError
from dlc.errors.suggest import did_you_mean


def choose(names: Iterable[str], entry: str | None) -> str:
    """The entry point that is meant: the named one, or the only one. Raises UsageError (D0904)."""
    known = list(names)
    if entry is None and len(known) == 1:
        return known[0]
    if entry in known:
        return entry
    if not known:
        raise UsageError("the model has no entry point", code="D0904", help="write `export fn`")
    if entry is None:
        raise UsageError(
            f"the model has {len(known)} entry points: {', '.join(known)}",
            code="D0904",
            help=f"choose one, such as --entry {known[0]}",
        )
    raise UsageError(
        f"there is no entry point {entry}",
        code="D0904",
        help=did_you_mean(entry, known) or f"the model has {', '.join(known)}",
    )
