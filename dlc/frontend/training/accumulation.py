"""`accumulate = 4`: the gradients of several microbatches, summed in a loop inside of one step.

The step takes the examples of all microbatches at once, `f32[4*B, 10]`, and goes through them: a scan that
carries the sums of losses and gradients, and the states, which each microbatch sets in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dlc.dialects import array, flow
from dlc.dialects.array.shape import reshape
from dlc.frontend.elaboration.tensors import broadcast_to, convert, dtype_of, tensor_type
from dlc.frontend.elaboration.trace import Loop, Trace, capture
from dlc.ir.core import Block, Value
from dlc.ir.types import BF16, F16, F32, F64, TensorType

__all__ = ["Differentiated", "accumulated"]


class Differentiated(NamedTuple):
    """The losses of a batch (first the one that is trained on), the gradient for each weight by symbol, and
    what the states become."""

    losses: list[Value]
    gradients: dict[str, Value]
    states: dict[Value, Value]


class _Microbatches(Loop):
    """The loop while its body is elaborated: random numbers differ from one microbatch to the next."""

    def __init__(self, at: Trace) -> None:
        self.outer = at.block
        self.block = Block()
        self.number = self.block.add_argument(flow.COUNTER)

    def counter(self) -> Value:
        return self.number


def accumulated(
    at: Trace,
    count: int,
    inputs: Mapping[str, Value],
    differentiate: Callable[[Mapping[str, Value]], Differentiated],
    weight: int | None = None,
) -> Differentiated:
    """The means of losses and gradients over `count` microbatches of the inputs.

    With `weight`, the number of the loss that says what its microbatch counts, they are means by that, and
    this number is a sum.
    `differentiate` elaborates one microbatch. It is called twice: what it gives is known, and with it what
    the loop carries, only after the first time, which is thrown away.
    """
    rows = {name: _split(at, count, value) for name, value in inputs.items()}
    sums, states = _carried_types(at, rows, differentiate)
    starts = [array.fill(at, 0, type) for type in sums]
    loop = _Microbatches(at)
    carried = [loop.block.add_argument(value.type) for value in (*starts, *states)]
    slices = {name: loop.block.add_argument(_row(value)) for name, value in rows.items()}
    with at.inside(loop.block), at.looping(loop):
        found = differentiate(slices)
        own = [*found.losses, *found.gradients.values()]
        added = _added(at, carried[: len(sums)], own, weight)
        at.place(flow.Yield([*added, *[found.states[state] for state in states]]))
    _read_carried(loop.block, dict(zip(states, carried[len(sums) :], strict=True)))
    results = at.all(_scan(loop.block, [*starts, *states], list(rows.values()), count))
    means = _means(at, results[: len(sums)], count, own, weight)
    losses, gradients = means[: len(found.losses)], means[len(found.losses) :]
    return Differentiated(
        losses,
        dict(zip(found.gradients, gradients, strict=True)),
        dict(zip(states, results[len(sums) :], strict=True)),
    )


def _carried_types(
    at: Trace,
    rows: Mapping[str, Value],
    differentiate: Callable[[Mapping[str, Value]], Differentiated],
) -> tuple[list[TensorType], list[Value]]:
    """The types of the sums and the states that the loop carries, from a microbatch that is discarded."""
    with at.discarded() as block:
        trial = _Microbatches(at)
        trial.block = block
        slices = {name: block.add_argument(_row(value)) for name, value in rows.items()}
        with at.looping(trial):
            once = differentiate(slices)
        sums = [_wide(tensor_type(v)) for v in (*once.losses, *once.gradients.values())]
        return sums, list(once.states)


def _scan(block: Block, starts: list[Value], rows: list[Value], count: int) -> flow.Scan:
    """The loop over the microbatches: it carries values from `starts`, and stacks nothing."""
    return flow.Scan(starts, rows, capture([block]), block, count, (0,) * len(rows), (), False)


def _split(at: Trace, count: int, value: Value) -> Value:
    """The examples of an input, a row for each microbatch."""
    whole, *rest = tensor_type(value).shape
    return reshape(at, value, (count, whole // count, *rest))


def _row(value: Value) -> TensorType:
    type = tensor_type(value)
    return type.with_shape(type.shape[1:])


def _wide(type: TensorType) -> TensorType:
    """The type of a sum: f32 for what has fewer bits."""
    return type.with_dtype(F32) if type.dtype in (F16, BF16) else type


def _added(
    at: Trace, totals: Sequence[Value], values: Sequence[Value], weight: int | None
) -> list[Value]:
    """The sums with the values of one more microbatch, each times its weight if there is one.

    What counts nothing is not added: its mean over no examples is NaN.
    """
    wide = [convert(at, v, dtype_of(total)) for v, total in zip(values, totals, strict=True)]
    if weight is not None:
        by = wide[weight]
        wide = [v if k == weight else _weighted(at, v, by) for k, v in enumerate(wide)]
    return [at(array.Add(total, v)) for total, v in zip(totals, wide, strict=True)]


def _means(
    at: Trace, totals: Sequence[Value], count: int, like: Sequence[Value], weight: int | None
) -> list[Value]:
    """The means from the sums, in the dtypes of the values that were added; a weight stays a sum."""
    if weight is None:
        part = array.fill(at, 1 / count, TensorType(F64))
    else:
        one = array.constant_like(at, 1, totals[weight])
        part = at(array.Divide(one, totals[weight]))
    return [
        convert(at, total if k == weight else _times(at, total, part), dtype_of(value))
        for k, (total, value) in enumerate(zip(totals, like, strict=True))
    ]


def _weighted(at: Trace, value: Value, weight: Value) -> Value:
    """A value times its weight; 0 for a weight of 0, whatever the value."""
    counts = at(array.Compare(weight, array.constant_like(at, 0, weight), "ne"))
    same = broadcast_to(at, counts, tensor_type(value).shape)
    zero = array.constant_like(at, 0, value)
    return at(array.Select(same, _times(at, value, weight), zero))


def _times(at: Trace, value: Value, factor: Value) -> Value:
    """A value times a number."""
    own = convert(at, factor, dtype_of(value))
    return at(array.Multiply(value, broadcast_to(at, own, tensor_type(value).shape)))


def _read_carried(block: Block, states: Mapping[Value, Value]) -> None:
    """Let a microbatch begin with the states that the one before it has set."""
    for op in block:
        for operand in dict.fromkeys(op.operands):
            if operand in states:
                op.replace_operand(operand, states[operand])
