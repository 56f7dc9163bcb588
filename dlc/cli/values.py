"""Options of the form NAME=VALUE."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from dlc.errors import UsageError
from dlc.runtime.system.atomic_write import check_ending, check_writable
from dlc.runtime.system.counts import whole_number


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` texts by name. Raises UsageError (D0901) for other texts and for names given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(
                f"{option} {text!r} is not NAME=VALUE",
                code="D0901",
                help=f"write {option} {name or 'NAME'}=VALUE",
            )
        if name in found:
            raise UsageError(
                f"{option} {name} is given twice", code="D0901", help=f"write {option} {name} once"
            )
        found[name] = value
    return found


def output_path(out: Path, *endings: str) -> Path:
    """The file to write, looked at before any work; a device may be called anything.

    Raises UsageError: D0502 where no file can be written, and as `check_ending` does.
    """
    check_writable(out)
    check_ending(out, *endings)
    return out


def check_kept(written: Iterable[str | Path | None], read: Iterable[str | Path | None]) -> None:
    """Raises UsageError (D0924) where a file to write is one that is read. None is not a file."""
    sources = {_file(path) for path in read if path is not None} - {None}
    for path in written:
        if path is not None and _file(path) in sources:
            raise UsageError(
                f"{path} is read, and would be replaced by what is made from it",
                code="D0924",
                help=f"name a new file, such as {Path(path).with_stem(f'new-{Path(path).stem}')}",
            )


def _file(path: str | Path) -> str | None:
    """The one path of a file that has several; None for what no file can be called."""
    try:
        return os.path.realpath(path)
    except ValueError:  # a zero, or what the system's encoding lacks: reading and writing say so
        return None


def named_file(path: str, what: str) -> Path:
    """The path of a file. Raises UsageError (D0903) for `.` and other folders without a name."""
    found = Path(path)
    if not found.name or found.name == "..":
        raise UsageError(f"{path!r} is {what}", code="D0903", help="give the path of a file")
    return found


def listed(text: str) -> list[str]:
    """The names in `cse, dce`."""
    return [name for part in text.split(",") if (name := part.strip())]


def sizes(texts: Sequence[str]) -> dict[str, int]:
    """`B=8` texts. Raises UsageError (D0901) for what is not a size."""
    numbers: dict[str, int] = {}
    for name, text in pairs("--dim", texts).items():
        number = whole_number(text)
        if number is None:
            raise UsageError(
                f"--dim {name}={text}: {text!r} is not a size",
                code="D0901",
                help=f"write --dim {name}=8",
            )
        numbers[name] = number
    return numbers


def bounds(texts: Sequence[str]) -> dict[str, tuple[int, int | None]]:
    """`B=1..64` texts, `B=8` for one size only, and `B=8..` for all from it on.

    Raises UsageError (D0901) for what is not a bound.
    """
    intervals: dict[str, tuple[int, int | None]] = {}
    for name, text in pairs("--dim", texts).items():
        first, dots, last = text.partition("..")
        low, high = whole_number(first), whole_number(last if dots else first)
        if low is None or (high is None and last != ""):
            raise UsageError(
                f"--dim {name}={text}: {text!r} is not a range of sizes",
                code="D0901",
                help=f"write --dim {name}=1..64",
            )
        intervals[name] = (low, high)
    return intervals


def parameters(texts: Sequence[str]) -> dict[str, bool | int | float | str]:
    """`hidden=256` texts: numbers, true and false as what they are, all else as text."""
    return {name: _plain(text) for name, text in pairs("--set", texts).items()}


def _plain(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
