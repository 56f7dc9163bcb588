"""The predicted time of the program of a rank: its waves in order, and what the network does meanwhile.

A wave takes its work, divided among the threads, but at least its longest tile. A collective takes what the
network says. One that is under way sends while later waves compute, where the network can do that beside
the processor, and the rank waits for the rest; collectives are sent one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from dlc.dialects import loop, mem
from dlc.dialects.builtin import Module
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Size, evaluate
from dlc.ir.types import ViewType
from dlc.runtime.abi import COMMUNICATOR
from dlc.target.network import Network

START, WAIT, TEST = "MPI_Iallreduce", "MPI_Wait", "MPI_Test"


@dataclass(frozen=True, slots=True)
class Sent:
    """A kernel that calls a function of MPI, among the ranks along an axis of the mesh."""

    function: str
    axis: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the time depends on besides the program."""

    sizes: Mapping[str, int]
    ranks: Mapping[str, int]
    """By axis of the mesh."""
    network: Network
    threads: int
    barrier: float = 0
    """Nanoseconds for which threads wait for each other at the end of a wave."""
    factor: float = 1.0
    """How many times as long as the cost tables say work takes here."""


@dataclass(slots=True)
class Spent:
    """The time of a program, or of a part of it, in nanoseconds."""

    compute: float = 0
    latency: float = 0
    """Of all collectives, hidden or not."""
    transfer: float = 0
    exposed: float = 0
    """Of collectives, and of values from other stages, while the rank does nothing else."""
    collectives: float = 0
    """How many."""
    messages: float = 0
    """How many values go to other stages."""
    bytes: float = 0
    """That collectives are of, and messages."""
    bubble: float = 0
    """In which stages of a pipeline wait for each other: a part of what is exposed."""
    idle: float = 0
    """What the bubble would be if values took no time on their way."""
    stages: tuple[float, ...] = ()
    """What each stage of a pipeline computes, of which `compute` is the mean."""

    @property
    def total(self) -> float:
        """The time of the whole."""
        return self.compute + self.exposed

    def add(self, other: Spent, times: float = 1) -> None:
        """Let it be of a further part, which runs so often."""
        self.compute += times * other.compute
        self.latency += times * other.latency
        self.transfer += times * other.transfer
        self.exposed += times * other.exposed
        self.collectives += times * other.collectives
        self.messages += times * other.messages
        self.bytes += times * other.bytes


def sent_by(module: Module) -> dict[str, Sent]:
    """The kernels of a module at loop level that send, by name."""
    found: dict[str, Sent] = {}
    for kernel in module.body:
        name = kernel.attributes.get("sym_name")
        inner = list(kernel.walk()) if not isinstance(kernel, mem.Program) else []
        calls = [op.callee for op in inner if isinstance(op, loop.Call)]
        functions = [callee for callee in calls if callee.startswith("MPI_")]
        if functions and isinstance(name, str):
            words = [op.symbol for op in inner if isinstance(op, loop.Imported)]
            axes = [word.removeprefix(COMMUNICATOR) for word in words if COMMUNICATOR in word]
            found[name] = Sent(functions[0], next(iter(axes), ""))
    return found


class OneProgram(NamedTuple):
    """The program that each rank runs."""

    program: mem.Program
    kernels: Mapping[str, Sent]

    def time(self, at: Conditions) -> Spent:
        """The predicted time of a call of it."""
        return time_of(self.program, self.kernels, at)


def time_of(program: mem.Program, kernels: Mapping[str, Sent], conditions: Conditions) -> Spent:
    """The predicted time of a call of the program on each rank."""
    return _Timeline(kernels, conditions).block(program.regions[0])


@dataclass(slots=True)
class _Timeline:
    kernels: Mapping[str, Sent]
    at: Conditions
    ends: dict[Value, float] = field(default_factory=dict[Value, float])
    """When what is under way will have been sent, by the memory of its requests."""
    free: float = 0
    """When the network has sent all that was begun."""

    def block(self, block: Block) -> Spent:
        """The time of the operations of a block, one after the other."""
        spent = Spent()
        for op in block:
            match op:
                case mem.Wave():
                    self._wave(op, spent)
                case mem.Loop():
                    spent.add(self._inner(op.body), self._size(op.length))
                case mem.While():
                    # How often it runs only the call tells: a single round is counted.
                    spent.add(self._inner(op.test))
                    spent.add(self._inner(op.body))
                case mem.Choose():
                    branches = [self._inner(op.then), self._inner(op.otherwise)]
                    spent.add(max(branches, key=lambda branch: branch.total))
                case _:
                    pass
        return spent

    def _inner(self, block: Block) -> Spent:
        """The time of a part in which nothing is under way at the beginning and at the end."""
        return _Timeline(self.kernels, self.at).block(block)

    def _wave(self, wave: mem.Wave, spent: Spent) -> None:
        calls = [op for op in wave.body if isinstance(op, mem.Call)]
        sends = [call for call in calls if call.kernel.name in self.kernels]
        compute = self._compute([call for call in calls if call not in sends], serial=wave.serial)
        blocked = sum(self._send(call, spent) for call in sends)
        beside = self.at.network.beside and self.at.threads > 1
        # One thread of several waits for the network, and the others compute.
        spent.exposed += max(0.0, blocked - compute) if beside else blocked
        spent.compute += compute

    def _compute(self, calls: Iterable[mem.Call], *, serial: bool) -> float:
        """The nanoseconds of a wave: its tiles on all threads."""
        tiles = [(self._size(call.tiles), self._size(call.cost)) for call in calls]
        work = sum(count * cost for count, cost in tiles)
        longest = max((cost for count, cost in tiles if count), default=0)
        if serial or self.at.threads == 1:
            return self.at.factor * work
        return self.at.factor * (self.at.barrier + max(work / self.at.threads, longest))

    def _send(self, call: mem.Call, spent: Spent) -> float:
        """The nanoseconds that a rank waits at a collective; notes what it takes altogether."""
        sent, now = self.kernels[call.kernel.name], spent.total
        if sent.function == TEST:
            return 0
        if sent.function == WAIT:
            requests = _memory(call.views[1])
            end = self.ends.pop(requests) if requests in self.ends else self.free
            return max(0.0, end - now)
        ranks = self.at.ranks.get(sent.axis, 1)
        bytes = self._bytes(call.views[0])
        whole = bytes * ranks if sent.function == "MPI_Allgather" else bytes
        time = self.at.network.sending(sent.function, whole, ranks)
        spent.latency += time.latency
        spent.transfer += time.transfer
        spent.collectives += ranks > 1
        spent.bytes += whole if ranks > 1 else 0
        end = self.free = max(self.free, now) + time.total
        if sent.function == START and self.at.network.beside:
            self.ends[_memory(call.views[2])] = end
            return 0
        return end - now

    def _bytes(self, view: Value) -> int:
        type = view.type
        assert isinstance(type, ViewType)
        return prod(self._size(size) for size in type.shape) * type.dtype.bytes

    def _size(self, size: Size) -> int:
        return size if isinstance(size, int) else evaluate(size, self.at.sizes)


def _memory(view: Value) -> Value:
    """The root of a view."""
    op: Op | None = view.op
    assert isinstance(op, mem.View)
    return op.root
