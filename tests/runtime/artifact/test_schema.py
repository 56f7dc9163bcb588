"""The manifest's JSON: one spelling, one schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import pytest

from dlc.runtime.artifact import canonical_json, schema
from dlc.runtime.artifact.canonical_json import BadJson, Json
from dlc.runtime.artifact.manifest import Manifest
from dlc.runtime.artifact.schema import Mismatch
from tests.runtime import building


class Inner(NamedTuple):
    text: str
    flag: bool = False


class Outer(NamedTuple):
    kind: Literal["a", "b"]
    items: tuple[Inner, ...]
    named: Mapping[str, int]
    maybe: Inner | None = None


OUTER = Outer("a", (Inner("x"), Inner("y", True)), {"one": 1}, Inner("z"))
SPELLED: dict[str, Json] = {
    "kind": "a",
    "items": [{"text": "x", "flag": False}, {"text": "y", "flag": True}],
    "named": {"one": 1},
    "maybe": {"text": "z", "flag": False},
}


def test_a_record_is_spelled_and_read_back() -> None:
    assert schema.encode(OUTER) == SPELLED
    assert schema.decode(Outer, SPELLED) == OUTER


def test_a_manifest_survives_the_way_through_bytes() -> None:
    for draft in (building.tiny(), building.many()):
        manifest = draft.artifact().manifest
        data = canonical_json.dump(schema.encode(manifest))
        assert schema.decode(Manifest, canonical_json.load(data)) == manifest


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "c"}, "kind: expected 'a' or 'b'"),
        ({"kind": ["a"]}, "kind: expected 'a' or 'b', found a list"),
        ({"items": {}}, "items: expected a list, found an object"),
        ({"items": [{"text": "x"}]}, "items.0: 'flag' is missing"),
        ({"items": [{"text": "x", "flag": 0}]}, "items.0.flag: expected true or false"),
        ({"items": [{"text": None, "flag": True}]}, "items.0.text: expected text, found null"),
        ({"named": {"one": True}}, "named.one: expected a number, found true"),
        ({"named": {"one": 1 << 63}}, "named.one: the number is beyond"),
        ({"named": [1]}, "named: expected an object"),
        ({"maybe": 3}, "maybe: expected an object, found the number 3"),
        ({"more": 3}, "'more' is not a key of it"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_to_it(change: dict[str, Json], why: str) -> None:
    with pytest.raises(Mismatch) as caught:
        schema.decode(Outer, {**SPELLED, **change})
    assert why in str(caught.value)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(Mismatch, match="'items' is missing"):
        schema.decode(Outer, {"kind": "a", "named": {}, "maybe": None})


def test_a_text_beyond_the_cap_is_refused() -> None:
    with pytest.raises(Mismatch, match="at most"):
        schema.decode(Inner, {"text": "x" * (schema.MAX_TEXT + 1), "flag": True})


@pytest.mark.parametrize(
    "data",
    [
        b'{"b":1,"a":2}',
        b'{"a": 1}',
        b'{"a":1,"a":1}',
        b'{"a":1.0}',
        b'{"a":1e3}',
        b'{"a":-0}',
        b'{"a":NaN}',
        b'{"a":"\\u00e9"}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":1}\n',
        b"",
        b"{",
        b"nul",
        b'{"a":' + b"9" * 5000 + b"}",
    ],
)
def test_json_in_another_spelling_is_refused(data: bytes) -> None:
    with pytest.raises(BadJson):
        canonical_json.load(data)


def test_nesting_and_entries_have_caps() -> None:
    with pytest.raises(BadJson, match="nested too deep"):
        canonical_json.load(b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(Mismatch, match=r"items.0: expected an object, found a list"):
        schema.decode(Outer, {**SPELLED, "items": [[[[[]]]]]})
    with pytest.raises(BadJson, match="entries"):
        canonical_json.load(b"," * (canonical_json.MAX_ENTRIES + 1))


def test_control_characters_and_every_script_have_one_spelling() -> None:
    value: Json = {"é\n\x00": ["\u2028", "😀", '"\\/']}
    assert canonical_json.load(canonical_json.dump(value)) == value
