"""Changing compiled files so that what they say is wrong, and sealing them again with correct digests."""

from __future__ import annotations

import random
from typing import cast

from tests.runtime.artifact.sealing import Json, put_together, take_apart


def mutated_artifact(random_: random.Random, file: bytes) -> bytes:
    """The file with a few bytes, or a few values of its manifest, changed; half of them sealed again."""
    if random_.random() < 0.5:
        return _scratched(random_, file)
    manifest, sections = take_apart(file)
    if random_.random() < 0.5:
        name = random_.choice(list(sections))
        sections[name] = _scratched(random_, sections[name])
    else:
        change_somewhere(random_, manifest)
    return put_together(manifest, sections)


def _scratched(random_: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(changed) + 1)
        match random_.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([random_.randrange(256)])
            case 1:
                del changed[at : at + random_.randint(1, 64)]
            case 2:
                changed[at:at] = random_.randbytes(random_.randint(1, 64))
            case _:
                changed[at : at + 8] = random_.choice([0, 1, -1, 1 << 62]).to_bytes(
                    8, "little", signed=True
                )
    return bytes(changed)


_VALUES: tuple[Json, ...] = (
    *(None, True, 0, 1, -1, 7, 64, 1 << 40, 1 << 62, "", "0", "B", "$1", "-B", "f32", "x" * 5000),
    *([], {}, [0], [[]], {"shape": [1], "data": "AAAA"}, "\x00", "é", "//", "program/cpu/f"),
)


def change_somewhere(random_: random.Random, manifest: dict[str, Json]) -> None:
    place: Json = manifest
    while True:
        keys: list[str | int] = (
            list(range(len(place)))
            if isinstance(place, list)
            else [*cast("dict[str, Json]", place)]
        )
        if not keys:
            return
        key = random_.choice(keys)
        inner = inside(place, key)
        if isinstance(inner, dict | list) and inner and random_.random() < 0.9:
            place = inner
            continue
        if isinstance(place, list):
            place[cast(int, key)] = random_.choice(_VALUES)
        else:
            cast("dict[str, Json]", place)[cast(str, key)] = random_.choice(_VALUES)
        return


def inside(place: Json, part: str | int) -> Json:
    """What a list or an object of JSON has at a place."""
    if isinstance(place, list):
        assert isinstance(part, int)
        return place[part]
    assert isinstance(place, dict)
    assert isinstance(part, str)
    return place[part]
