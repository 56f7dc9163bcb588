"""Lifetimes: from which wave to which the plan keeps each value in memory, through loops and branches.

`liveness.py` estimates the same before there are waves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dlc.dialects import flow, kernel
from dlc.ir.core import Value
from dlc.planning.measured_sizes import Reads
from dlc.planning.waves import Choice, Item, Loop, Origins, Wave


@dataclass(slots=True)
class Lifetimes:
    """Liveness by wave: which wave writes each value, which read it, and the last that needs it."""

    reads_of: Reads
    written: dict[Value, int] = field(default_factory=dict[Value, int])
    last: dict[Value, int] = field(default_factory=dict[Value, int])
    reads: dict[Value, list[tuple[int, kernel.Kernel | None]]] = field(
        default_factory=dict[Value, list[tuple[int, "kernel.Kernel | None"]]]
    )


def lifetimes(items: list[Item], origins: Origins, reads: Reads) -> Lifetimes:
    """The lifetime of each value; a value from outside that a loop reads lives to the end of the loop."""
    lives = Lifetimes(reads)
    _walk(items, origins, lives, ())
    return lives


def _walk(items: list[Item], origins: Origins, lives: Lifetimes, loops: tuple[Loop, ...]) -> None:
    for item in items:
        match item:
            case Wave(number, kernels):
                for op in kernels:
                    for result in op.results:
                        lives.written.setdefault(origins[result], number)
                    for operand in lives.reads_of(op):
                        _use(operand, number, op, origins, lives, loops)
            case Loop():
                _walk_loop(item, origins, lives, loops)
            case Choice():
                _use(item.op.condition, item.first, None, origins, lives, loops)
                for result in item.op.results:
                    lives.written[result] = item.first
                _walk(item.then, origins, lives, loops)
                _walk(item.otherwise, origins, lives, loops)


def _walk_loop(item: Loop, origins: Origins, lives: Lifetimes, loops: tuple[Loop, ...]) -> None:
    op = item.op
    for value in op.initial:
        _use(value, item.enter, None, origins, lives, loops)
    for result in op.results:
        lives.written[result] = item.enter
        lives.last[result] = item.leave
    inner_loops = (*loops, item)
    _walk(item.test, origins, lives, inner_loops)
    if isinstance(op, flow.While):
        (condition,) = op.condition.terminator.operands
        _use(condition, max(item.enter, _last_wave(item.test)), None, origins, lives, inner_loops)
    _walk(item.body, origins, lives, inner_loops)
    for value in op.body.terminator.operands:
        _use(value, item.leave, None, origins, lives, inner_loops)
    for value in lives.reads_of.counts(op):
        _use(value, item.leave, None, origins, lives, loops)
    if isinstance(op, flow.Scan):
        for value in op.xs:
            _use(value, item.leave, None, origins, lives, loops)


def _last_wave(items: list[Item]) -> int:
    return max((wave.number for wave in waves_of(items)), default=-1)


def waves_of(items: list[Item]) -> Iterator[Wave]:
    """All waves in program order, also those in loops and branches."""
    for item in items:
        match item:
            case Wave():
                yield item
            case Loop():
                yield from waves_of(item.test)
                yield from waves_of(item.body)
            case Choice():
                yield from waves_of(item.then)
                yield from waves_of(item.otherwise)


def _use(
    value: Value,
    wave: int,
    op: kernel.Kernel | None,
    origins: Origins,
    lives: Lifetimes,
    loops: tuple[Loop, ...],
) -> None:
    origin = origins[value]
    lives.reads.setdefault(origin, []).append((wave, op))
    written = lives.written.get(origin, -1)
    last_wave = wave
    for loop in loops:
        if written < loop.enter:
            last_wave = max(last_wave, loop.leave)
    lives.last[origin] = max(lives.last.get(origin, 0), last_wave)
