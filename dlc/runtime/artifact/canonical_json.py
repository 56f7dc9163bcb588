"""JSON in exactly one spelling, so that equal facts have equal bytes.

UTF-8 without a byte-order mark, keys sorted by code point, no white space, no numbers but integers,
characters escaped only where JSON demands it. Reading accepts that spelling only.

>>> dump({"b": [1, None], "a": "é"})
b'{"a":"\\xc3\\xa9","b":[1,null]}'
"""

from __future__ import annotations

import json
from typing import Never, TypeAlias, cast

from dlc.runtime.system.stack import check_json_depth

Json: TypeAlias = "None | bool | int | str | list[Json] | dict[str, Json]"
"""What canonical JSON holds."""

MAX_ENTRIES = 4_000_000
"""List items and object members of one document."""


class BadJson(ValueError):
    """The bytes are not canonical JSON; the message says why."""


def dump(value: Json) -> bytes:
    """The one spelling of a value."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


def load(data: bytes) -> Json:
    """The value that canonical JSON spells; raises BadJson for anything else, repeated keys included.

    How deep it may be nested is up to whoever reads the value: a schema has a depth of its own.
    """
    if data.count(b",") > MAX_ENTRIES:
        raise BadJson(f"it has more than {MAX_ENTRIES} entries")
    try:
        check_json_depth(data)
        text = data.decode("utf-8")
        value = cast(Json, json.loads(text, parse_float=_refuse, parse_constant=_refuse))
        # Spelling it again finds white space, key order, repeated keys and lone surrogates alike.
        same = dump(value) == data
    except RecursionError:
        raise BadJson("it is nested too deep") from None
    except ValueError as error:
        raise BadJson(f"it is not JSON: {error}") from None
    if not same:
        raise BadJson("it is JSON, but not in its canonical spelling")
    return value


def _refuse(text: str) -> Never:
    raise ValueError(f"the number {text} is not an integer")
