"""Spin times of the engine's threads before they sleep on a futex, on a processor of about 2.5 GHz."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waits:
    """Time-stamp cycles that the engine spends looking before it gives the processor away."""

    spin_cycles: int = 20_000
    """Between waves: look at memory only. About 8 microseconds."""
    yield_cycles: int = 2_000_000
    """Between waves, from the beginning of the wait: let others run meanwhile. About 0.8 milliseconds."""
    nap_nanoseconds: int = 100_000
    """At the end of a wave, after that: the caller sleeps so long between two looks."""
    linger_cycles: int = 200_000
    """After a call a worker looks for more work so long before it sleeps. About 80 microseconds."""


X86_64 = Waits()
