"""The description of a data source in a `train` block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, cast, get_args

from dlc.errors import ModelError
from dlc.runtime.artifact.manifest import DataKind, DataSource

Setting: TypeAlias = "bool | int | float | str | None"
"""The value of an option in a text."""

KINDS: tuple[str, ...] = get_args(DataKind)
FORMS: Mapping[str, str] = {"csv": "columns", "text": "window"}
"""Expressions with numbers in parentheses that select a field of a source, in place of its name."""
NAMES: Mapping[str, tuple[str, ...]] = {"pictures": ("image", "label")}
"""The fields of kinds of sources that have fixed ones."""
NAMELESS: tuple[str, ...] = ("npy",)
"""Kinds whose fields need no name: one array, or files with the names of the inputs."""
FOR_KIND = {"header": "csv", "separator": "csv", "size": "pictures"}
"""Options of a single kind of source."""


def source_of(
    kind: str, path: str, fields: Mapping[str, str], settings: Mapping[str, Setting]
) -> DataSource:
    """The source that a text describes. Raises ModelError (D0540) for an invalid option."""
    if kind not in KINDS:
        raise _wrong(f"there is no data source {kind}", f"there are {', '.join(KINDS)}")
    found: dict[str, object] = {}
    for name, value in settings.items():
        found.update(_option(kind, name, value))
    made = DataSource(cast(DataKind, kind), path, dict(fields))
    return made._replace(**found)


def check_source(source: DataSource) -> None:
    """Refuse a source that no text can describe, in a damaged artifact: ModelError (D0540)."""
    settings = {name: value for name, value in _settings(source).items() if value is not None}
    if source_of(source.kind, source.path, source.fields, settings) != source:
        raise _wrong(
            f"the data {source.path[:80]} has options that no text gives", "compile it anew"
        )


def _settings(source: DataSource) -> dict[str, Setting]:
    """The options of this source as a text states them."""
    return {
        "test": _part(source.test_part) or source.test_path or None,
        "limit": source.limit,
        "shuffle": source.shuffle,
        "header": source.header,
        "separator": source.separator or None,
        "size": None if source.size is None else "x".join(map(str, source.size)),
    }


def _part(text: str) -> float:
    try:
        return float(text or "0")
    except ValueError:
        raise _wrong(
            f"test is a part between 0 and 1; found {text[:20]!r}", "compile it anew"
        ) from None


def _option(kind: str, name: str, value: Setting) -> dict[str, object]:
    read = _OPTIONS.get(name)
    if read is None:
        raise _wrong(f"data has no option {name}", f"there are {', '.join(_OPTIONS)}")
    if FOR_KIND.get(name, kind) != kind:
        raise _wrong(f"{name} is an option of {FOR_KIND[name]}, not of {kind}", f"leave {name} out")
    return read(value)


def _test(value: Setting) -> dict[str, object]:
    if isinstance(value, float) and 0 < value < 1:
        return {"test_part": repr(value)}
    if isinstance(value, str) and value:
        return {"test_path": value}
    raise _wrong(
        f"test is a part between 0 and 1, or a path; found {value!r}", "write test=0.2 for a fifth"
    )


def _limit(value: Setting) -> dict[str, object]:
    if type(value) is int and value > 0:
        return {"limit": value}
    raise _wrong(f"limit is a number of examples; found {value!r}", "write limit=1000")


def _shuffle(value: Setting) -> dict[str, object]:
    if isinstance(value, bool):
        return {"shuffle": value}
    raise _wrong(
        f"shuffle is true or false; found {value!r}", "write shuffle=false to keep the order"
    )


def _header(value: Setting) -> dict[str, object]:
    if isinstance(value, bool):
        return {"header": value}
    raise _wrong(f"header is true or false; found {value!r}", "write header=false if there is none")


def _separator(value: Setting) -> dict[str, object]:
    if (
        isinstance(value, str)
        and len(value) == 1
        and value.isascii()
        and value not in '"\r\n.0123456789'
    ):
        return {"separator": value}
    raise _wrong(f"separator is one character; found {value!r}", 'write separator=";"')


def _size(value: Setting) -> dict[str, object]:
    height, _, width = str(value).partition("x")
    sizes = [int(text) for text in (height, width or height) if text.isdecimal() and len(text) < 6]
    if not isinstance(value, bool) and len(sizes) == 2 and min(sizes) > 0:
        return {"size": tuple(sizes)}
    raise _wrong(f"size is that of a picture; found {value!r}", 'write size=64 or size="48x64"')


_OPTIONS: dict[str, Callable[[Setting], dict[str, object]]] = {
    "test": _test,
    "limit": _limit,
    "shuffle": _shuffle,
    "header": _header,
    "separator": _separator,
    "size": _size,
}
LATER = DataSource("npz", "", {})
"""The source of a text that names none. One without a path, with options or without, is given later."""
OPTIONS = tuple(_OPTIONS)
"""Arguments of a source that are options, not fields."""


def _wrong(message: str, way_out: str) -> ModelError:
    return ModelError(message, code="D0540", help=way_out)
