"""Device placement: the device of each operation of a function, and the transfers between devices.

A text asks for a device with `on cpu:1 { ... }`, in the graph the attribute `dlc.device` of operations;
operations without it are on the host. The pass `place` cuts every edge between two devices into a
`comm.send` and a `comm.recv`, one pair for each value and each device that reads it. From then on the
transfers alone place operations: each runs where its operands are. So no other pass has to know devices,
and none can merge operations on two of them, since they have no values in common.

Autodiff and constant merging may create operations with operands on two devices, so the pass runs again
after them. Such an operation runs on the first device of its operands that is not the host.

Constants and weights are on every device, also in regions to which they are passed. Operations computed
from them alone run where their result is needed first. A region, its arguments and the values that it
yields are on the device of its operation.

A device is `cpu:N`, a part of this machine's memory, or `cuda:0`, the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc.dialects import array, flow, func, mem, weight
from dlc.dialects.comm import (
    HOST,
    KNOWN,
    PLACED,
    STAGED,
    Recv,
    Send,
    has_code,
    is_everywhere,
    is_gpu,
)
from dlc.errors import Diagnostic, Unsupported
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.passes import Context, define_pass

__all__ = ["devices_of", "kernels_on_gpu", "ops_of", "place", "unplace", "uses_gpu"]

_REGIONS = (flow.Scan, flow.While, flow.If, flow.Vjp, flow.Custom)
"""The operations whose regions are placed on devices."""


@define_pass("place", required=True)
def place(module: Op, context: Context) -> None:
    """Cut every edge between two devices into a transfer."""
    for block in module.regions:
        for op in block:
            if isinstance(op, func.Func):
                _place_function(op, context)


def devices_of(function: func.Func) -> dict[Value, str]:
    """The device of every value of a placed function; empty if all are on the host.

    Constants and weights have none. Raises Unsupported (D0707) for devices without a code generator.
    """
    devices: dict[Value, str] = {}
    sends = [op for op in _ops(function) if isinstance(op, Send)]
    unsupported = {op.target: op for op in sends if not has_code(op.target)}
    if unsupported:
        raise Unsupported([_no_code(device, op) for device, op in unsupported.items()])
    if sends:
        for _, block_devices in _blocks(function):
            devices.update(block_devices.values)
    return devices


def _no_code(device: str, op: Op) -> Diagnostic:
    message = f"there is no code for {device} yet"
    return Diagnostic("D0707", message, op.location.place, help=KNOWN)


def uses_gpu(module: Op) -> bool:
    """Whether part of a module, at any level, is on a GPU that has a code generator."""
    for op in module.walk():
        match op:
            case Send():
                devices = [op.source, op.target]
            case mem.Root():
                devices = [op.device]
            case _:
                requested = op.attributes.get(PLACED)
                devices = [requested] if isinstance(requested, str) else []
        if any(is_gpu(device) and has_code(device) for device in devices if device is not None):
            return True
    return False


def kernels_on_gpu(module: Op) -> list[Op]:
    """The kernels of placed functions that run on a GPU, in program order."""
    kernels: list[Op] = []
    for function in [op for op in module.walk() if isinstance(op, func.Func)]:
        devices = devices_of(function)
        kernels += [
            op
            for op in function.walk()
            if not isinstance(op, Send) and any(is_gpu(devices.get(v)) for v in op.results)
        ]
    return kernels


def ops_of(module: Op, *, gpu_only: bool) -> list[Op]:
    """The operations of a module in program order; with `gpu_only` the kernels placed on a GPU."""
    return kernels_on_gpu(module) if gpu_only else list(module.walk())


def unplace(module: Op) -> None:
    """Drop the devices that a text asks for, where everything runs on one device."""
    for op in module.walk():
        op.attributes.pop(PLACED, None)


def _place_function(function: func.Func, context: Context) -> None:
    for op in function.walk():
        # Where the program is divided into stages, that has been done before.
        op.attributes.pop(STAGED, None)
    is_requested = any(PLACED in op.attributes for op in _ops(function))
    if not is_requested and not any(isinstance(op, Send) for op in _ops(function)):
        return
    for op in _ops(function) if is_requested else ():
        op.attributes.setdefault(PLACED, HOST)
    for block, block_devices in _blocks(function):
        _Cut(block, block_devices, context).run()
    for op in _ops(function):
        op.attributes.pop(PLACED, None)


def _ops(function: func.Func) -> Iterator[Op]:
    """Every operation that runs on a device."""
    pending = [function.body]
    while pending:
        for op in pending.pop():
            yield op
            if isinstance(op, _REGIONS):
                pending += op.regions


def _blocks(function: func.Func) -> Iterator[tuple[Block, _BlockDevices]]:
    """The blocks of a function, outer ones first, each with the devices of its operations."""
    pending = [(function.body, HOST, frozenset[Value]())]
    while pending:
        block, device, shared = pending.pop()
        yield block, _BlockDevices(block, device, shared)
        block_devices = _BlockDevices(block, device, shared)
        pending += [
            (region, block_devices.device(op), _shared(op, region, shared))
            for op in block
            if isinstance(op, _REGIONS)
            for region in op.regions
        ]


def _shared(op: Op, region: Block, around: frozenset[Value]) -> frozenset[Value]:
    """The arguments of a region that are on every device; `around` has those of the block around it."""
    match op:
        case flow.Scan():
            passed = [*op.xs, *op.constants]
            arguments = region.arguments[len(region.arguments) - len(passed) :]
        case flow.While():
            passed = op.constants
            arguments = region.arguments[len(region.arguments) - len(passed) :]
        case flow.If() | flow.Vjp() | flow.Custom():
            # A rule takes further arguments after the inputs.
            passed = op.inputs
            arguments = region.arguments[: len(passed)]
        case _:
            return frozenset()
    return frozenset(
        argument
        for argument, value in zip(arguments, passed, strict=True)
        if value in around or isinstance(value.op, array.Constant | weight.Get)
    )


class _BlockDevices:
    """The devices of the operations and values of a block, which itself is on `block_device`."""

    def __init__(self, block: Block, block_device: str, shared: frozenset[Value]) -> None:
        self.block_device = block_device
        self.values: dict[Value, str] = {
            argument: block_device for argument in block.arguments if argument not in shared
        }
        self._devices: dict[Op, str] = {}
        for op in block:
            self._by_operands(op)
        for op in reversed(list(block)):
            if op not in self._devices and not is_everywhere(op):
                self._settle(op, self._by_users(op))

    def device(self, op: Op) -> str:
        """The device of an operation."""
        return self._devices.get(op, self.block_device)

    def _settle(self, op: Op, device: str) -> None:
        self._devices[op] = device
        arrives = op.target if isinstance(op, Send | Recv) else device
        self.values.update(dict.fromkeys(op.results, arrives))

    def _by_operands(self, op: Op) -> None:
        """Place an operation by its attribute or its operands, if it has any that decide."""
        requested = op.attributes.get(PLACED)
        if op.terminator:
            self._settle(op, self.block_device)
        elif isinstance(op, Send):
            self._settle(op, op.source)
        elif isinstance(op, Recv):
            self._settle(op, op.target)
        elif is_everywhere(op):
            return
        elif isinstance(requested, str):
            self._settle(op, requested)
        else:
            candidates = dict.fromkeys(self.values[v] for v in op.operands if v in self.values)
            if candidates:
                self._settle(
                    op, next((candidate for candidate in candidates if candidate != HOST), HOST)
                )

    def _by_users(self, op: Op) -> str:
        """The device of the first reader of a value computed from constants."""
        users = (user for result in op.results for user in result.uses)
        return next(
            (self._devices[user] for user in users if user in self._devices), self.block_device
        )


class _Cut:
    """Inserts the transfers of a block."""

    def __init__(self, block: Block, devices: _BlockDevices, context: Context) -> None:
        self.block = block
        self.devices = devices
        self.log = context.log
        self.arrived: dict[tuple[Value, str], Value] = {}
        """Received values, by the value sent and the device."""

    def run(self) -> None:
        for op in self.block:
            if isinstance(op, Recv):
                self._received(op)
                continue
            device = self.devices.device(op)
            for operand in dict.fromkeys(op.operands):
                if self.devices.values.get(operand, device) != device:
                    op.replace_operand(operand, self._moved(operand, device, op))

    def _received(self, op: Recv) -> None:
        """Record a received value; drop its transfer if it is there already, or on every device by now."""
        send = op.sent.op
        assert isinstance(send, Send)
        (value,) = send.inputs
        arrived = op.result if value in self.devices.values else value
        previous = self.arrived.setdefault((value, op.target), arrived)
        if previous is not op.result:
            op.result.replace_by(previous)
            op.erase()
            if send.is_unused:
                send.erase()

    def _moved(self, value: Value, device: str, user: Op) -> Value:
        """The copy of a value on a device, sent for its first reader there."""
        received = self.arrived.get((value, device))
        if received is not None:
            return received
        source = self.devices.values[value]
        start = self.block.first if value.op is None else value.op.next
        sent = Builder(self.block, user.location, start)(Send([value], [], source, device))
        received = Builder.before_op(user)(Recv(sent, source, device))
        self.log.did("send", value, to=device)
        self.arrived[value, device] = received
        return received
