"""Reverse mode: from what the results of a block receive to what its arguments receive.

The block is walked from its end. Each operation says in its `gradient` what its operands receive when its
results receive something; what a value receives from several users is added up. The operations of the
backward half refer to the values of the forward half and never compute them again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.dialects import array
from dlc.dialects.array.elementwise import show
from dlc.ir.attributes import decode
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.location import Location
from dlc.ir.types import TensorType
from dlc.ir.value_map import EQUAL, ValueMap


class Backward(Builder):
    """Places a backward half, and does not place what exists already: no product with ones.

    A cotangent often starts as ones, and what it multiplies then needs no multiplication and, in a loop,
    no memory. `values` follows the user's values through decompositions.
    """

    __slots__ = ("values",)

    def __init__(
        self, block: Block, location: Location, values: ValueMap, before: Op | None = None
    ) -> None:
        super().__init__(block, location, before)
        self.values = values

    def __call__(self, op: Op, name: str | None = None) -> Value:
        known = _existing(op)
        if isinstance(known, Op):
            op.erase()
            return super().__call__(known, name)
        if known is None:
            return super().__call__(op, name)
        op.erase()
        return known

    def at(self, location: Location) -> Backward:
        return Backward(self.block, location, self.values, self.before)

    def inside(self, block: Block) -> Backward:
        """A builder at the end of another block, with the same location."""
        return Backward(block, self.location, self.values)


class Structured(Op):
    """An operation whose gradient depends on which of its operands matter and which results do."""

    def backward(
        self, emit: Backward, cotangents: Sequence[Value | None], active: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        """For each operand what it receives; None for 0 and for operands that are not active.

        A cotangent is None for a result that receives nothing. The operation may get further results
        that hand over what its backward half needs.
        """
        raise NotImplementedError(f"{self.name} has no backward")


def is_float(value: Value) -> bool:
    """Whether a value can have a derivative at all."""
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


def zeros(emit: Builder, like: Value) -> Value:
    """A tensor of the type of `like` with 0 everywhere."""
    return array.constant_like(emit, 0, like)


def repeated(emit: Backward, cotangent: Value, like: Value) -> Value | None:
    """A cotangent, or a part of it, again inside another block, if it is one number everywhere."""
    number = filled_with(cotangent)
    return None if number is None else array.constant_like(emit, number, like)


def pull_back(
    block: Block, wrt: Sequence[Value], cotangents: Sequence[Value | None], emit: Backward
) -> list[Value | None]:
    """What the arguments `wrt` of a block receive; None for nothing.

    `cotangents` are what the operands of its terminator receive. The backward half is placed by `emit`
    in another block; this one changes where operations have no rule of their own (they are decomposed)
    or must hand over more than before.
    """
    active = activate(block, wrt, emit.values)
    received: dict[Value, Value] = {}
    ends = block.terminator.operands
    _accumulate(emit, received, active, ends, cotangents)
    op = block.last
    while op is not None:
        given = [received.get(result) for result in op.results]
        if any(cotangent is not None for cotangent in given):
            # A loop that must keep values gets further operands: these are the ones it had.
            at, operands = emit.at(op.location), op.operands
            _accumulate(at, received, active, operands, _rule(op, at, given, active))
        op = op.previous
    return [received.get(value) for value in wrt]


def activate(block: Block, wrt: Collection[Value], values: ValueMap) -> set[Value]:
    """The values of a block that depend on `wrt` in a way that can have a derivative.

    An operation among them that has no rule is replaced by its decomposition; `values` learns of it.
    """
    active = set(wrt)
    op = block.first
    while op is not None:
        following = op.next
        if not op.terminator and any(operand in active for operand in op.operands):
            if _lacks_rule(op):
                following = _expand(op, values)
            else:
                active.update(filter(is_float, op.results))
        op = following
    return active


def sweep(block: Block) -> None:
    """Erase the operations of a block that nothing uses."""
    op = block.last
    while op is not None:
        previous = op.previous
        if op.pure and not op.terminator and op.is_unused:
            op.erase()
        op = previous


def _lacks_rule(op: Op) -> bool:
    kind = type(op)
    ruled = isinstance(op, Structured) or kind.gradient is not Op.gradient
    return not ruled and kind.decompose is not Op.decompose


def _expand(op: Op, values: ValueMap) -> Op | None:
    """Put the decomposition of an operation in its place; gives back what now comes first."""
    block, previous = op.parent, op.previous
    assert block is not None
    results = op.decompose(Builder.before_op(op))
    assert results is not None
    for old, new in zip(op.results, results, strict=True):
        new.name = new.name or old.name
        values.replaced(old, new, EQUAL)
        old.replace_by(new)
    following = block.first if previous is None else previous.next
    if following is op:
        following = op.next
    op.erase()
    return following


def _rule(
    op: Op, emit: Backward, given: Sequence[Value | None], active: Collection[Value]
) -> Sequence[Value | None]:
    if not any(operand in active for operand in op.operands):
        return [None] * len(op.operands)
    if isinstance(op, Structured):
        return op.backward(emit, given, [operand in active for operand in op.operands])
    if op.not_differentiable:
        raise op.fail(
            f"{op.name} has no derivative: {op.not_differentiable}",
            code="D0405",
            help="keep it away from the derivative by stop_gradient",
        )
    full = [
        zeros(emit, result) if cotangent is None else cotangent
        for result, cotangent in zip(op.results, given, strict=True)
    ]
    return op.gradient(emit, *full)


def _accumulate(
    emit: Builder,
    received: dict[Value, Value],
    active: Collection[Value],
    values: Sequence[Value],
    cotangents: Sequence[Value | None],
) -> None:
    # What one operation gives to a value that it uses twice is often the same: x * x gives dy * x and
    # dy * x. Added first, the two are one product.
    parts: dict[Value, Value] = {}
    for value, cotangent in zip(values, cotangents, strict=True):
        if cotangent is None or value not in active:
            continue
        assert cotangent.type is value.type, f"{show(value)} receives {show(cotangent)}"
        earlier = parts.get(value)
        parts[value] = cotangent if earlier is None else emit(array.Add(earlier, cotangent))
    for value, part in parts.items():
        earlier = received.get(value)
        received[value] = part if earlier is None else emit(array.Add(earlier, part))


def _existing(op: Op) -> Value | Op | None:
    """A value that equals the result, or a simpler operation; None for nothing better."""
    match op:
        case array.Negate(source=x):
            number = filled_with(x)
            return None if number is None else array.Fill(-number, array.tensor_type(x))
        case array.Broadcast() | array.Reshape() | array.Transpose():
            number = filled_with(op.source)
            if number is not None:
                return array.Fill(number, array.tensor_type(op.result))
        case _:
            pass
    known = op.fold()
    return known if isinstance(known, Value) else None


def filled_with(value: Value) -> float | None:
    """The number that a tensor of floats has everywhere, where that is plain."""
    match value.op:
        case array.Fill(value=number, type=TensorType(dtype)) if dtype.is_float:
            return float(number)
        case array.Constant(value=dense) if dense.is_splat and dense.type.dtype.is_float:
            return float(decode(dense.array.reshape(-1)[:1], dense.type.dtype)[0])
        case _:
            return None
