"""Placement: which device each operation of a function runs on, and the transfers in between.

The text says it with `on cpu:1 { ... }`, which the graph has as the attribute `dlc.device` of
operations; what has none is on the host. The pass `place` cuts every edge between two devices into a
`comm.send` and a `comm.recv`: one pair for each value and each device that needs it. From then on the
transfers alone say where operations run: where their operands are. So no other pass has to know of
devices, and none can merge what runs on two of them, as they have no values in common.

Derivatives and merged constants may bring operands together that are on two devices, so the pass comes
again after those who do so. Such an operation then runs on the first device of its operands that is not
the host.

Constants and weights are everywhere, in the regions that are given them too. What is computed from nothing
else runs where it is needed first. A region is where its operation is: so are its arguments and what it
hands over.

A device is `cpu:N`, a part of this machine's memory, or `cuda:0`, the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc.dialects import array, flow, func, mem, weight
from dlc.dialects.comm import HOST, KNOWN, PLACED, Recv, Send, has_code, is_everywhere, is_gpu
from dlc.errors import Diagnostic, Unsupported
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.passes import Context, define_pass

__all__ = ["devices_of", "kernels_on_gpu", "ops_of", "place", "unplace", "uses_gpu"]

_REGIONS = (flow.Scan, flow.While, flow.If, flow.Vjp, flow.Custom)
"""The operations whose regions run on devices."""


@define_pass("place", required=True)
def place(module: Op, context: Context) -> None:
    """Cut the edges between devices into transfers."""
    for block in module.regions:
        for op in block:
            if isinstance(op, func.Func):
                _place_function(op, context)


def devices_of(function: func.Func) -> dict[Value, str]:
    """The device of every value of a placed function; nothing where all are on the host.

    Constants and weights have none. Raises Unsupported (D0707) for devices that there is no code for.
    """
    found: dict[Value, str] = {}
    sends = [op for op in _ops(function) if isinstance(op, Send)]
    foreign = {op.target: op for op in sends if not has_code(op.target)}
    if foreign:
        raise Unsupported([_no_code(device, op) for device, op in foreign.items()])
    if sends:
        for _, settled in _blocks(function):
            found.update(settled.values)
    return found


def _no_code(device: str, op: Op) -> Diagnostic:
    message = f"there is no code for {device} yet"
    return Diagnostic("D0707", message, op.location.place, help=KNOWN)


def uses_gpu(module: Op) -> bool:
    """Whether a part of a module, at any level, is on a GPU that there is code for."""
    for op in module.walk():
        match op:
            case Send():
                places = [op.source, op.target]
            case mem.Root():
                places = [op.device]
            case _:
                wish = op.attributes.get(PLACED)
                places = [wish] if isinstance(wish, str) else []
        if any(is_gpu(place) and has_code(place) for place in places if place is not None):
            return True
    return False


def kernels_on_gpu(module: Op) -> list[Op]:
    """The kernels of the placed functions of a module that a GPU runs, in order of text."""
    found: list[Op] = []
    for function in [op for op in module.walk() if isinstance(op, func.Func)]:
        devices = devices_of(function)
        found += [
            op
            for op in function.walk()
            if not isinstance(op, Send) and any(is_gpu(devices.get(v)) for v in op.results)
        ]
    return found


def ops_of(module: Op, *, gpu_only: bool) -> list[Op]:
    """The operations of a module in order of text; with `gpu_only` those that are placed on a GPU."""
    return kernels_on_gpu(module) if gpu_only else list(module.walk())


def unplace(module: Op) -> None:
    """Forget the devices that a text asks for, where all of it runs on one."""
    for op in module.walk():
        op.attributes.pop(PLACED, None)


def _place_function(function: func.Func, context: Context) -> None:
    wished = any(PLACED in op.attributes for op in _ops(function))
    if not wished and not any(isinstance(op, Send) for op in _ops(function)):
        return
    for op in _ops(function) if wished else ():
        op.attributes.setdefault(PLACED, HOST)
    for block, settled in _blocks(function):
        _Cut(block, settled, context).run()
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


def _blocks(function: func.Func) -> Iterator[tuple[Block, _Settled]]:
    """The blocks of these, each with its devices, which are known when the block around it is done."""
    pending = [(function.body, HOST, frozenset[Value]())]
    while pending:
        block, home, shared = pending.pop()
        yield block, _Settled(block, home, shared)
        settled = _Settled(block, home, shared)
        pending += [
            (region, settled.device(op), _shared(op, region, shared))
            for op in block
            if isinstance(op, _REGIONS)
            for region in op.regions
        ]


def _shared(op: Op, region: Block, around: frozenset[Value]) -> frozenset[Value]:
    """The arguments of a region that are everywhere: data, handed in by a block where `around` are."""
    match op:
        case flow.Scan():
            given = [*op.xs, *op.constants]
            arguments = region.arguments[len(region.arguments) - len(given) :]
        case flow.While():
            given = op.constants
            arguments = region.arguments[len(region.arguments) - len(given) :]
        case flow.If() | flow.Vjp() | flow.Custom():
            # A rule is given more behind the inputs.
            given = op.inputs
            arguments = region.arguments[: len(given)]
        case _:
            return frozenset()
    return frozenset(
        argument
        for argument, value in zip(arguments, given, strict=True)
        if value in around or isinstance(value.op, array.Constant | weight.Get)
    )


class _Settled:
    """The device of each operation of a block that is on `home`, but for arguments that are everywhere."""

    def __init__(self, block: Block, home: str, shared: frozenset[Value]) -> None:
        self.home = home
        self.values: dict[Value, str] = {
            argument: home for argument in block.arguments if argument not in shared
        }
        self._devices: dict[Op, str] = {}
        for op in block:
            self._by_operands(op)
        for op in reversed(list(block)):
            if op not in self._devices and not is_everywhere(op):
                self._settle(op, self._by_users(op))

    def device(self, op: Op) -> str:
        """Where an operation runs."""
        return self._devices.get(op, self.home)

    def _settle(self, op: Op, device: str) -> None:
        self._devices[op] = device
        arrives = op.target if isinstance(op, Send | Recv) else device
        self.values.update(dict.fromkeys(op.results, arrives))

    def _by_operands(self, op: Op) -> None:
        """Settle an operation that says where it is, or whose operands are somewhere."""
        wish = op.attributes.get(PLACED)
        if op.terminator:
            self._settle(op, self.home)
        elif isinstance(op, Send):
            self._settle(op, op.source)
        elif isinstance(op, Recv):
            self._settle(op, op.target)
        elif is_everywhere(op):
            return
        elif isinstance(wish, str):
            self._settle(op, wish)
        else:
            places = dict.fromkeys(self.values[v] for v in op.operands if v in self.values)
            if places:
                self._settle(op, next((at for at in places if at != HOST), HOST))

    def _by_users(self, op: Op) -> str:
        """Where what an operation computes from constants is needed first."""
        users = (user for result in op.results for user in result.uses)
        return next((self._devices[user] for user in users if user in self._devices), self.home)


class _Cut:
    """Puts the transfers that a block needs into it."""

    def __init__(self, block: Block, settled: _Settled, context: Context) -> None:
        self.block = block
        self.settled = settled
        self.log = context.log
        self.arrived: dict[tuple[Value, str], Value] = {}
        """Values that have been received, by what was sent and where to."""

    def run(self) -> None:
        for op in self.block:
            if isinstance(op, Recv):
                self._received(op)
                continue
            device = self.settled.device(op)
            for operand in dict.fromkeys(op.operands):
                if self.settled.values.get(operand, device) != device:
                    op.replace_operand(operand, self._moved(operand, device, op))

    def _received(self, op: Recv) -> None:
        """Note what arrives here; what has arrived before, or is everywhere by now, is not sent again."""
        send = op.sent.op
        assert isinstance(send, Send)
        (value,) = send.inputs
        there = op.result if value in self.settled.values else value
        known = self.arrived.setdefault((value, op.target), there)
        if known is not op.result:
            op.result.replace_by(known)
            op.erase()
            if send.is_unused:
                send.erase()

    def _moved(self, value: Value, device: str, user: Op) -> Value:
        """A value of another device on this one, before a user of it."""
        found = self.arrived.get((value, device))
        if found is not None:
            return found
        source = self.settled.values[value]
        start = self.block.first if value.op is None else value.op.next
        sent = Builder(self.block, user.location, start)(Send([value], [], source, device))
        found = Builder.before_op(user)(Recv(sent, source, device))
        self.log.did("send", value, to=device)
        self.arrived[value, device] = found
        return found
