"""Converting named tuples to JSON and back: the class is the schema.

Every field is written; a missing field or an unknown key is refused. Fields are `str`, `int`, `bool`,
`T | None`, `Literal[...]`, `tuple[T, ...]`, `Mapping[str, T]` or another such class. Named tuples are used
because the creation of a dataclass takes a millisecond at every start, ten times as long.

>>> from typing import NamedTuple
>>> class Point(NamedTuple):
...     x: int
...     label: str | None
>>> encode(Point(1, None)), decode(Point, {"x": 2, "label": "b"})
({'x': 1, 'label': None}, Point(x=2, label='b'))
>>> decode(Point, {"x": 2, "label": 3})
Traceback (most recent call last):
    ...
dlc.runtime.artifact.schema.Mismatch: label: expected text, found the number 3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import starmap
from operator import itemgetter
from types import NoneType, UnionType
from typing import ForwardRef, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from dlc.runtime.artifact.canonical_json import Json

T = TypeVar("T")
_Reader = Callable[[Json], object]
_BulkReader = Callable[[list[Json]], "tuple[object, ...] | None"]

MAX_TEXT = 1 << 20
"""The most characters of a string."""
MAX_INT = 1 << 62


class Mismatch(ValueError):
    """A value does not match the schema; `path` is its path in the record."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.path: list[str] = []
        super().__init__(message)

    def inside(self, name: str) -> Mismatch:
        """The same, with `name` in front of the path."""
        self.path.insert(0, name)
        return self

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.message}" if self.path else self.message


def encode(value: object) -> Json:
    """The JSON of a record, or of a field of one."""
    if _is_record(type(value)):
        items = cast("tuple[object, ...]", value)
        return {name: encode(item) for name, item in zip(_fields(type(value)), items, strict=True)}
    match value:
        case None | bool() | int() | str():
            return value
        case tuple() | list():
            return [encode(item) for item in cast("tuple[object, ...]", value)]
        case _:
            assert isinstance(value, Mapping), value
            return {key: encode(item) for key, item in cast("Mapping[str, object]", value).items()}


def decode(cls: type[T], value: Json) -> T:
    """The record of a JSON value. Raises Mismatch if the value does not match the schema."""
    return cast(T, _reader(cls)(value))


def _fields(cls: type[object]) -> tuple[str, ...]:
    """The names of a named tuple's fields, in order."""
    return getattr(cls, "_fields", ())


def _is_record(cls: type[object]) -> bool:
    return issubclass(cls, tuple) and bool(_fields(cast("type[object]", cls)))


def _reader(hint: object) -> _Reader:
    """The reader of values of an annotated type."""
    found = _SIMPLE.get(hint)
    if found is not None:
        return found
    if isinstance(hint, type) and _is_record(hint):
        return _record_reader(hint)
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Literal:
        return _choice_reader(cast("tuple[str, ...]", inner))
    if kind is tuple:
        return _list_reader(_reader(inner[0]), _bulk_reader(inner[0]))
    if kind is UnionType and NoneType in inner:
        return _optional_reader(_reader(next(i for i in inner if i is not NoneType)))
    assert kind is cast(object, Mapping), hint
    return _mapping_reader(_reader(inner[1]))


def _read_text(value: Json) -> str:
    if type(value) is not str:
        raise Mismatch(f"expected text, found {_described(value)}")
    if len(value) > MAX_TEXT:
        raise Mismatch(f"a text of {len(value)} characters; at most {MAX_TEXT} are read")
    return value


def _read_int(value: Json) -> int:
    if type(value) is not int:
        raise Mismatch(f"expected a number, found {_described(value)}")
    if not -MAX_INT <= value <= MAX_INT:
        raise Mismatch("the number is beyond 2**62")
    return value


def _read_bool(value: Json) -> bool:
    if type(value) is not bool:
        raise Mismatch(f"expected true or false, found {_described(value)}")
    return value


_SIMPLE: dict[object, _Reader] = {
    str: _read_text,
    int: _read_int,
    bool: _read_bool,
}


def _optional_reader(read: _Reader) -> _Reader:
    return lambda value: None if value is None else read(value)


def _choice_reader(choices: tuple[str, ...]) -> _Reader:
    def read(value: Json) -> object:
        if value not in choices:
            wanted = " or ".join(map(repr, choices))
            raise Mismatch(f"expected {wanted}, found {_described(value)}")
        return value

    return read


def _list_reader(read: _Reader, read_all: _BulkReader) -> _Reader:
    def read_list(value: Json) -> object:
        if not isinstance(value, list):
            raise Mismatch(f"expected a list, found {_described(value)}")
        if (together := read_all(value)) is not None:
            return together
        items: list[object] = []
        try:
            for item in value:
                items.append(read(item))
        except Mismatch as error:
            raise error.inside(str(len(items))) from None
        return tuple(items)

    return read_list


def _bulk_reader(hint: object) -> _BulkReader:
    """The reader of all items of a list at once, much faster than one by one.

    It returns None for an invalid list, and for types that it does not support: the items are then read
    one by one.
    """
    if hint in _SIMPLE:
        return lambda items: tuple(items) if _all_fit(hint, items) else None
    if isinstance(hint, type) and _is_record(hint):
        hints = _annotated(hint)
        if len(hints) > 1 and all(of in _SIMPLE for of in hints.values()):
            return _rows_reader(hint, hints)
    return lambda items: None


def _rows_reader(cls: type[object], hints: Mapping[str, object]) -> _BulkReader:
    """The reader of records of simple fields, which reads one field of all records at a time."""
    values = itemgetter(*hints)

    def read(items: list[Json]) -> tuple[object, ...] | None:
        if {*map(type, items)} != {dict}:
            return None
        objects = cast("list[dict[str, Json]]", items)
        if not all(one.keys() == hints.keys() for one in objects):
            return None
        rows = [*map(values, objects)]
        columns = zip(hints.values(), zip(*rows, strict=True), strict=True)
        return tuple(starmap(cls, rows)) if all(_all_fit(*column) for column in columns) else None

    return read


def _all_fit(hint: object, values: Sequence[Json]) -> bool:
    """Whether all values, at least one, have a simple type and are within its limits."""
    if {*map(type, values)} != {hint}:
        return False
    if hint is str:
        return max(map(len, cast("Sequence[str]", values))) <= MAX_TEXT
    numbers = cast("Sequence[int]", values)
    return min(numbers) >= -MAX_INT and max(numbers) <= MAX_INT


def _mapping_reader(read: _Reader) -> _Reader:
    def read_mapping(value: Json) -> object:
        if not isinstance(value, dict):
            raise Mismatch(f"expected an object, found {_described(value)}")
        items: dict[str, object] = {}
        for key, item in value.items():
            try:
                items[key] = read(item)
            except Mismatch as error:
                raise error.inside(key) from None
        return items

    return read_mapping


def _annotated(cls: type[object]) -> dict[str, object]:
    """The types of a record's fields."""
    found = cls.__annotations__
    # Most records have evaluated annotations; `get_type_hints` would take a millisecond.
    deferred = any(isinstance(hint, ForwardRef) for hint in found.values())
    return get_type_hints(cls) if deferred else found


@cache
def _record_reader(cls: type[T]) -> _Reader:
    hints = _annotated(cls)
    readers = [(name, _reader(hint)) for name, hint in hints.items()]

    def read(value: Json) -> object:
        if not isinstance(value, dict):
            raise Mismatch(f"expected an object, found {_described(value)}")
        if len(value) != len(readers) or value.keys() != hints.keys():
            raise _wrong_keys(set(hints), set(value))
        items: list[object] = []
        try:
            for name, read_field in readers:
                items.append(read_field(value[name]))
        except Mismatch as error:
            raise error.inside(readers[len(items)][0]) from None
        return cls(*items)

    return read


def _wrong_keys(known: set[str], found: set[str]) -> Mismatch:
    if missing := known - found:
        return Mismatch(f"{min(missing)!r} is missing")
    return Mismatch(f"{min(found - known)[:40]!r} is not a key of it")


def _described(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return f"the number {str(value)[:24]}"
        case str():
            return f"the text {value[:24]!r}"
        case list():
            return "a list"
        case dict():
            return "an object"
