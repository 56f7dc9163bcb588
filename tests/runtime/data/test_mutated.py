"""Files with random damage: they are read, or refused in dlc's own form, and soon."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from dlc.errors import DlcError
from tests.runtime.data.damaged import KINDS, mutated

LIMIT = 5.0
"""Seconds that reading one file may take, also where it claims to be the largest picture allowed."""


def check(folder: Path, kind: str, count: int) -> None:
    whole, read = KINDS[kind](folder)
    chance = random.Random(kind)
    refused = 0
    for number in range(count):
        data = mutated(whole, chance) if number else whole
        path = folder / "mutated"
        path.write_bytes(data)
        began = time.process_time()
        try:
            read(path)
        except DlcError:
            assert number, "the whole file can be read"
            refused += 1
        except Exception as error:
            raise AssertionError(f"{kind} {number}: {data[:200]!r}") from error
        assert time.process_time() - began < LIMIT, (kind, number)
    assert refused > count / 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, kind: str) -> None:
    check(tmp_path, kind, 60)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_damaged_files_are_read_or_refused(tmp_path: Path, kind: str) -> None:
    check(tmp_path, kind, 10_000)
