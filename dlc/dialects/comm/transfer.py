"""Values that go from one device to another.

A value that is computed on one device and needed on another is sent once: `comm.send` starts its way,
`comm.recv` is where it has arrived. Between the two the value is on its way, and only the `comm.recv`
takes it; so whoever starts a transfer may do other work until then. Nothing else in a graph says where an
operation runs: it runs where its operands are.

In the plan the send is the copy from the memory of the one device to that of the other, and the barrier
behind its wave is where it has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, weight
from dlc.dialects.kernel.generic import Access, Kernel, array_type
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands
from dlc.ir.types import TensorType, Type

__all__ = [
    "HOST", "KNOWN", "PLACED", "STAGED", "Recv", "Send", "has_code", "is_everywhere", "is_gpu",
    "stage_device", "stage_of_device",
]  # fmt: skip

HOST = "cpu:0"
"""The device that a caller's arrays are on, and where everything runs that is not placed elsewhere."""
PLACED = "dlc.device"
"""The attribute of an operation that its text places on a device, until the pass `place` has run."""
STAGED = "dlc.stage"
"""The attribute of an operation with the stage of a pipeline of ranks that its text puts it on."""

GPUS = ("cuda:0",)
"""The GPUs that there is code for, beside any number of CPUs."""
KNOWN = "there are cpu:0, cpu:1 and so on, and cuda:0"
"""The devices that there are, for messages."""


def has_code(device: str) -> bool:
    """Whether code is made for a device of this name in full."""
    return device in GPUS or device.startswith("cpu:")


def stage_device(stage: int) -> str:
    """The name of a stage of a pipeline, as transfers between stages have it."""
    return f"stage:{stage}"


def stage_of_device(device: str | None) -> int | None:
    """The stage that such a name stands for; None for a device of this machine."""
    kind, _, number = (device or "").partition(":")
    return int(number) if kind == "stage" else None


def is_gpu(device: str | None) -> bool:
    """Whether a device is a GPU; nothing is on none of them."""
    return device is not None and device.startswith("cuda:")


def is_everywhere(op: Op | None) -> bool:
    """Whether each device has the results of an operation without computing anything: data."""
    return isinstance(op, array.Constant | array.Fill | weight.Get)


@op("comm.send")
class Send(Kernel):
    """The value of the device `source` on its way to the device `target`, where a `comm.recv` takes it."""

    inputs: Sequence[Value] = operands(doc="the value")
    outs: Sequence[Value] = operands()
    source: str = attribute()
    target: str = attribute()

    @property
    def crosses(self) -> bool:
        """Whether it goes to other memory, rather than to another part of the same."""
        return is_gpu(self.source) or is_gpu(self.target)

    def reads(self, number: int) -> Access:
        return Access.CONTIGUOUS if self.crosses else Access.STRIDED

    def result_types(self) -> tuple[TensorType, ...]:
        if len(self.inputs) != 1:
            raise self.fail(f"{self.name} sends one value, found {len(self.inputs)}")
        if self.source == self.target:
            raise self.fail(f"{self.name} goes from {self.source} to another device")
        return (array_type(self.inputs[0]),)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (sent,) = cotangents
        return (emit(Recv(sent, self.target, self.source)),)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0]


@op("comm.recv")
class Recv(Op):
    """What was sent from the device `source`, now on the device `target`."""

    sent: Value = operand()
    source: str = attribute()
    target: str = attribute()

    def infer(self) -> Type:
        send = self.sent.op
        if not isinstance(send, Send):
            raise self.fail(f"{self.name} takes what a {Send.name} of its block sends")
        if (send.source, send.target) != (self.source, self.target):
            raise self.fail(
                f"{self.name} takes what goes from {self.source} to {self.target}, "
                f"found what goes from {send.source} to {send.target}"
            )
        return self.sent.type

    def fold(self) -> Value | None:
        """What is everywhere need not be sent, and what came from the target is there already."""
        send = self.sent.op
        if not isinstance(send, Send):
            return None
        (value,) = send.inputs
        before = value.op
        if isinstance(before, Recv) and before.source == self.target:
            first = before.sent.op
            return first.inputs[0] if isinstance(first, Send) else None
        return value if is_everywhere(before) else None

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (received,) = cotangents
        return (emit(Send([received], [], self.target, self.source)),)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0]
