"""In which order examples come, and where an epoch goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from dlc.runtime.artifact.manifest import Input
from dlc.runtime.data import Dataset, open_data, source_of
from dlc.runtime.data.order import order
from dlc.runtime.data.prefetch import made_ahead
from dlc.runtime.system.buffers import address
from tests.runtime.data.sources import LABEL, X, Y, in_order, part


def numbered(count: int) -> Dataset:
    """Examples that hold their own number."""
    arrays = {"x": np.arange(2 * count, dtype=np.float32).reshape(-1, 2), "y": np.arange(count)}
    return open_data(None, [X, Y], override=arrays)


def labels(data: Dataset, epoch: int, seed: int, batch: int, start: int = 0) -> list[int]:
    """The numbers of the examples in the order in which they come."""
    batches = data.batches(epoch, batch, seed, start)
    return [number for found in batches for number in found["y"].tolist()]


def test_the_order_is_that_of_the_raw_words_of_philox() -> None:
    # Written down, so that another version of NumPy that changed it would be noticed.
    assert order(8, 1, 1).tolist() == [0, 6, 5, 3, 4, 7, 2, 1]
    assert order(8, 2**64 - 1, 1).tolist() == [3, 7, 2, 5, 4, 0, 6, 1]
    assert order(0, 1, 1).tolist() == []


def test_the_words_are_those_of_the_published_algorithm() -> None:
    low = (1 << 64) - 1

    def rounds(counter: list[int], key: list[int]) -> list[int]:
        for _ in range(10):
            first, second = counter[0] * 0xD2E7470EE14C6C93, counter[2] * 0xCA5A826395121157
            counter = [
                (second >> 64) ^ counter[1] ^ key[0],
                second & low,
                (first >> 64) ^ counter[3] ^ key[1],
                first & low,
            ]
            key = [(key[0] + 0x9E3779B97F4A7C15) & low, (key[1] + 0xBB67AE8584CAA73B) & low]
        return counter

    words = [word for block in (1, 2, 3) for word in rounds([block, 0, 0, 0], [5, 9])]
    expected = sorted(range(10), key=lambda number: words[number])
    assert order(10, 5, 9).tolist() == expected


def test_every_epoch_has_every_example_once_in_an_order_of_its_own() -> None:
    data = numbered(100)
    epochs = [labels(data, epoch, 3, 32) for epoch in range(3)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [len(batch["y"]) for batch in data.batches(0, 32, 3)] == [32, 32, 32, 4]
    assert labels(data, 0, 4, 32) != epochs[0]


def test_an_example_stays_together() -> None:
    for batch in numbered(50).batches(1, 7, seed=2):
        assert batch["x"][:, 0].tolist() == [2 * number for number in batch["y"].tolist()]


def test_the_order_is_the_same_in_a_second_run_and_for_any_size_of_batch() -> None:
    whole = labels(numbered(20), 2, 7, 20)
    assert labels(numbered(20), 2, 7, 3) == whole
    assert labels(numbered(20), 2, 7, 6, start=12) == whole[12:]


@pytest.mark.parametrize("start", [0, 4, 8, 10])
def test_an_epoch_goes_on_from_any_position(start: int) -> None:
    rest = labels(numbered(10), 5, 1, 4)[start:]
    assert labels(numbered(10), 5, 1, 4, start=start) == rest


def test_batches_are_written_into_the_callers_arrays_in_turn() -> None:
    data = numbered(10)
    sets = data.buffers(4, 2)
    assert all(address(array) % 64 == 0 for found in sets for array in found.values())
    assert [sets[0]["x"].shape, sets[1]["y"].shape] == [(4, 2), (4,)]
    expected = [batch["y"].tolist() for batch in data.batches(0, 4, 1)]
    for ahead in (0, 5):
        seen: list[list[int]] = []
        for number, batch in enumerate(data.batches(0, 4, 1, out=sets, ahead=ahead)):
            assert np.shares_memory(batch["y"], sets[number % 2]["y"])
            seen.append(batch["y"].tolist())
        assert seen == expected


def test_batches_made_ahead_are_the_same() -> None:
    data = numbered(1000)
    plain = [batch["y"].tolist() for batch in data.batches(3, 7, 1, ahead=0)]
    assert [batch["y"].tolist() for batch in data.batches(3, 7, 1, ahead=3)] == plain


def test_a_batch_is_contiguous_and_has_the_wanted_dtypes() -> None:
    for batch in numbered(10).batches(0, 4, 1):
        assert batch["x"].dtype == np.float32 and batch["y"].dtype == np.int32
        assert all(array.flags.c_contiguous for array in batch.values())


def test_large_batches_are_made_ahead_by_themselves() -> None:
    arrays = {"x": np.zeros((8, 1 << 18), np.float32), "y": np.zeros(8, np.int32)}
    batches = open_data(None, [X, Y], override=arrays).batches(0, 1, 1)
    next(batches)
    assert workers() == 1
    batches.close()
    assert workers() == 0


# ------------------------------------------------------------------------------------ made ahead


def test_without_a_thread_things_are_made_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    made: list[int] = []
    things = made_ahead(counted(made, 5), 3)
    assert next(things) == 0
    assert made == [0]
    assert list(things) == [1, 2, 3, 4]


def counted(made: list[int], count: int = 100) -> Iterator[int]:
    for number in range(count):
        made.append(number)
        yield number


def workers() -> int:
    """How many threads prepare something."""
    return sum(thread.name == "dlc-data" for thread in threading.enumerate())


def settled(made: list[int]) -> int:
    """How many things are made once nothing more happens."""
    seen = -1
    while seen != len(made):
        seen = len(made)
        time.sleep(0.05)
    return seen


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_no_more_is_made_ahead_than_asked_for(ahead: int) -> None:
    made: list[int] = []
    things = made_ahead(counted(made), ahead)
    assert next(things) == 0
    assert settled(made) == ahead + 1
    assert next(things) == 1
    assert settled(made) == ahead + 2
    things.close()


def test_everything_arrives_in_order_and_the_thread_ends() -> None:
    assert list(made_ahead(counted([], 1000), 3)) == list(range(1000))
    assert workers() == 0


def test_leaving_early_ends_the_thread() -> None:
    for number in made_ahead(counted([]), 2):
        if number == 5:
            break
    assert workers() == 0


class Broken(BaseException):
    """Not one of Python's errors."""


@pytest.mark.parametrize("error", [ValueError, Broken])
def test_an_error_while_making_arrives_at_the_caller_after_what_was_made(
    error: type[BaseException],
) -> None:
    def things() -> Iterator[int]:
        yield from range(3)
        raise error("no more")

    seen: list[int] = []
    with pytest.raises(error, match="no more"):
        seen.extend(made_ahead(things(), 2))
    assert seen == [0, 1, 2]


def test_nothing_is_made_before_the_first_is_asked_for() -> None:
    made: list[int] = []
    things = made_ahead(counted(made), 2)
    assert settled(made) == 0
    things.close()


# ------------------------------------------------------------------------------------ the test part


def split(count: int, seed: int, **settings: bool | float) -> tuple[list[int], list[int]]:
    source = source_of("npz", "", {}, dict(settings))
    arrays = {"label": np.arange(count)}
    data = open_data(source, [LABEL], override=arrays, seed=seed)
    return sorted(in_order(data)["label"].tolist()), in_order(part(data))["label"].tolist()


def test_the_seed_chooses_what_is_kept_for_the_test() -> None:
    train, kept = split(1000, 1, test=0.2)
    assert len(kept) == 200 and sorted(train + kept) == list(range(1000))
    assert kept == sorted(kept), "the test is in the order of the source"
    assert kept != list(range(800, 1000)), "classes may come one after another"
    assert split(1000, 1, test=0.2) == (train, kept)
    assert split(1000, 2, test=0.2)[1] != kept


def test_without_shuffling_the_test_has_the_last_examples() -> None:
    train, kept = split(10, 1, test=0.3, shuffle=False)
    assert (train, kept) == (list(range(7)), [7, 8, 9])


def test_the_limit_counts_both_parts() -> None:
    train, kept = split(1000, 1, test=0.25, limit=100)
    assert (len(train), len(kept)) == (75, 25)
    train, kept = split(1000, 1, test=0.25, limit=100, shuffle=False)
    assert (train, kept) == (list(range(75)), list(range(75, 100)))


def test_a_wanted_input_may_be_called_anything() -> None:
    data = open_data(None, [Input("π", "f64", ("n", "3"))], override={"π": np.zeros((2, 3))})
    assert data.count == 2
