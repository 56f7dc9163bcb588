"""Reverse-mode differentiation of a block: from the cotangents of its results to those of its arguments.

The block is walked from its end. The `gradient` of each operation gives the cotangents of its operands from
those of its results, and the cotangents that a value receives from several users are added. The operations
of the backward half use the values of the forward half and never recompute them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.dialects import array
from dlc.dialects.array.elementwise import show
from dlc.ir.attributes import decode
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.location import Location, gradient_location
from dlc.ir.types import TensorType
from dlc.ir.value_map import EQUAL, ValueMap


class Backward(Builder):
    """A builder of a backward half that folds operations instead of inserting them, such as `1 * x`.

    Cotangents often start as ones; their products then need no multiplication and, in a loop, no memory.
    `values` follows the user's values through decompositions.
    """

    __slots__ = ("values",)

    def __init__(
        self, block: Block, location: Location, values: ValueMap, before: Op | None = None
    ) -> None:
        super().__init__(block, location, before)
        self.values = values

    def __call__(self, op: Op, name: str | None = None) -> Value:
        folded = _folded(op)
        if folded is None:
            return super().__call__(op, name)
        op.erase()
        return super().__call__(folded, name) if isinstance(folded, Op) else folded

    def at(self, location: Location) -> Backward:
        return Backward(self.block, location, self.values, self.before)

    def inside(self, block: Block) -> Backward:
        """A builder at the end of another block, with the same location."""
        return Backward(block, self.location, self.values)


class Structured(Op):
    """An operation with regions, differentiated with respect to its active operands only."""

    def backward(
        self, emit: Backward, cotangents: Sequence[Value | None], active: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        """The cotangents of the operands; None for 0 and for operands that are not active.

        A cotangent of a result is None for 0. The operation may get further results, the values that its
        backward half needs.
        """
        raise NotImplementedError(f"{self.name} has no backward")


def is_float(value: Value) -> bool:
    """Whether a value is a tensor of floats, which alone can have a derivative."""
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


def zeros(emit: Builder, like: Value) -> Value:
    """A tensor of the type of `like` with 0 everywhere."""
    return array.constant_like(emit, 0, like)


def repeated(emit: Backward, cotangent: Value, like: Value) -> Value | None:
    """A cotangent, or a part of it, created anew inside another block if it is one number everywhere."""
    number = filled_with(cotangent)
    return None if number is None else array.constant_like(emit, number, like)


def pull_back(
    block: Block, wrt: Sequence[Value], cotangents: Sequence[Value | None], emit: Backward
) -> list[Value | None]:
    """The cotangents of the arguments `wrt` of a block, from those of its results; None for 0.

    `emit` inserts the backward half into another block. The block itself changes where operations have no
    gradient of their own, which are decomposed, or must yield more values for their backward halves.
    """
    active = activate(block, wrt, emit.values)
    received: dict[Value, Value] = {}
    ends = block.terminator.operands
    _accumulate(emit, received, active, ends, cotangents)
    op = block.last
    while op is not None:
        of_results = [received.get(result) for result in op.results]
        if any(cotangent is not None for cotangent in of_results):
            # A loop that must keep values gets further operands; these are the original ones.
            at, operands = emit.at(gradient_location(op.location)), op.operands
            _accumulate(at, received, active, operands, _gradient(op, at, of_results, active))
        op = op.previous
    return [received.get(value) for value in wrt]


def activate(block: Block, wrt: Collection[Value], values: ValueMap) -> set[Value]:
    """The values of a block that depend on `wrt` and can have a derivative (activity analysis).

    An active operation without a gradient is replaced by its decomposition, which `values` records.
    """
    active = set(wrt)
    op = block.first
    while op is not None:
        following = op.next
        if not op.terminator and any(operand in active for operand in op.operands):
            if _lacks_gradient(op):
                following = _expand(op, values)
            else:
                active.update(filter(is_float, op.results))
        op = following
    return active


def sweep(block: Block) -> None:
    """Erase the pure operations of a block that nothing uses (dead code elimination)."""
    op = block.last
    while op is not None:
        previous = op.previous
        if op.pure and not op.terminator and op.is_unused:
            op.erase()
        op = previous


def _lacks_gradient(op: Op) -> bool:
    kind = type(op)
    has_gradient = isinstance(op, Structured) or kind.gradient is not Op.gradient
    return not has_gradient and kind.decompose is not Op.decompose


def _expand(op: Op, values: ValueMap) -> Op | None:
    """Replace an operation by its decomposition; returns the first operation of that."""
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


def _gradient(
    op: Op, emit: Backward, cotangents: Sequence[Value | None], active: Collection[Value]
) -> Sequence[Value | None]:
    if not any(operand in active for operand in op.operands):
        return [None] * len(op.operands)
    if isinstance(op, Structured):
        return op.backward(emit, cotangents, [operand in active for operand in op.operands])
    if op.not_differentiable:
        raise op.fail(
            f"{op.name} has no derivative: {op.not_differentiable}",
            code="D0405",
            help="keep it away from the derivative by stop_gradient",
        )
    filled = [
        zeros(emit, result) if cotangent is None else cotangent
        for result, cotangent in zip(op.results, cotangents, strict=True)
    ]
    return op.gradient(emit, *filled)


def _accumulate(
    emit: Builder,
    received: dict[Value, Value],
    active: Collection[Value],
    values: Sequence[Value],
    cotangents: Sequence[Value | None],
) -> None:
    # An operation that uses a value twice often gives it the same cotangent twice: x * x gives dy * x and
    # dy * x. Added to each other first, the two share one product.
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


def _folded(op: Op) -> Value | Op | None:
    """An existing value that equals the result, or a simpler operation that computes it; else None."""
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
    folded = op.fold()
    return folded if isinstance(folded, Value) else None


def filled_with(value: Value) -> float | None:
    """The number that all elements of a tensor of floats have, where its operation shows it."""
    match value.op:
        case array.Fill(value=number, type=TensorType(dtype)) if dtype.is_float:
            return float(number)
        case array.Constant(value=dense) if dense.is_splat and dense.type.dtype.is_float:
            return float(decode(dense.array.reshape(-1)[:1], dense.type.dtype)[0])
        case _:
            return None
