"""Changing files a little, so that they are wrong in ways nobody thought of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

_TOKEN = re.compile(r'"[^"\n]*"|[%@^#!]?[A-Za-z_][\w.]*|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\s+|\S')
NUMBERS = ("0", "1", "-1", "2", "3", "7", "64", "1e30", "0.5", "-0.0", "4294967296", str(2**63))


def mutated_text(text: str, others: Sequence[str], random: Random) -> str:
    """The text with a few tokens or lines taken out, doubled, swapped, or from another text."""
    for _ in range(random.randint(1, 4)):
        change = random.choice((_a_token, _a_token, _a_token, _a_line, _some_letters))
        text = change(text, random.choice(others), random)
    return text


def _a_token(text: str, other: str, random: Random) -> str:
    tokens = _TOKEN.findall(text) or [""]
    at = random.randrange(len(tokens))
    match random.randrange(5):
        case 0:
            del tokens[at]
        case 1:
            tokens[at] = random.choice(_TOKEN.findall(other))
        case 2:
            tokens.insert(at, random.choice(tokens))
        case 3:
            place = random.randrange(len(tokens))
            tokens[at], tokens[place] = tokens[place], tokens[at]
        case _:
            numbers = [k for k, token in enumerate(tokens) if token[0].isdigit()]
            tokens[random.choice(numbers or [at])] = random.choice(NUMBERS)
    return "".join(tokens)


def _a_line(text: str, other: str, random: Random) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    match random.randrange(3):
        case 0:
            del lines[at]
        case 1:
            lines.insert(random.randrange(len(lines)), lines[at])
        case _:
            lines.insert(at, random.choice(other.split("\n")))
    return "\n".join(lines)


def _some_letters(text: str, other: str, random: Random) -> str:
    at = random.randrange(len(text) + 1)
    end = at + random.choice((0, 1, 5, 40))
    return text[:at] + random.choice(("", chr(random.randrange(1, 0x3000)), "\0")) + text[end:]


def mutated_bytes(data: bytes, random: Random) -> bytes:
    """The data with a few bytes changed, taken out, put in, or moved."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(changed) + 1)
        end = min(len(changed), at + random.choice((1, 2, 8, 64)))
        match random.randrange(5):
            case 0:
                changed[at : at + 1] = bytes((random.randrange(256),))
            case 1:
                del changed[at:end]
            case 2:
                changed[at:at] = random.randbytes(random.randint(1, 16))
            case 3:
                place = random.randrange(len(changed) + 1)
                changed[place:place] = changed[at:end]
            case _:
                changed[at:end] = bytes(end - at)
    return bytes(changed)
