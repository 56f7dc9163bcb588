"""Collectives among ranks as calls of MPI, by one thread: whole arrays, of which each has its memory.

The machine code calls the C functions of MPI itself, and finds their addresses, the communicators and the
handles of datatypes in its table of imports. A collective that fails ends the process: its communicators
have MPI's error handler for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import loop, mem
from dlc.dialects.comm import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    CollectiveBroadcast,
    Permute,
    Rank,
    ReduceScatter,
    StartAllReduce,
    Test,
    Wait,
)
from dlc.dialects.expr import Expr, Index, index, minimum
from dlc.dialects.kernel.generic import array_type
from dlc.ir.core import Value
from dlc.ir.dims import Size
from dlc.ir.passes import Context
from dlc.ir.types import I64, INDEX
from dlc.lowering.kernel_code.words import for_each, when
from dlc.lowering.kernel_code.writer import Lowered, Writer
from dlc.runtime.abi import COMMUNICATOR, COORDINATE, MPI_DATATYPES, MPI_OPERATIONS, Status
from dlc.target.network import USUAL_NETWORK
from dlc.target.work import nanoseconds

MOST_SENT = (1 << 31) - 1
"""The most elements of one call of MPI."""

CALL = USUAL_NETWORK.call // 1000
"""Nanoseconds of a call of MPI that only begins something, or tests it."""


def lower_rank(op: Rank, context: Context) -> Lowered:
    """The coordinate, which the table of imports holds."""
    writer = Writer(op)
    word = writer.emit(loop.Imported(COORDINATE + op.mesh_axis))
    writer.pointer(0)[0] = Expr(writer.emit, word).cast(I64)
    return writer.finish(1, 1)


def lower_test(op: Test, context: Context) -> Lowered:
    """A call of MPI_Test for each request, which lets the library work on all that is under way."""
    writer = Writer(op)
    source, target = writer.pointer(0), writer.pointer(1)
    flag = writer.buffer(1, I64)
    (pieces,) = array_type(op.inputs[0]).shape
    ignored = writer.emit(loop.Imported("MPI_STATUS_IGNORE"))
    in_place = mem.same_place(*op.operands)
    with for_each(writer.emit, 0, writer.size(pieces, "pieces")) as k:
        if not in_place:
            target[k] = source[k]
        arguments = (target + k).value, flag.value, ignored
        writer.emit.place(loop.Call(arguments, "MPI_Test"))
    return writer.finish(1, CALL)


def lower_wait(op: Wait, context: Context) -> Lowered:
    """A call of MPI_Wait for each request, by a copy of it: MPI writes there that it is done."""
    writer = Writer(op)
    requests, own = writer.pointer(1), writer.buffer(1, I64)
    (pieces,) = array_type(op.inputs[1]).shape
    ignored = writer.emit(loop.Imported("MPI_STATUS_IGNORE"))
    with for_each(writer.emit, 0, writer.size(pieces, "pieces")) as k:
        own[0] = requests[k]
        writer.emit.place(loop.Call((own.value, ignored), "MPI_Wait"))
    source, _, target = op.operands
    if not mem.same_place(source, target):
        _copy(writer, 0, 2)
    return writer.finish(1, CALL)


def _copy(writer: Writer, source: int, target: int) -> None:
    """Copy the array of one view to that of another."""
    type = writer.views[source].tensor
    bytes = writer.size(type.size * type.dtype.bytes, "bytes")
    arguments = writer.pointers[target], writer.pointers[source], bytes.value
    writer.emit.place(loop.Call(arguments, "memcpy"))


def lower_collective(op: Collective, context: Context) -> Lowered:
    """The function for one collective in destination form."""
    return _Call(op).lower()


class _Call:
    def __init__(self, op: Collective) -> None:
        self.op = op
        self.writer = Writer(op)
        self.type = array_type(op.inputs[0])

    def lower(self) -> Lowered:
        op, writer = self.op, self.writer
        source, target, *_ = writer.pointers
        whole = self.type.size
        datatype = self._word(MPI_DATATYPES[self.type.dtype.name])
        communicator = self._word(COMMUNICATOR + op.mesh_axis)
        match op:
            case StartAllReduce():
                self._start(op, datatype, communicator)
                return writer.finish(1, CALL)
            case AllReduce():
                self._all_reduce(op, datatype, communicator)
            case ReduceScatter():
                combine, part = self._word("MPI_SUM"), self._size(self._part())
                name = "MPI_Reduce_scatter_block"
                self._call(name, source, target, part, datatype, combine, communicator)
            case AllGather():
                self._swap("MPI_Allgather", self._size(whole), datatype, communicator)
            case AllToAll():
                self._swap("MPI_Alltoall", self._size(self._part()), datatype, communicator)
            case CollectiveBroadcast():
                self._broadcast(op, datatype, communicator)
            case Permute():
                self._permute(op, datatype, communicator)
            case _:
                raise AssertionError(f"{op.name} has no code")
        return writer.finish(1, self._cost())

    def _all_reduce(self, op: AllReduce, datatype: Value, communicator: Value) -> None:
        """The sum of an array, a piece at a time, in place where the result lies over the array."""
        writer = self.writer
        combine = self._word(MPI_OPERATIONS[op.combine])
        in_place = self._word("MPI_IN_PLACE") if mem.same_place(*op.operands) else None
        whole = writer.size(self.type.size, "elements")
        most = USUAL_NETWORK.piece // self.type.dtype.bytes
        with for_each(writer.emit, 0, whole, most) as first:
            source, target = writer.pointer(0) + first, writer.pointer(1) + first
            self._call(
                "MPI_Allreduce",
                in_place or source.value,
                target.value,
                minimum(whole - first, most).value,
                datatype,
                combine,
                communicator,
            )

    def _start(self, op: StartAllReduce, datatype: Value, communicator: Value) -> None:
        """Begin the sum of each piece of the result, which the array is copied to if it lies elsewhere."""
        writer = self.writer
        combine, in_place = self._word(MPI_OPERATIONS[op.combine]), self._word("MPI_IN_PLACE")
        array, target, _ = op.operands
        if not mem.same_place(array, target):
            _copy(writer, 0, 1)
        whole, pieces = writer.size(self.type.size, "elements"), writer.size(op.pieces, "pieces")
        most = USUAL_NETWORK.piece // self.type.dtype.bytes
        with for_each(writer.emit, 0, pieces) as k:
            first = k * most
            writer.pointer(2)[k] = writer.pointer(2)[k] * 0
            self._call(
                "MPI_Iallreduce",
                in_place,
                (writer.pointer(1) + first).value,
                minimum(whole - first, most).value,
                datatype,
                combine,
                communicator,
                (writer.pointer(2) + k).value,
            )

    def _part(self) -> Size:
        """The elements of what one rank gets of an array with an entry for each."""
        return self.type.with_shape(self.type.shape[1:]).size

    def _swap(self, name: str, count: Value, datatype: Value, communicator: Value) -> None:
        """A call that sends and receives `count` elements from and to each rank."""
        source, target = self.writer.pointers
        self._call(name, source, count, datatype, target, count, datatype, communicator)

    def _broadcast(self, op: CollectiveBroadcast, datatype: Value, communicator: Value) -> None:
        """A copy to the result, which the broadcast then overwrites on all ranks but the root."""
        _copy(self.writer, 0, 1)
        target = self.writer.pointers[1]
        count, root = self._size(self.type.size), self._index(op.root)
        self._call("MPI_Bcast", target, count, datatype, root, communicator)

    def _permute(self, op: Permute, datatype: Value, communicator: Value) -> None:
        writer = self.writer
        source, target = writer.pointers
        own = Expr(writer.emit, writer.emit(loop.Imported(COORDINATE + op.mesh_axis)))
        ranks, shift = op.ranks, op.shift % op.ranks
        after, before = (_wrapped(own + step, ranks) for step in (shift, ranks - shift))
        count, tag = self._size(self.type.size), self._index(0)
        self._call(
            "MPI_Sendrecv",
            *(source, count, datatype, after.value, tag),
            *(target, count, datatype, before.value, tag),
            communicator,
            self._word("MPI_STATUS_IGNORE"),
        )

    def _call(self, name: str, *arguments: Value) -> None:
        self.writer.emit.place(loop.Call(arguments, name))

    def _word(self, name: str) -> Value:
        return self.writer.emit(loop.Imported(name))

    def _size(self, size: Size) -> Value:
        """A number of elements; the call fails for one that MPI's C int does not hold."""
        count = self.writer.size(size, "elements", str(size))
        with when(count > MOST_SENT):
            most = self._index(MOST_SENT)
            fail = loop.Fail(self.writer.tile.value, count.value, most, int(Status.BOUND))
            self.writer.emit.place(fail)
        return count.value

    def _index(self, number: Index) -> Value:
        return index(self.writer.emit, number).value

    def _cost(self) -> Size:
        costs = USUAL_NETWORK
        return nanoseconds(costs.latency + self.type.size * self.type.dtype.bytes * costs.byte)


def _wrapped(place: Expr, ranks: int) -> Expr:
    """A coordinate below twice the number of ranks, round the axis."""
    return place - (place >= ranks).cast(INDEX) * ranks


__all__: Sequence[str] = ["lower_collective", "lower_rank", "lower_test", "lower_wait"]
