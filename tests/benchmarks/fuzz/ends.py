"""Checks that end in each way, in a module that imports little: each process of a pool imports it anew."""

from __future__ import annotations

import os
import signal
import time

from benchmarks.fuzz.cases import Check, Outcome


def kinds_of_ends() -> Check:
    """A check that agrees, is refused, ends its process, or never answers, by the seed."""

    def check(seed: int) -> Outcome:
        if seed % 4 == 1:
            os.abort()
        if seed % 4 == 2:
            time.sleep(60)
        if seed % 4 == 3:
            raise KeyError(seed)
        return Outcome("agreed", count=2)

    return check


def ends_the_run() -> Check:
    """A check that agrees or is refused; that of seed 12 tells the fuzzer to end."""

    def check(seed: int) -> Outcome:
        if seed == 12:
            os.kill(os.getppid(), signal.SIGTERM)
        return Outcome("refused", f"D0301 {seed}") if seed % 2 else Outcome("agreed", count=2)

    return check


def a_slow_one() -> Check:
    """A check that takes a second."""

    def check(seed: int) -> Outcome:
        del seed
        time.sleep(1)
        return Outcome("agreed")

    return check


def no_check() -> Check:
    """What does not even start."""
    os.abort()
