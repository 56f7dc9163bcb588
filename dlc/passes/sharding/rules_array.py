"""The sharding rules of tensor mathematics and of collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_letters

from dlc.dialects import array
from dlc.dialects.array.cumulative import Cumulative
from dlc.dialects.array.elementwise import Elementwise, is_number, tensor_type
from dlc.dialects.array.extremes import ArgExtreme
from dlc.dialects.array.reduce import Reduction
from dlc.dialects.comm import Collective, Recv, Send
from dlc.ir.core import Op
from dlc.ir.dims import Shape, Size, product
from dlc.passes.sharding.rule import WHOLE, Rules, ShardingRule, declaring, pick, unary, word

RULES: Rules = {}
rule = declaring(RULES)

# Element by element.


@rule(Elementwise, array.Compare, array.Bitcast)
def _elementwise(op: Op) -> ShardingRule:
    return unary(op)


@rule(array.Negate)
def _negate(op: array.Negate) -> ShardingRule:
    return unary(op, linear=True)


@rule(array.Cast)
def _cast(op: array.Cast) -> ShardingRule:
    source, target = tensor_type(op.source).dtype, op.dtype
    return unary(op, linear=source.is_float and target.is_float and target.bytes > source.bytes)


@rule(array.Add, array.Subtract)
def _sum(op: array.Add | array.Subtract) -> ShardingRule:
    letters = word(tensor_type(op.result))
    return ShardingRule((letters, letters), (letters,), ((0, 1),))


@rule(array.Multiply)
def _product(op: array.Multiply) -> ShardingRule:
    letters = word(tensor_type(op.result))
    return ShardingRule((letters, letters), (letters,), ((0,), (1,)))


@rule(array.Divide)
def _quotient(op: array.Divide) -> ShardingRule:
    letters = word(tensor_type(op.result))
    linear = ((0,),) if tensor_type(op.result).dtype.is_float else ()
    return ShardingRule((letters, letters), (letters,), linear)


@rule(array.Select)
def _select(op: array.Select) -> ShardingRule:
    letters = word(tensor_type(op.result))
    condition = letters if tensor_type(op.condition).rank else ""
    return ShardingRule((condition, letters, letters), (letters,), ((1, 2),))


@rule(array.Fill)
def _fill(op: array.Fill) -> ShardingRule:
    return ShardingRule((), (word(op.type),))


@rule(array.Iota)
def _iota(op: array.Iota) -> ShardingRule:
    return ShardingRule((), (word(tensor_type(op.result), (op.axis,)),))


# Shapes.


@rule(array.Broadcast)
def _broadcast(op: array.Broadcast) -> ShardingRule:
    letters = word(tensor_type(op.result))
    return ShardingRule((pick(letters, op.axes),), (letters,), ((0,),))


@rule(array.Transpose)
def _transpose(op: array.Transpose) -> ShardingRule:
    letters = word(tensor_type(op.source))
    return ShardingRule((letters,), (pick(letters, op.axes),), ((0,),))


@rule(array.Reverse)
def _reverse(op: array.Reverse) -> ShardingRule:
    return unary(op, op.axes, linear=True)


@rule(array.Reshape)
def _reshape(op: array.Reshape) -> ShardingRule:
    """The first axes of parts of both shapes that have the same number of elements belong together."""
    before, after = tensor_type(op.source).shape, op.shape
    words = [[WHOLE] * len(before), [WHOLE] * len(after)]
    for letter, (one, other) in zip(ascii_letters, _leading(before, after), strict=False):
        words[0][one] = words[1][other] = letter
    return ShardingRule(("".join(words[0]),), ("".join(words[1]),), ((0,),))


def _leading(before: Shape, after: Shape) -> Iterator[tuple[int, int]]:
    """The axes that lead the parts of two shapes with the same number of elements."""
    axes = [[k for k, size in enumerate(shape) if size != 1] for shape in (before, after)]
    while axes[0] and axes[1]:
        yield axes[0][0], axes[1][0]
        ends = _shortest(
            [before[k] for k in axes[0]],
            [after[k] for k in axes[1]],
        )
        if ends is None:
            return
        axes = [axes[0][ends[0] :], axes[1][ends[1] :]]


def _shortest(before: Sequence[Size], after: Sequence[Size]) -> tuple[int, int] | None:
    """How many axes the shortest beginnings of the same number of elements have."""
    counts = {product(before[:k]): k for k in range(len(before), 0, -1)}
    for k in range(1, len(after) + 1):
        if (found := counts.get(product(after[:k]))) is not None:
            return found, k
    return None


@rule(array.Slice)
def _slice(op: array.Slice) -> ShardingRule:
    shape = tensor_type(op.source).shape
    axes = zip(shape, op.starts, op.limits, op.steps, strict=True)
    cut = [k for k, (size, *part) in enumerate(axes) if part != [0, size, 1]]
    return unary(op, cut, linear=True)


@rule(array.Pad)
def _pad(op: array.Pad) -> ShardingRule:
    axes = zip(op.low, op.high, op.interior, strict=True)
    letters = word(tensor_type(op.source), [k for k, ends in enumerate(axes) if any(ends)])
    linear = ((0,),) if is_number(op.value, 0) else ()
    return ShardingRule((letters, ""), (letters,), linear)


@rule(array.Concatenate)
def _concatenate(op: array.Concatenate) -> ShardingRule:
    letters = word(tensor_type(op.result), (op.axis,))
    count = len(op.operands)
    return ShardingRule((letters,) * count, (letters,), (tuple(range(count)),))


@rule(array.DynamicSlice)
def _dynamic_slice(op: array.DynamicSlice) -> ShardingRule:
    shape = tensor_type(op.source).shape
    cut = [k for k, (size, part) in enumerate(zip(shape, op.sizes, strict=True)) if size != part]
    letters = word(tensor_type(op.source), cut)
    return ShardingRule((letters, *[""] * len(op.starts)), (letters,), ((0,),))


@rule(array.DynamicUpdateSlice)
def _dynamic_update_slice(op: array.DynamicUpdateSlice) -> ShardingRule:
    shapes = zip(tensor_type(op.target).shape, tensor_type(op.update).shape, strict=True)
    letters = word(
        tensor_type(op.target), [k for k, (size, part) in enumerate(shapes) if size != part]
    )
    return ShardingRule((letters, letters, *[""] * len(op.starts)), (letters,), ((0, 1),))


# Along axes.


@rule(Reduction, ArgExtreme)
def _reduction(op: Reduction | ArgExtreme) -> ShardingRule:
    axes = op.axes if isinstance(op, Reduction) else (op.axis,)
    letters = word(tensor_type(op.source), axes)
    return ShardingRule((letters,), (letters.replace(WHOLE, ""),))


@rule(array.ReduceSum)
def _reduce_sum(op: array.ReduceSum) -> ShardingRule:
    letters = word(tensor_type(op.source))
    return ShardingRule((letters,), (pick(letters, op.kept),), ((0,),))


@rule(Cumulative)
def _cumulative(op: Cumulative) -> ShardingRule:
    return unary(op, (op.axis,))


@rule(array.Sort)
def _sort(op: array.Sort) -> ShardingRule:
    return unary(op, (op.axis,))


@rule(array.TopK)
def _top_k(op: array.TopK) -> ShardingRule:
    return unary(op, (op.axis,))


@rule(array.ReduceWindow, array.SelectAndScatter)
def _windows(op: array.ReduceWindow | array.SelectAndScatter) -> ShardingRule:
    axes = zip(op.window, op.strides, op.padding, strict=True)
    return unary(op, [k for k, axis in enumerate(axes) if axis != (1, 1, (0, 0))])


# By index.


@rule(array.Gather)
def _gather(op: array.Gather) -> ShardingRule:
    source = word(tensor_type(op.source), op.axes)
    index = _fresh(source, tensor_type(op.indices[0]).rank)
    result = index + source.replace(WHOLE, "")
    return ShardingRule((source, *[index] * len(op.indices)), (result,), ((0,),))


@rule(array.Scatter)
def _scatter(op: array.Scatter) -> ShardingRule:
    """The places of updates are summed over: each rank adds its own to zeros, or to a partial sum."""
    target = word(tensor_type(op.target), op.axes)
    rank = tensor_type(op.indices[0]).rank
    adds = op.mode == "add" and is_number(op.target, 0)
    index = _fresh(target, rank) if adds else WHOLE * rank
    updates = index + target.replace(WHOLE, "")
    linear = ((0, 1),) if op.mode == "add" else ()
    return ShardingRule((target, updates, *[index] * len(op.indices)), (target,), linear)


def _fresh(word: str, count: int) -> str:
    """As many letters that a word does not have."""
    return "".join([letter for letter in ascii_letters if letter not in word][:count])


# Products.


@rule(array.MatMul)
def _matmul(op: array.MatMul) -> ShardingRule:
    batch = ascii_letters[: tensor_type(op.result).rank - 2]
    return ShardingRule((f"{batch}MK", f"{batch}KN"), (f"{batch}MN",), ((0,), (1,)))


@rule(array.DotGeneral)
def _dot_general(op: array.DotGeneral) -> ShardingRule:
    lhs = word(tensor_type(op.lhs))
    free = iter(_fresh(lhs, len(op.rhs_free)))
    same = dict(zip(op.rhs_batch, op.lhs_batch, strict=True))
    same |= dict(zip(op.rhs_contract, op.lhs_contract, strict=True))
    rhs = "".join(
        lhs[same[axis]] if axis in same else next(free) for axis in range(tensor_type(op.rhs).rank)
    )
    result = pick(lhs, op.lhs_batch + op.lhs_free) + pick(rhs, op.rhs_free)
    return ShardingRule((lhs, rhs), (result,), ((0,), (1,)))


@rule(array.Convolution)
def _convolution(op: array.Convolution) -> ShardingRule:
    layout = op.layout
    picture, kernel, result = ([WHOLE] * layout.rank for _ in range(3))
    picture[0] = result[0] = "N"
    if op.groups == 1:
        picture[layout.channel] = kernel[layout.kernel_in] = "C"
        kernel[layout.kernel_out] = result[layout.channel] = "O"
    words = ["".join(each) for each in (picture, kernel, result)]
    return ShardingRule((words[0], words[1]), (words[2],), ((0,), (1,)))


@rule(array.DepthwiseGradient)
def _depthwise_gradient(op: array.DepthwiseGradient) -> ShardingRule:
    rank = op.layout.rank
    picture = "N" + WHOLE * (rank - 2) + "C"
    return ShardingRule((picture, picture), (WHOLE * (rank - 1) + "C",), ((0,), (1,)))


# What goes along another axis of the mesh.


@rule(Send, Recv)
def _transfer(op: Send | Recv) -> ShardingRule:
    return unary(op, linear=True)


@rule(Collective)
def _collective(op: Collective) -> ShardingRule | None:
    before, after = tensor_type(op.operands[0]), tensor_type(op.results[0])
    longest = before if before.rank >= after.rank else after
    lead = (0,) if before.rank != after.rank or op.name == "comm.all_to_all" else ()
    letters = word(longest, lead)
    words = [letters[longest.rank - type.rank :] for type in (before, after)]
    is_linear = op.attributes.get("combine", "sum") == "sum"
    return ShardingRule((words[0],), (words[1],), ((0,),) if is_linear else ())
