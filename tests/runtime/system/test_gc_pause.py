"""The collector of cyclic garbage rests where much is made and kept."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.runtime.system import gc_pause
from dlc.runtime.system.gc_pause import without_collections

TEXT = "dlc 1\nexport fn f(x: f32) -> f32 = 2 * x\n"
FEW = 20
"""Collections of what is done before and after; the load itself would have hundreds."""


def test_it_goes_on_afterwards_also_after_a_failure() -> None:
    assert gc.isenabled()
    with pytest.raises(AssertionError, match="rests"), without_collections():
        assert gc.isenabled(), "it rests"
    assert gc.isenabled()


def test_it_stays_as_it_was_where_it_rested_before() -> None:
    with without_collections():
        with without_collections():
            pass
        assert not gc.isenabled()


@pytest.mark.parametrize("frozen", [False, True])
def test_many_new_objects_are_left_to_the_next_pause(
    monkeypatch: pytest.MonkeyPatch, frozen: bool
) -> None:
    monkeypatch.setattr(gc_pause, "FEW", 1000)
    monkeypatch.setattr(gc_pause, "MANY", 1000)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: int(frozen))
    with without_collections():
        kept: list[list[object]] = [[] for _ in range(5000)]
    young = {id(each) for each in gc.get_objects(generation=0)}
    assert {id(each) in young for each in kept} == {frozen}
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    for _ in range(2):
        with without_collections():
            pass
    assert collected == ([] if frozen else [1])
    gc.freeze()  # as it is while tests run


def test_those_of_several_pauses_are_collected_when_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc_pause, "FEW", 1000)
    monkeypatch.setattr(gc_pause, "MANY", 12_000)
    monkeypatch.setattr(gc_pause, "_uncollected", [])
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    kept: list[list[list[object]]] = []
    pauses: list[int] = []
    for _ in range(5):
        with without_collections():
            kept.append([[] for _ in range(5000)])
        pauses.append(len(collected))
    assert pauses == [0, 0, 0, 1, 1]
    gc.freeze()  # as it is while tests run


def test_after_few_new_objects_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many others are young: to count the frozen ones takes milliseconds."""
    monkeypatch.setattr(gc_pause, "FEW", 1000)
    counted: list[int] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(1))
    threshold = gc.get_threshold()
    gc.set_threshold(0)  # they stay young
    try:
        kept: list[list[object]] = [[] for _ in range(5000)]
        assert gc.get_count()[0] > 1000
        with without_collections():
            kept.append([])
    finally:
        gc.set_threshold(*threshold)
    assert not counted


def test_a_model_is_loaded_without_collections(tmp_path: Path) -> None:
    path = tmp_path / "model.dlc"
    dlc.compile(text=TEXT).save(path)
    with _counted() as collections:
        model = dlc.load(path)
    assert len(collections) < FEW
    assert np.asarray(model.f(3.0)) == 6


@contextmanager
def _counted() -> Generator[list[str]]:
    """The collections meanwhile, which come as often as they can."""
    found: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(phase)

    threshold = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        yield found
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(note)
