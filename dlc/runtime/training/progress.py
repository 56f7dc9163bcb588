"""The progress of a training, in one line on stderr.

A terminal shows one line that is redrawn; a file or a pipe gets a plain line for each epoch, and more of
them during a long epoch.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TextIO

_REDRAW = 0.1
"""Seconds between two redraws of the line."""
_PLAIN = 30.0
"""Seconds between two plain lines within an epoch."""
_BAR = 20
_ERASE = "\x1b[K"


class Progress(NamedTuple):
    """The progress of `Trainer.fit`: after each step, and with `measured` at the end of an epoch."""

    epoch: int
    epochs: int
    step: int
    position: int
    """Number of finished examples of this epoch."""
    examples: int | None
    """Number of examples in an epoch, if it is known."""
    loss: float
    measured: Mapping[str, float] | None = None


class ProgressLine:
    """The progress line of a training of `epochs` epochs.

    `examples` is the number of examples in an epoch, or None if it is known only after the first epoch;
    `epoch` and `position` are those at which a resumed training begins. `clock` returns seconds.

    >>> import sys
    >>> line = ProgressLine(sys.stdout, epochs=2, examples=100, clock=iter([0.0, 1.0, 2.0]).__next__)
    >>> line.step(100, {"loss": 0.5})
    >>> line.end_epoch({"loss": 0.5, "test_accuracy": 0.75})
    epoch 1/2  loss 0.5  test_accuracy 0.75  100 samples/s  0:02 left
    """

    def __init__(
        self,
        stream: TextIO,
        epochs: int,
        examples: int | None,
        *,
        epoch: int = 0,
        position: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._epochs, self._examples = epochs, examples
        self._epoch, self._position = epoch, position
        self._clock = clock
        self._watched = stream.isatty()
        self._began = self._shown = self._epoch_began = self._last_step = clock()
        self._trained = self._done = 0
        self._drawn = False
        self.more = ""
        """What else to say of the speed."""

    def step(self, count: int, values: Mapping[str, float]) -> None:
        """Report `count` more examples, and the measurements of this epoch so far."""
        self._position += count
        self._trained += count
        self._done += count
        self._last_step = now = self._clock()
        if now - self._shown < (_REDRAW if self._watched else _PLAIN):
            return
        self._shown = now
        if self._watched:
            self._stream.write(f"\r{self._fitted(self._text(values, now, bar=True))}{_ERASE}")
            self._stream.flush()
            self._drawn = True
        else:
            self._write_line(self._text(values, now, bar=True))

    def end_epoch(self, values: Mapping[str, float]) -> None:
        """Write the final line of an epoch, with its measurements."""
        now = self._clock()
        if self._examples is None:
            self._examples = self._position
        self._epoch += 1
        self._position = 0
        self._write_line(self._text(values, now, bar=False))
        self._epoch_began = self._shown = now
        self._trained = 0

    def close(self) -> None:
        """End the line, so that later output begins on a new one."""
        if self._drawn:
            self._stream.write("\n")
            self._stream.flush()
            self._drawn = False

    def _write_line(self, text: str) -> None:
        start, end = ("\r", _ERASE) if self._drawn else ("", "")
        self._stream.write(f"{start}{text}{end}\n")
        self._stream.flush()
        self._drawn = False

    def _text(self, values: Mapping[str, float], now: float, *, bar: bool) -> str:
        number = self._epoch + 1 if bar else self._epoch
        parts = [f"epoch {number:{len(str(self._epochs))}}/{self._epochs}"]
        if bar and self._examples:
            parts.append(self._bar(self._position / self._examples))
        parts += [f"{name} {value:.4g}" for name, value in values.items()]
        if rate := self._rate():
            parts.append(f"{rate:,.0f} samples/s")
        if self.more:
            parts.append(self.more)
        if (left := self._left(now)) >= 0.5:
            parts.append(f"{duration(left)} left")
        return "  ".join(parts)

    def _rate(self) -> float:
        """Examples of this epoch per second of training, without the time of the measurements."""
        spent = self._last_step - self._epoch_began
        return self._trained / spent if spent > 0 else 0.0

    def _left(self, now: float) -> float:
        """Estimated seconds until the end at the mean speed so far; 0 if unknown or finished."""
        if not self._examples or not self._done:
            return 0.0
        rest = (self._epochs - self._epoch) * self._examples - self._position
        return max(0.0, (now - self._began) * rest / self._done)

    def _bar(self, part: float) -> str:
        filled = min(_BAR, int(_BAR * part))
        return f"[{'#' * filled}{'-' * (_BAR - filled)}] {min(1.0, part):4.0%}"

    def _fitted(self, text: str) -> str:
        """The text cut to one row of the terminal: a longer line could not be redrawn."""
        return text[: shutil.get_terminal_size().columns - 1]


def duration(seconds: float) -> str:
    """Seconds as minutes and seconds, or hours, minutes and seconds.

    >>> duration(5.2), duration(65), duration(3700), duration(200_000)
    ('0:05', '1:05', '1:01:40', '55:33:20')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
