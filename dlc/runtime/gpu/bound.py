"""An entry point with some arguments bound to arrays on the device, as training binds all its weights.

The bound arrays are one handle: a call looks at the other arguments only, and finds graph and copies by
their shapes and addresses. Results that overwrite no input are numbers, such as a loss: they come to
pinned memory with the failures of kernels. A call can be started without waiting for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays.dtypes import DType
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.calling.results import Storage
from dlc.runtime.calling.started import Done, Started
from dlc.runtime.cuda.array import ALIGNED, DeviceArray
from dlc.runtime.cuda.driver import Driver, Handle
from dlc.runtime.cuda.pinned import GrowablePinnedBytes
from dlc.runtime.gpu.frame import GpuFrame
from dlc.runtime.gpu.ready import ReadyCall
from dlc.runtime.system.buffers import address

Array = NDArray[np.generic]

MOST = 4
"""The most calls in flight; the next one waits for the oldest."""
MOST_PLANS = 64
"""The most kinds of calls that are remembered."""
_FITS = 0x1 | 0x100
"""NumPy's flags C_CONTIGUOUS and ALIGNED."""


class Point(Protocol):
    """The part of an entry point on a GPU that this needs."""

    def kinds(self) -> Sequence[tuple[DType, np.dtype[np.generic] | None]]:
        """The dtype of each input, and NumPy's for arrays that need no conversion."""
        ...

    def updates(self) -> Sequence[int | None]:
        """For each output the index of the input that it overwrites, or None."""
        ...

    def own_frame(self) -> GpuFrame:
        """A frame that no other call uses; `cancel` reaches it."""
        ...

    def call_in(self, frame: GpuFrame, args: Sequence[object]) -> Called:
        """Call it in this frame, with results that overwrite no input on the host."""
        ...

    def number(self, output: int, array: Array) -> float:
        """An output of one element as a number."""
        ...

    def failure(self, words: Sequence[int]) -> CallError:
        """The error of a call that ended with these words."""
        ...


class Called(NamedTuple):
    """A call that is over: its outputs, their memory, and the ready call for the next one like it."""

    outputs: Sequence[Array | DeviceArray]
    storages: Sequence[Storage]
    ready: ReadyCall | None


class _Plan(NamedTuple):
    """What is known of calls with free arguments of some shapes and addresses."""

    ready: ReadyCall
    storages: Sequence[Storage]
    generation: int


class _Slot:
    """Pinned memory of one call in flight, and the event behind it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.pinned = GrowablePinnedBytes(driver)
        self.event: Handle = driver.create_event()

    def __del__(self) -> None:
        if hasattr(self, "event"):
            self._driver.destroy_event(self.event)


class _Flight:
    """A call in flight, or one that is over; see `Started`."""

    def __init__(self, owner: BoundCall, plan: _Plan, slot: _Slot, held: Sequence[object]) -> None:
        """`held` are the arrays that it reads, which must live until it is over."""
        self._owner, self.plan, self.slot, self._held = owner, plan, slot, held
        self.is_recorded = False
        """Whether the event of the slot stands behind it."""
        self._numbers: Sequence[float] | None = None
        self._error: CallError | None = None

    def numbers(self) -> Sequence[float]:
        if self._numbers is None and self._error is None:
            self._owner.settle(self)
        if self._error is not None:
            raise self._error
        assert self._numbers is not None
        return self._numbers

    def end(self, numbers: Sequence[float] | None, error: CallError | None) -> None:
        """Note how it ended."""
        self._numbers, self._error, self._held = numbers, error, ()


class BoundCall:
    """Calls of an entry point with arguments bound, by one thread at a time."""

    def __init__(self, point: Point, bound: Mapping[int, Tensor]) -> None:
        """`bound` are arrays on the device, by the index of the input. They stay where they are."""
        self._point, self._kinds = point, point.kinds()
        self._bound = dict(bound)
        self._free = [k for k in range(len(self._kinds)) if k not in bound]
        self._free_kinds = [(k, *self._kinds[k]) for k in self._free]
        self._numbers = [k for k, place in enumerate(point.updates()) if place is None]
        self._frame = point.own_frame()
        self._driver = self._frame.driver
        self._hosts = [0] * (len(self._kinds) + len(point.updates()))
        self._plans: dict[tuple[object, ...], _Plan] = {}
        self._slots: list[_Slot] = []
        self._flying: deque[_Flight] = deque()

    def start(self, values: Sequence[object], *, wait: bool) -> Started:
        """Begin a call with the other arguments in order; with `wait`, it will be waited for at once.

        Arrays of the host in pinned memory are read until it is over. Raises CallError as a call does.
        """
        key = self._key(values)
        plan = None if key is None else self._plans.get(key)
        if plan is None or plan.generation != self._frame.generation:
            return self._first(values, key)
        return self._launched(plan, values, wait=wait)

    def _key(self, values: Sequence[object]) -> tuple[object, ...] | None:
        """The shapes, and addresses on the device, of arrays that fit as they are; else None."""
        key: list[object] = []
        for value, (place, kind, dtype) in zip(values, self._free_kinds, strict=True):
            if type(value) is np.ndarray:
                here = cast(Array, value)
                if here.dtype is not dtype or here.flags.num & _FITS != _FITS:
                    return None
                key += (here.shape, 0)
                self._hosts[place] = address(here)
            elif type(value) is Tensor and value.kind is kind:
                there = value.memory
                if not isinstance(there, DeviceArray) or there.address % ALIGNED:
                    return None
                if there.driver is not self._driver:
                    return None
                key += (there.shape, there.address)
            else:
                return None
        return tuple(key)

    def _first(self, values: Sequence[object], key: tuple[object, ...] | None) -> Started:
        """A call that is not ready, and over when this returns; the next one like it may be ready."""
        self.settle()
        arguments: list[object] = [self._bound.get(k) for k in range(len(self._kinds))]
        for k, value in zip(self._free, values, strict=True):
            arguments[k] = value
        self._frame.reset()
        outputs, storages, ready = self._point.call_in(self._frame, arguments)
        if key is not None and ready is not None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            self._plans[key] = _Plan(ready, storages, self._frame.generation)
        return Done([self._point.number(k, cast(Array, outputs[k])) for k in self._numbers])

    def _launched(self, plan: _Plan, values: Sequence[object], *, wait: bool) -> _Flight:
        frame = self._frame
        frame.reset()
        slot = self._slot()
        flight = _Flight(self, plan, slot, values)
        with self._driver as driver:
            try:
                frame.clear_faults(plan.ready.faults_at)
                plan.ready.start(slot.pinned.of(plan.ready.size), self._hosts)
                if not wait:
                    driver.record(slot.event, frame.stream)
                    flight.is_recorded = True
            except BaseException:
                frame.abandon()
                raise
            self._flying.append(flight)
            if wait:
                self._settle(flight)
        return flight

    def _slot(self) -> _Slot:
        """Pinned memory that no call in flight uses."""
        used = {id(flight.slot) for flight in self._flying}
        for slot in self._slots:
            if id(slot) not in used:
                return slot
        if len(self._slots) < MOST:
            self._slots.append(_Slot(self._driver))
            return self._slots[-1]
        oldest = self._flying[0]
        self.settle(oldest)
        return oldest.slot

    def settle(self, last: _Flight | None = None) -> None:
        """Wait until calls up to this one, or all, are over. How each ended is told by its `numbers`."""
        if self._flying:
            with self._driver:
                self._settle(last or self._flying[-1])

    def _settle(self, last: _Flight) -> None:
        error: CallError | None = None
        try:
            self._frame.wait(last.slot.event if last.is_recorded else None)
        except CallError as refused:
            self._frame.abandon()
            error = refused
        while self._flying:
            flight = self._flying.popleft()
            self._end(flight, error)
            if flight is last and error is None:
                return

    def _end(self, flight: _Flight, error: CallError | None) -> None:
        pinned, (ready, storages, _) = flight.slot.pinned.address, flight.plan
        faults = None if error is not None else ready.faults(pinned)
        if faults is not None:
            error = self._point.failure(self._frame.outcome(faults))
        if error is not None:
            flight.end(None, error)
            return
        inputs = len(self._kinds)
        numbers: list[float] = []
        for k in self._numbers:
            bits = np.frombuffer(ready.result(pinned, inputs + k), storages[k].dtype)
            numbers.append(self._point.number(k, bits.reshape(storages[k].shape)))
        flight.end(numbers, None)
