"""The pass `bucket`: small arrays that ranks exchange in the same way go together, by one collective.

A collective has a latency, however small its array is. So the arrays of several are laid one after the
other, sent at once, and taken apart: gradients of biases and scales above all. Collectives of arrays that
are large by themselves stay alone, since nothing need be copied for them.

Buckets fill in the order in which their arrays are computed, and begin when the last one is. A bucket is
closed where one of its results is needed, or when latency is a small part of its time. What no other
collective waits for, such as sums of gradients, is needed behind all collectives: whatever is computed
from it moves there. So such buckets fill up, and never hold what another collective does wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, TypeGuard

from dlc.dialects import array, flow
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.shape import reshape
from dlc.dialects.comm import AllGather, AllReduce, Collective, ReduceScatter
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Shape
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL
from dlc.ir.types import DType
from dlc.target.network import USUAL_NETWORK


@define_pass("bucket")
def bucket(module: Op, context: Context) -> None:
    """Exchange small arrays among ranks by one collective."""
    for op in list(module.walk(formulas=False)):
        if isinstance(op, AllReduce):
            _sum_in_loop(op, context)
    collectives = [op for op in module.walk(formulas=False) if isinstance(op, Collective)]
    for block in dict.fromkeys(op.parent for op in collectives):
        assert block is not None
        _Buckets(block, context).run()


def _sum_in_loop(op: AllReduce, context: Context) -> None:
    """Sum what each iteration of a loop stacks in that iteration, if it is large: it can begin there."""
    (stack,) = op.inputs
    loop = stack.op
    if not isinstance(loop, flow.Scan) or stack.index < len(loop.initial) or len(stack.uses) > 1:
        return
    body = loop.body
    yielded = list(body.terminator.operands)
    each = yielded[stack.index]
    is_counted = all(isinstance(size, int) for size in tensor_type(each).shape)
    if not is_counted or _bytes(each) < USUAL_NETWORK.bucket:
        return
    own = AllReduce([each], [], op.mesh_axis, op.ranks, op.combine)
    yielded[stack.index] = Builder.before_op(body.terminator, op.location)(own)
    body.terminator.set_operands(yielded)
    context.log.did("sum in each iteration", op)
    context.rewriter.replace(op, stack, relation=EQUAL)


class _Kind(NamedTuple):
    """What the collectives of a bucket have in common."""

    op: type[Collective]
    mesh_axis: str
    combine: object
    dtype: DType
    is_last: bool
    """Whether no other collective waits for its result."""


@dataclass(slots=True)
class _Bucket:
    """Collectives of one kind, in the order in which their arrays are computed."""

    members: list[Collective] = field(default_factory=list[Collective])
    bytes: int = 0


class _Buckets:
    """The buckets of one block."""

    def __init__(self, block: Block, context: Context) -> None:
        self.block, self.context = block, context
        waited_for = _waited_for(block)
        self.last = {op for op in block if isinstance(op, Collective) and op not in waited_for}
        _sink_users(block, self.last)
        self.ops = list(block)
        self.number = {op: number for number, op in enumerate(self.ops)}
        self.kinds = {op: self._kind(op) for op in self.ops if _may_share(op)}
        self.ready = {op: self._ready(op) for op in self.kinds}
        self._open: dict[_Kind, _Bucket] = {}

    def run(self) -> None:
        """Close the bucket of each collective before its result is needed."""
        ready: dict[int, list[Collective]] = {}
        for op, place in self.ready.items():
            ready.setdefault(place, []).append(op)
        due = {op: min(map(self._place, op.results[0].uses)) for op in self.kinds}
        for place in range(-1, len(self.ops)):
            for kind, bucket in list(self._open.items()):
                if any(due[op] == place for op in bucket.members):
                    self._close(kind)
            for op in ready.get(place, ()):
                self._add(op, self.kinds[op])
        for kind in list(self._open):
            self._close(kind)

    def _kind(self, op: Collective) -> _Kind:
        combine = op.combine if isinstance(op, AllReduce) else None
        dtype = tensor_type(op.inputs[0]).dtype
        return _Kind(type(op), op.mesh_axis, combine, dtype, op in self.last)

    def _ready(self, op: Collective) -> int:
        """The place behind which a collective may begin: that of what computes its array; -1 at first.

        A collective of what another one gives stays where it is.
        """
        producer = op.inputs[0].op
        if isinstance(producer, Collective):
            return self.number[op]
        return -1 if producer is None else self.number[producer]

    def _place(self, user: Op) -> int:
        """The place of the operation of the block that is or holds a user."""
        while user.parent is not self.block:
            assert user.parent is not None and user.parent.parent is not None
            user = user.parent.parent
        return self.number[user]

    def _add(self, op: Collective, kind: _Kind) -> None:
        """Put a collective whose array is there into its bucket."""
        bytes = max(_bytes(op.inputs[0]), _bytes(op.results[0]))
        if bytes >= USUAL_NETWORK.bucket:
            # What is gathered takes memory from there on: it stays where it is needed.
            if not isinstance(op, AllGather):
                self._begin([op])
            return
        bucket = self._open.setdefault(kind, _Bucket())
        bucket.members.append(op)
        bucket.bytes += bytes
        if bucket.bytes >= USUAL_NETWORK.bucket:
            self._close(kind)

    def _close(self, kind: _Kind) -> None:
        self._begin(self._open.pop(kind).members)

    def _begin(self, members: Sequence[Collective]) -> None:
        """Begin collectives of one kind as one, behind the last operation that computes their arrays."""
        last = max(self.ready[op] for op in members)
        before = self.ops[last].next if last >= 0 else self.block.first
        while before in members:
            assert before is not None
            before = before.next
        if len(members) == 1:
            self.block.move(members[0], before)
            return
        emit = Builder(self.block, members[-1].location, before)
        parts = [_rows(emit, op.inputs[0], isinstance(op, ReduceScatter)) for op in members]
        whole = emit(array.Concatenate(parts, len(tensor_type(parts[0]).shape) - 1))
        together = emit(_alike(members[0], whole))
        self.context.log.did("send arrays together", together, arrays=len(members))
        axis = len(tensor_type(together).shape) - 1
        start = 0
        for op, part in zip(members, parts, strict=True):
            end = start + _elements(tensor_type(part).shape[-1:])
            own = array.slice_axis(emit, together, axis, start, end)
            result = reshape(emit, own, tensor_type(op.results[0]).shape)
            self.context.rewriter.replace(op, result, relation=EQUAL)
            start = end


def _may_share(op: Op) -> TypeGuard[Collective]:
    """Whether an operation is a collective that may share a bucket."""
    return (
        isinstance(op, AllReduce | ReduceScatter | AllGather)
        and all(isinstance(size, int) for size in tensor_type(op.inputs[0]).shape)
        and bool(op.results[0].uses)
    )


def _waited_for(block: Block) -> set[Op]:
    """The collectives whose results another one of the block needs, itself or through others."""
    needed = set[Value]()
    found = set[Op]()
    for op in reversed(list(block)):
        is_needed = not needed.isdisjoint(op.results)
        if isinstance(op, Collective) and is_needed:
            found.add(op)
        if is_needed or any(isinstance(inner, Collective) for inner in op.walk()):
            needed.update(op.operands)
    return found


def _sink_users(block: Block, collectives: Iterable[Op]) -> None:
    """Move what is computed from results of collectives to the end of a block, if all of it may move."""
    results = {value for op in collectives for value in op.results}
    users: list[Op] = []
    for op in block:
        if not op.terminator and not results.isdisjoint(op.operands):
            users.append(op)
            results.update(op.results)
    if all(op.pure for op in users):
        for op in users:
            block.move(op, block.terminator)


def _elements(shape: Shape) -> int:
    return prod(size for size in shape if isinstance(size, int))


def _bytes(value: Value) -> int:
    """The bytes of an array whose sizes are numbers."""
    type = tensor_type(value)
    return _elements(type.shape) * type.dtype.bytes


def _rows(emit: Builder, value: Value, has_ranks: bool) -> Value:
    """An array as one row, or as one for each rank."""
    lead = tensor_type(value).shape[: int(has_ranks)]
    shape = tensor_type(value).shape
    return reshape(emit, value, (*lead, _elements(shape) // _elements(lead)))


def _alike(op: Collective, value: Value) -> Collective:
    """The same collective of another array."""
    new = object.__new__(type(op))
    Op.__init__(new, (value,), dict(op.attributes), (), op.location)
    return new


__all__ = ["bucket"]
