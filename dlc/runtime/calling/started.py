"""Calls that were started, whose results are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Started(Protocol):
    """A call that was started. It may be over."""

    def numbers(self) -> Sequence[float]:
        """Wait for it; its results that overwrite no input. Raises CallError if it has failed."""
        ...


class Done(NamedTuple):
    """A call that is over."""

    found: Sequence[float]

    def numbers(self) -> Sequence[float]:
        return self.found


class Binding(Protocol):
    """An entry point with some of its arguments bound."""

    def start(self, values: Sequence[object], *, wait: bool) -> Started:
        """Begin a call with the other arguments in order; with `wait`, it will be waited for at once."""
        ...

    def settle(self) -> None:
        """Wait until all calls are over."""
        ...


class StreamFunction(Protocol):
    """An entry point whose calls are put into a stream of CUDA and not waited for."""

    def __call__(self, /, *args: object, out: object = None, **named: object) -> object:
        """Put a call into the stream; its results lie on the GPU."""
        ...

    def wait(self) -> None:
        """Wait for the stream. Raises CallError for a call that has failed."""
        ...
