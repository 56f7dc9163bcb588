"""Structured damage: JSON trees, protobuf messages and texts that say what nobody would write."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from random import Random
from typing import Any, TypeAlias, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.fuzz.mutation import mutated_text
from tests.runtime.artifact.sealing import Json

WORDS: tuple[str, ...] = (
    *("", "0", "-1", "f32", "B", "$0", "a" * 5_000, "9" * 5_000, "٣", "\x00", "\u202e", "..", "/"),
    *("//", "B//0", "(" * 3_000, "1+" * 1_500 + "1", "NaN", "\ud7ff", "é", "../../etc/passwd"),
)
NUMBERS: tuple[int, ...] = (
    *(0, 1, -1, 2, 7, 63, 64, 255, 256, 1 << 15, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32),
    *(1 << 40, 1 << 62, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63), 10**6, 10**9),
)
Place: TypeAlias = "tuple[Json, str | int]"
"""What holds something in a tree, and the key or the number there."""
MANY: tuple[int, ...] = (2, 2, 3, 10, 100, 1_000, 4_000)
"""How often something is repeated."""
LARGEST = 4 << 20
"""Bytes that repetition may make."""


def random_json(random: Random, depth: int = 0) -> Json:
    """Some JSON."""
    match random.randrange(7 if depth < 3 else 5):
        case 0:
            return None
        case 1:
            return random.random() < 0.5
        case 2 | 3:
            return random.choice(NUMBERS)
        case 4:
            return random.choice(WORDS)
        case 5:
            return [random_json(random, depth + 1) for _ in range(random.choice((0, 1, 3)))]
        case _:
            return {random.choice(WORDS): random_json(random, depth + 1) for _ in range(2)}


def change_json(random: Random, tree: dict[str, Json]) -> None:
    """Change something in the tree: a value, a key, or a list whose rows are repeated, under new names."""
    places, inner = _places(tree)
    if not places:
        return
    # A list or an object as often as one of the many scalars in them.
    holder, key = random.choice(inner if inner and random.random() < 0.4 else places)
    value = _at(holder, key)
    match value:
        case list() if value and random.random() < 0.7:
            made: Json = _repeated(random, value)
        case dict() if value and random.random() < 0.5:
            made = {**value, random.choice(WORDS): random_json(random)}
            if random.random() < 0.5:
                del made[random.choice([*value])]
        case _:
            other = random.choice(places)
            made = random_json(random) if random.random() < 0.6 else copy.deepcopy(_at(*other))
    cast("dict[str, Json]", holder)[cast(str, key)] = made


def _repeated(random: Random, rows: list[Json]) -> list[Json]:
    """A list with a row many times, or shuffled, or short of one."""
    match random.randrange(4):
        case 0:
            return random.sample(rows, len(rows))
        case 1:
            at = random.randrange(len(rows))
            return rows[:at] + rows[at + 1 :]
        case _:
            row, times = random.choice(rows), random.choice(MANY)
            times = min(times, LARGEST // (len(repr(row)) + 1))
            return rows + [_renamed(row, k) for k in range(times)]


def _renamed(row: Json, number: int) -> Json:
    """A copy of a row under a name of its own."""
    if isinstance(row, dict) and isinstance(row.get("name"), str):
        return {**row, "name": f"{row['name']}.{number}"}
    return row


def _places(tree: dict[str, Json]) -> tuple[list[Place], list[Place]]:
    """Every place in a tree, and those of them where a list or an object stands."""
    found: list[Place] = []
    inner: list[Place] = []
    open_trees: list[dict[str, Json] | list[Json]] = [tree]
    while open_trees:
        holder = open_trees.pop()
        rows = holder.items() if isinstance(holder, dict) else enumerate(holder[:200])
        for key, value in rows:
            found.append((holder, key))
            if isinstance(value, list | dict):
                inner.append((holder, key))
                open_trees.append(value)
    return found, inner


def _at(holder: Json, key: str | int) -> Json:
    return cast("dict[str, Json]", holder)[cast(str, key)]


# Protobuf.


def change_message(random: Random, message: Message) -> None:
    """Change a field somewhere in a message: its number, its text, how often it is there."""
    while True:
        fields = cast("list[tuple[FieldDescriptor, Any]]", message.ListFields())
        if not fields:
            return
        field, value = random.choice(fields)
        if random.random() < 0.05:
            message.ClearField(field.name)
            return
        if field.message_type is not None:
            if not field.is_repeated:
                message = value
                continue
            if random.random() < 0.85:
                message = random.choice(value)
                continue
            _change_rows(random, value)
        elif field.is_repeated:
            _change_numbers(random, field, value)
        else:
            setattr(message, field.name, _hostile(random, field, value))
        return


def _change_rows(random: Random, rows: Any) -> None:  # noqa: ANN401 - protobuf says no more
    at = random.randrange(len(rows))
    match random.randrange(3):
        case 0:
            del rows[at]
        case 1:
            rows[at].CopyFrom(random.choice(rows))
        case _:
            size = rows[at].ByteSize() + 1
            for _ in range(min(random.choice(MANY), (1 << 20) // size)):
                rows.add().CopyFrom(rows[at])


def _change_numbers(random: Random, field: FieldDescriptor, numbers: Any) -> None:  # noqa: ANN401
    at = random.randrange(len(numbers))
    match random.randrange(3):
        case 0:
            del numbers[at]
        case 1:
            numbers.extend([numbers[at]] * random.choice(MANY))
        case _:
            numbers[at] = _hostile(random, field, numbers[at])


def _hostile(random: Random, field: FieldDescriptor, value: object) -> object:
    match value:
        case str():
            return random.choice(WORDS)
        case bytes():
            return value[: random.randrange(len(value) + 1)] + random.randbytes(random.randrange(3))
        case float():
            return random.choice((0.0, -1.0, 1e38, float("inf"), float("nan"), 1e-40))
        case _:
            number = random.choice(NUMBERS)
            if field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_ENUM):
                return (
                    max(-(1 << 31), min(number, (1 << 31) - 1))
                    if field.enum_type is None
                    else value
                )
            return (
                max(-(1 << 63), min(number, (1 << 63) - 1)) if number >= 0 or _signed(field) else 0
            )


def _signed(field: FieldDescriptor) -> bool:
    return field.type not in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_UINT32)


# Texts.


def hostile_text(text: str, others: Sequence[str], random: Random) -> str:
    """A text with other tokens, or with something that is much longer or deeper than anybody writes."""
    if random.random() < 0.75:
        return mutated_text(text, others, random)
    lines = text.split("\n")
    at, times = random.randrange(len(lines)), random.choice(MANY)
    words = lines[at].split(" ")
    word = random.randrange(len(words))
    match random.randrange(5):
        case 0:
            lines[at:at] = [lines[at]] * times
        case 1:
            words[word] = "(" * times + words[word] + ")" * times
        case 2:
            words[word] = " + ".join([words[word]] * times)
        case 3:
            words[word] += random.choice(WORDS)
        case _:
            words[word] = "-" * times + words[word]
    if len(words) > 1 or random.random() < 0.5:
        lines[at] = " ".join(words)
    return "\n".join(lines)[:LARGEST]
