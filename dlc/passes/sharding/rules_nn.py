"""The sharding rules of the operations of neural networks; those without one are decomposed first."""

from __future__ import annotations

from dlc.dialects import array, nn
from dlc.dialects.array.elementwise import tensor_type
from dlc.passes.sharding.rule import WHOLE, Rules, ShardingRule, declaring, unary, word

RULES: Rules = {}
rule = declaring(RULES)


@rule(nn.Linear)
def _linear(op: nn.Linear) -> ShardingRule:
    """With a bias, which is added once, partial sums cannot pass, and the sum cannot be split."""
    rows = word(tensor_type(op.source))[:-1]
    inner = "K" if not op.bias else WHOLE
    operands = (rows + inner, inner + "N", *["N"] * len(op.bias))
    return ShardingRule(operands, (rows + "N",), () if op.bias else ((0,), (1,)))


@rule(nn.Conv)
def _conv(op: nn.Conv) -> ShardingRule:
    layout = array.LAYOUTS[op.dims]
    picture, kernel, result = ([WHOLE] * layout.rank for _ in range(3))
    picture[0] = result[0] = "N"
    if op.groups == 1:
        kernel[layout.kernel_out] = result[layout.channel] = "O"
        if not op.bias:
            picture[layout.channel] = kernel[layout.kernel_in] = "C"
    words = ["".join(each) for each in (picture, kernel, result)]
    bias = ["O" if op.groups == 1 else WHOLE] * len(op.bias)
    return ShardingRule((*words[:2], *bias), (words[2],), () if op.bias else ((0,), (1,)))


@rule(nn.Softmax, nn.LogSoftmax)
def _softmax(op: nn.Softmax | nn.LogSoftmax) -> ShardingRule:
    return unary(op, (op.axis,))


@rule(nn.LogSumExp)
def _logsumexp(op: nn.LogSumExp) -> ShardingRule:
    letters = word(tensor_type(op.source), (op.axis,))
    return ShardingRule((letters,), (letters.replace(WHOLE, ""),))


@rule(nn.CrossEntropy)
def _cross_entropy(op: nn.CrossEntropy) -> ShardingRule:
    rows = word(tensor_type(op.labels))
    return ShardingRule((rows + WHOLE, rows), (rows,))


@rule(nn.LayerNorm, nn.RMSNorm)
def _norm(op: nn.LayerNorm | nn.RMSNorm) -> ShardingRule:
    rank = tensor_type(op.source).rank
    letters = word(tensor_type(op.source), range(op.axis, rank))
    parameters = [WHOLE * (rank - op.axis)] * (len(op.operands) - 1)
    return ShardingRule((letters, *parameters), (letters,))


@rule(nn.LSTM)
def _lstm(op: nn.LSTM) -> ShardingRule:
    sequence = "B.." if op.time == 1 else ".B."
    return ShardingRule((sequence, "..", "..", ".", "B.", "B."), (sequence, "B.", "B."))


@rule(nn.Attention)
def _attention(op: nn.Attention) -> ShardingRule:
    """Heads and examples apart. The queries too, where no mask counts them, and the values' columns."""
    batch = word(tensor_type(op.query))[:-2]
    query = "M" if op.causal is None else WHOLE
    rows = batch + query
    mask = [rows + WHOLE] * len(op.mask)
    numbers = [rows] * (len(op.results) - 1)
    # The logarithms have no column: with them, columns cannot be split.
    column = WHOLE if op.logarithms else "E"
    return ShardingRule(
        (rows + WHOLE, batch + WHOLE * 2, batch + WHOLE + column, *mask),
        (rows + column, *numbers),
    )


@rule(nn.AttentionGradient)
def _attention_gradient(op: nn.AttentionGradient) -> ShardingRule:
    batch = word(tensor_type(op.query))[:-2]
    matrix, row = batch + WHOLE * 2, batch + WHOLE
    return ShardingRule(
        (matrix, matrix, matrix, matrix, row, row, *[matrix] * len(op.mask)),
        (matrix,) * len(op.results),
    )
