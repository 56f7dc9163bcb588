"""An entry point with some arguments bound to arrays on the device, as training binds all its weights.

The bound arrays are one handle: a call looks at the other arguments only, and finds graph and copies by
their shapes and addresses. Results that overwrite no input are numbers, such as a loss: they come to
pinned memory with the failures of kernels. A call can be started without waiting for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.calling.started import Done, Started
from dlc.runtime.cuda.array import DeviceArray
from dlc.runtime.cuda.driver import Driver, Handle
from dlc.runtime.cuda.pinned import GrowablePinnedBytes
from dlc.runtime.gpu.fitting import Key, Parameter, key_of
from dlc.runtime.gpu.frame import GpuFrame
from dlc.runtime.gpu.ready import Plan

Array = NDArray[np.generic]

MOST = 4
"""The most calls in flight; the next one waits for the oldest."""


class Point(Protocol):
    """The part of an entry point on a GPU that this needs."""

    def parameters(self) -> Sequence[Parameter]:
        """What arguments have to be that are used as they are."""
        ...

    def updates(self) -> Sequence[int | None]:
        """For each output the index of the input that it overwrites, or None."""
        ...

    def own_frame(self) -> GpuFrame:
        """A frame that no other call uses; `cancel` reaches it."""
        ...

    def let_go(self, frame: GpuFrame) -> None:
        """Drop a frame of `own_frame` that no later call uses."""
        ...

    def call_in(
        self, frame: GpuFrame, args: Sequence[object]
    ) -> tuple[Sequence[Array | DeviceArray], Specialization]:
        """Call it in this frame, with results that overwrite no input on the host: the outputs."""
        ...

    def number(self, output: int, array: Array) -> float:
        """An output of one element as a number."""
        ...

    def failure(self, words: Sequence[int]) -> CallError:
        """The error of a call that ended with these words."""
        ...


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

    def __init__(self, owner: BoundCall, plan: Plan, slot: _Slot, held: Sequence[object]) -> None:
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
        self._flying: deque[_Flight] = deque()
        self._point, parameters = point, point.parameters()
        self._inputs = len(parameters)
        self._bound = dict(bound)
        self._free = [each for each in parameters if each.number not in bound]
        self._numbers = [k for k, place in enumerate(point.updates()) if place is None]
        self._frame = point.own_frame()
        self._driver = self._frame.driver
        self._hosts = [0] * self._inputs
        self._slots: list[_Slot] = []
        """Those that no call in flight uses."""

    def __del__(self) -> None:
        with suppress(CallError):  # nobody asks how they end
            self.settle()  # they use memory that is about to be freed
        if hasattr(self, "_frame"):
            self._point.let_go(self._frame)

    def start(self, values: Sequence[object], *, wait: bool) -> Started:
        """Begin a call with the other arguments in order; with `wait`, it will be waited for at once.

        Arrays of the host in pinned memory are read until it is over. Raises CallError as a call does.
        """
        key = key_of(values, self._free, self._driver, self._hosts)
        plan = None if key is None else self._frame.plan(key)
        if plan is None:
            return self._first(values, key)
        return self._launched(plan, values, wait=wait)

    def _first(self, values: Sequence[object], key: Key | None) -> Started:
        """A call that is not ready, and over when this returns; the next one like it may be ready."""
        self.settle()
        arguments: list[object] = [self._bound.get(k) for k in range(self._inputs)]
        for parameter, value in zip(self._free, values, strict=True):
            arguments[parameter.number] = value
        self._frame.reset()
        outputs, specialization = self._point.call_in(self._frame, arguments)
        if key is not None:
            self._frame.note(key, specialization)
        return Done([self._point.number(k, cast(Array, outputs[k])) for k in self._numbers])

    def _launched(self, plan: Plan, values: Sequence[object], *, wait: bool) -> _Flight:
        frame = self._frame
        frame.reset()
        slot = self._slot()
        flight, ready = _Flight(self, plan, slot, values), plan.ready[()]
        with self._driver as driver:
            try:
                frame.clear_faults(ready.faults_at)
                ready.start(slot.pinned.of(ready.size), self._hosts)
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
        if not self._slots:
            if len(self._flying) < MOST:
                return _Slot(self._driver)
            self.settle(self._flying[0])
        return self._slots.pop()

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
            self._slots.append(flight.slot)
            if flight is last and error is None:
                return

    def _end(self, flight: _Flight, error: CallError | None) -> None:
        pinned, plan = flight.slot.pinned.address, flight.plan
        ready = plan.ready[()]
        faults = None if error is not None else ready.faults(pinned)
        if faults is not None:
            error = self._point.failure(self._frame.outcome(faults))
        if error is not None:
            flight.end(None, error)
            return
        numbers: list[float] = []
        for k in self._numbers:
            storage = plan.outputs[k]
            bits = np.frombuffer(ready.result(pinned, self._inputs + k), storage.dtype)
            numbers.append(self._point.number(k, bits.reshape(storage.shape)))
        flight.end(numbers, None)
