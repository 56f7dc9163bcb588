"""What a training says while it goes on."""

from __future__ import annotations

import io

import pytest

from dlc.runtime.training.progress import ProgressLine


class Terminal(io.StringIO):
    """A stream that a person watches."""

    def isatty(self) -> bool:
        return True

    def rows(self) -> list[str]:
        """What stands in each row at the end."""
        return [row.split("\r")[-1].removesuffix("\x1b[K") for row in self.getvalue().split("\n")]


class Clock:
    """Seconds that go by only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def trained(clock: Clock, line: ProgressLine, seconds: float) -> None:
    """An epoch of 10 batches of 50 that takes so long."""
    for number in range(10):
        clock.now += seconds / 10
        line.step(50, {"loss": 1 / (number + 1)})


def test_a_file_gets_one_line_for_each_epoch() -> None:
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine(stream, 2, 500, clock=clock)
    for _ in range(2):
        trained(clock, line, 5)
        line.end_epoch({"loss": 0.123456, "accuracy": 0.5})
    line.close()
    assert stream.getvalue().split("\n") == [
        "epoch 1/2  loss 0.1235  accuracy 0.5  100 samples/s  0:05 left",
        "epoch 2/2  loss 0.1235  accuracy 0.5  100 samples/s",
        "",
    ]


def test_a_file_gets_a_line_now_and_then_in_a_long_epoch() -> None:
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine(stream, 10, 500, clock=clock)
    trained(clock, line, 100)
    assert stream.getvalue().split("\n") == [
        "epoch  1/10  [######--------------]  30%  loss 0.3333  5 samples/s  16:10 left",
        "epoch  1/10  [############--------]  60%  loss 0.1667  5 samples/s  15:40 left",
        "epoch  1/10  [##################--]  90%  loss 0.1111  5 samples/s  15:10 left",
        "",
    ]


def test_a_terminal_has_one_line_that_changes() -> None:
    stream, clock = Terminal(), Clock()
    line = ProgressLine(stream, 2, 500, clock=clock)
    trained(clock, line, 5)
    drawn = stream.getvalue()
    assert drawn.count("\r") == 10 and "\n" not in drawn
    assert "[##########----------]  50%" in drawn
    line.end_epoch({"loss": 0.25})
    trained(clock, line, 5)
    line.close()
    assert stream.rows() == [
        "epoch 1/2  loss 0.25  100 samples/s  0:05 left",
        "epoch 2/2  [####################] 100%  loss 0.1  100 samples/s",
        "",
    ]


def test_a_terminal_is_not_drawn_on_too_often() -> None:
    stream, clock = Terminal(), Clock()
    line = ProgressLine(stream, 1, 1000, clock=clock)
    for _ in range(1000):
        clock.now += 0.001
        line.step(1, {"loss": 1.0})
    assert 5 <= stream.getvalue().count("\r") <= 10


def test_a_line_is_never_longer_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream, clock = Terminal(), Clock()
    line = ProgressLine(stream, 1, 500, clock=clock)
    trained(clock, line, 5)
    assert max(len(row) for row in stream.rows()) == 29


def test_closing_leaves_the_line_once() -> None:
    stream, clock = Terminal(), Clock()
    line = ProgressLine(stream, 1, 500, clock=clock)
    line.close()
    assert stream.getvalue() == ""
    trained(clock, line, 5)
    line.close()
    line.close()
    assert stream.getvalue().count("\n") == 1


def test_the_time_that_measuring_takes_slows_nothing_down() -> None:
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine(stream, 2, 500, clock=clock)
    trained(clock, line, 5)
    clock.now += 5
    line.end_epoch({})
    assert stream.getvalue() == "epoch 1/2  100 samples/s  0:10 left\n"


def test_a_stream_says_how_long_it_was_after_one_epoch() -> None:
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine(stream, 3, None, clock=clock)
    trained(clock, line, 60)
    line.end_epoch({})
    first, _, second, _ = stream.getvalue().split("\n")
    assert first == "epoch 1/3  loss 0.2  8 samples/s", "nobody knows how much is left"
    assert second == "epoch 1/3  8 samples/s  2:00 left"


def test_a_resumed_training_counts_only_what_it_did_itself() -> None:
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine(stream, 4, 1000, epoch=2, position=500, clock=clock)
    trained(clock, line, 5)
    line.end_epoch({})
    assert stream.getvalue() == "epoch 3/4  100 samples/s  0:10 left\n"
