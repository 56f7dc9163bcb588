"""`dlc cache`: what the cache on disk holds."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Command


@pytest.fixture
def objects(dlc: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new cache, in which one model was compiled."""
    monkeypatch.setenv("DLC_CACHE", str(folder / "cache"))
    assert dlc("compile", "rows.dlm", "-o", "rows.dlc").code == 0
    return folder / "cache"


def test_the_list_names_models_and_their_entry_points(dlc: Command, objects: Path) -> None:
    done = dlc("cache", "ls", "--json")
    entries = json.loads(done.out)["entries"]
    programs = [entry for entry in entries if entry["kind"] == "program"]
    assert [(p["model"], p["entry_points"]) for p in programs] == [("rows.dlm", ["f"])]
    assert sum(entry["bytes"] for entry in entries) == sum(
        path.stat().st_size for path in objects.glob("*/*.o")
    )
    assert "program  rows.dlm" in dlc("cache").out


def test_an_entry_is_explained_by_the_beginning_of_its_key(dlc: Command, objects: Path) -> None:
    entries = json.loads(dlc("cache", "ls", "--json").out)["entries"]
    key = next(entry["key"] for entry in entries if entry["kind"] == "program")
    assert "the compiled rows.dlm with the entry points f" in dlc("cache", "explain", key).out
    assert str(objects) in dlc("cache", "explain").out
    assert "D0961" in dlc("cache", "explain", "zz").err


def test_only_what_is_old_or_damaged_is_dropped(dlc: Command, objects: Path) -> None:
    files = sorted(objects.glob("*/*.o"))
    assert json.loads(dlc("cache", "prune", "--json").out)["entries"] == []
    files[0].write_bytes(b"torn")
    dropped = json.loads(dlc("cache", "prune", "--json").out)["entries"]
    assert [entry["kind"] for entry in dropped] == ["damaged"]
    long_ago = time.time() - 40 * 86_400
    for path in files[1:]:
        os.utime(path, (long_ago, long_ago))
    dlc("cache", "prune")
    assert list(objects.glob("*/*.o")) == []


def test_without_a_cache_the_verb_says_so(dlc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_CACHE", "")
    assert "D0962" in dlc("cache", "ls").err
