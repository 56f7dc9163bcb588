"""The operations of neural networks against formulas of SciPy and plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

from dlc.dialects import array, flow, nn
from dlc.dialects.decomposed import decomposition
from dlc.errors import CallError, ModelError
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import symbol
from dlc.ir.types import BF16, BOOL, F16, F64, I32, I64, DType, TensorType
from tests.dialects.programs import (
    Build,
    assert_close,
    check_gradient,
    evaluate,
    expanded,
    gradient,
    ops,
    program,
    run,
    tensor,
    types_of,
)

Doubles = NDArray[np.float64]
RANDOM = np.random.default_rng(11)
X = RANDOM.standard_normal((4, 3, 5))


Make: TypeAlias = (
    Callable[[Value], Op]
    | Callable[[Value, Value], Op]
    | Callable[[Value, Value, Value], Op]
    | Callable[[Value, Value, Value, Value], Op]
    | Callable[[Value, Value, Value, Value, Value, Value], Op]
)


def one(make: Make) -> Build:
    """A program that is one operation."""

    def built(emit: Builder, *arguments: Value) -> tuple[Value, ...]:
        return emit.all(cast("Callable[..., Op]", make)(*arguments))

    return built


# softmax

ROWS = {
    nn.Softmax: scipy.special.softmax,
    nn.LogSoftmax: scipy.special.log_softmax,
    nn.LogSumExp: scipy.special.logsumexp,
}


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.name)
def test_softmax_and_its_kin_are_those_of_scipy(
    kind: type[nn.Softmax | nn.LogSoftmax | nn.LogSumExp], axis: int
) -> None:
    built = one(lambda x: kind(x, axis))
    assert_close(evaluate(built, X)[0], ROWS[kind](X, axis=axis), rtol=1e-14, atol=1e-15)
    check_gradient(built, X, order=2)


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.name)
def test_they_do_not_overflow(kind: type[nn.Softmax | nn.LogSoftmax | nn.LogSumExp]) -> None:
    large = np.array([[1000.0, 999.0, -1000.0]])
    built = one(lambda x: kind(x, 1))
    assert_close(evaluate(built, large)[0], ROWS[kind](large, axis=1), rtol=1e-14)
    assert np.isfinite(evaluate(gradient(built), large)[0]).all()


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_narrow_rows_round_once(dtype: DType) -> None:
    x = encode(np.asarray(RANDOM.standard_normal((4, 64)), np.float32), dtype)
    module = program(one(lambda x: nn.Softmax(x, 1)), [TensorType(dtype, (4, 64))])
    exact = scipy.special.softmax(decode(x, dtype).astype(np.float32), axis=1)
    np.testing.assert_array_equal(run(module, x)[0], encode(exact, dtype))


def test_the_log_of_a_sum_of_nothing_but_zeros_is_minus_infinity() -> None:
    nothing = np.full((2, 3), -np.inf)
    np.testing.assert_array_equal(evaluate(one(lambda x: nn.LogSumExp(x, 1)), nothing)[0], -np.inf)
    some = np.array([[-np.inf, 0.0, np.inf]])
    np.testing.assert_array_equal(evaluate(one(lambda x: nn.LogSumExp(x, 1)), some)[0], np.inf)


def test_the_gradient_of_a_softmax_uses_the_softmax_itself() -> None:
    module = expanded(gradient(one(lambda x: nn.Softmax(x, 1))), [tensor(2, 3)])
    assert len(ops(module, nn.Softmax)) == 1
    assert not ops(module, array.Exp)


def test_integers_have_no_softmax() -> None:
    with pytest.raises(ModelError, match=r"D0302.*nn.softmax has no meaning for i32"):
        program(one(lambda x: nn.Softmax(x, 0)), [TensorType(I32, (3,))])


def test_a_softmax_needs_its_axis() -> None:
    with pytest.raises(ModelError, match=r"D0305.*f64\[3\] has no axis 1"):
        program(one(lambda x: nn.Softmax(x, 1)), [tensor(3)])


def test_a_decomposition_takes_the_operands_and_returns_the_results() -> None:
    module = program(one(lambda x: nn.Softmax(x, 1)), [tensor(2, 3)])
    (softmax,) = ops(module, nn.Softmax)
    block = decomposition(softmax)
    assert [argument.type for argument in block.arguments] == [tensor(2, 3)]
    assert [value.type for value in block.terminator.operands] == [tensor(2, 3)]
    assert list(softmax.operands[0].uses) == [softmax]


# normalisation


def layer_norm(x: Doubles, axes: tuple[int, ...], eps: float) -> Doubles:
    middle = x.mean(axis=axes, keepdims=True)
    return (x - middle) / np.sqrt(x.var(axis=axes, keepdims=True) + eps)


@pytest.mark.parametrize("axis", [1, 2])
def test_layer_norm(axis: int) -> None:
    axes = tuple(range(axis, 3))
    scale, shift = RANDOM.standard_normal((2, *X.shape[axis:]))

    def built(emit: Builder, x: Value, scale: Value, shift: Value) -> Value:
        return nn.layer_norm(emit, x, scale, shift, axis=axis, eps=1e-3)

    expected = layer_norm(X, axes, 1e-3) * scale + shift
    assert_close(evaluate(built, X, scale, shift)[0], expected, rtol=1e-12, atol=1e-13)
    check_gradient(built, X, scale, shift, order=2)


def test_layer_norm_without_parameters() -> None:
    def built(emit: Builder, x: Value) -> Value:
        return nn.layer_norm(emit, x, axis=2)

    assert_close(evaluate(built, X)[0], layer_norm(X, (2,), 1e-5), rtol=1e-12, atol=1e-13)


def test_rms_norm() -> None:
    scale = RANDOM.standard_normal(5)

    def built(emit: Builder, x: Value, scale: Value) -> Value:
        return nn.rms_norm(emit, x, scale, axis=2, eps=1e-3)

    size = np.sqrt((X * X).mean(axis=2, keepdims=True) + 1e-3)
    assert_close(evaluate(built, X, scale)[0], X / size * scale, rtol=1e-13)
    check_gradient(built, X, scale, order=2)


def test_rows_of_symbolic_length_are_normalised() -> None:
    type = TensorType(F64, (symbol("B"), symbol("D")))
    module = program(one(lambda x: nn.RMSNorm(x, (), 1)), [type])
    (found,) = run(module, X[0], dims={"B": 3, "D": 5})
    size = np.sqrt((X[0] ** 2).mean(axis=1, keepdims=True) + 1e-5)
    assert_close(found, X[0] / size, rtol=1e-13)


def test_narrow_norms_are_computed_in_f32() -> None:
    x = (100 + RANDOM.standard_normal((3, 256))).astype(np.float16)
    (found,) = evaluate(one(lambda x: nn.LayerNorm(x, (), (), 1)), x)
    expected = layer_norm(x.astype(np.float64), (1,), 1e-5)
    assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_the_parameters_of_a_norm_are_one_row() -> None:
    with pytest.raises(ModelError, match=r"rows of f64\[4, 3\] are f64\[3\], found f64\[4\]"):
        program(one(lambda x, scale: nn.RMSNorm(x, (scale,), 1)), [tensor(4, 3), tensor(4)])
    with pytest.raises(ModelError, match="at most one scale and one shift"):
        program(one(lambda x, s: nn.LayerNorm(x, (s, s), (), 1)), [tensor(4, 3), tensor(3)])


# losses


def test_cross_entropy_is_minus_the_log_of_the_probability_of_the_label() -> None:
    labels = np.array([[0, 4, 2], [1, 1, 3], [0, 0, 0], [4, 2, 3]], np.uint8)
    built = one(nn.CrossEntropy)
    (loss,) = evaluate(built, X, labels)
    logs = scipy.special.log_softmax(X, axis=-1)
    expected = -np.take_along_axis(logs, labels[..., None].astype(np.int64), -1)[..., 0]
    assert_close(loss, expected, rtol=1e-13)
    check_gradient(built, X, labels, order=2)


def test_the_gradient_of_a_cross_entropy_computes_no_logarithm_again() -> None:
    module = expanded(gradient(nn.cross_entropy), [tensor(4, 3), TensorType(I64, (4,))])
    assert len(ops(module, nn.CrossEntropy)) == 1
    assert not ops(module, nn.LogSumExp)


@pytest.mark.parametrize("offset", [0, 1000, -1000])
def test_a_small_loss_of_large_logits_keeps_its_digits(offset: int) -> None:
    logits = np.array([[offset, offset + 9.5, offset + 2]], np.float32)
    (loss,) = evaluate(one(nn.CrossEntropy), logits, np.array([1]))
    exact = np.log1p(np.exp(-9.5) + np.exp(-7.5))
    assert abs(float(loss[0]) - exact) < 2 * np.finfo(np.float32).eps


def test_more_classes_than_the_labels_dtype_can_count() -> None:
    logits = RANDOM.standard_normal((2, 300))
    labels = np.array([44, 255], np.uint8)
    check_gradient(nn.cross_entropy, logits, labels)


def test_a_label_that_is_no_class_fails_the_call() -> None:
    with pytest.raises(CallError, match=r"D0807.*index 5 is out of range"):
        evaluate(one(nn.CrossEntropy), X[0], np.array([0, 5, 1]))


def test_each_row_has_one_label() -> None:
    with pytest.raises(ModelError, match=r"one integer for each row, found the labels i32\[3\]"):
        program(one(nn.CrossEntropy), [tensor(4, 3), TensorType(I32, (3,))])


# products


def test_linear_multiplies_rows_and_adds_the_bias() -> None:
    w, b = RANDOM.standard_normal((5, 2)), RANDOM.standard_normal(2)
    built = one(lambda x, w, b: nn.Linear(x, w, (b,)))
    assert_close(evaluate(built, X, w, b)[0], X @ w + b, rtol=1e-12, atol=1e-13)
    check_gradient(built, X, w, b, order=2)
    assert_close(evaluate(one(lambda x, w: nn.Linear(x, w, ())), X[0, 0], w)[0], X[0, 0] @ w)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([tensor(2, 3), tensor(4, 5)], r"cannot multiply f64\[2, 3\] by f64\[4, 5\]"),
        ([tensor(2, 4), tensor(4, 5), tensor(4)], r"the bias of nn.linear is one f64\[5\], found"),
    ],
)
def test_linear_takes_what_fits(types: Sequence[TensorType], message: str) -> None:
    def built(emit: Builder, x: Value, w: Value, *b: Value) -> Value:
        return emit(nn.Linear(x, w, b))

    with pytest.raises(ModelError, match=message):
        program(built, types)


def test_conv_is_the_convolution_with_a_bias_for_each_channel() -> None:
    x, w = RANDOM.standard_normal((2, 5, 5, 3)), RANDOM.standard_normal((3, 3, 3, 4))
    b = RANDOM.standard_normal(4)

    def built(emit: Builder, x: Value, w: Value, b: Value) -> Value:
        pads = ((1, 1), (1, 1))
        return emit(nn.Conv(x, w, (b,), (1, 1), pads, (1, 1), (1, 1)))

    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.zeros((2, 5, 5, 4))
    for i in range(5):
        for j in range(5):
            part = padded[:, i : i + 3, j : j + 3, :]
            expected[:, i, j, :] = np.einsum("bhwi,hwio->bo", part, w) + b
    assert_close(evaluate(built, x, w, b)[0], expected, rtol=1e-11, atol=1e-12)
    check_gradient(built, x, w, b, order=2)


# attention

Q, K = RANDOM.standard_normal((2, 3, 4)), RANDOM.standard_normal((2, 5, 4))
V = RANDOM.standard_normal((2, 5, 6))
MASK = RANDOM.standard_normal((2, 3, 5))


def attended(scores: Doubles) -> Doubles:
    return scipy.special.softmax(scores, axis=-1) @ V


SCORES = 0.5 * Q @ K.transpose(0, 2, 1)


def test_attention() -> None:
    built = one(lambda q, k, v: nn.Attention(q, k, v, (), 0.5))
    assert_close(evaluate(built, Q, K, V)[0], attended(SCORES), rtol=1e-12, atol=1e-14)
    check_gradient(built, Q, K, V, order=2)


def test_attention_with_a_mask_to_add() -> None:
    built = one(lambda q, k, v, mask: nn.Attention(q, k, v, (mask,), 0.5))
    assert_close(evaluate(built, Q, K, V, MASK)[0], attended(SCORES + MASK), rtol=1e-12, atol=1e-14)
    check_gradient(built, Q, K, V, MASK)


def test_attention_with_a_mask_to_choose() -> None:
    built = one(lambda q, k, v, mask: nn.Attention(q, k, v, (mask,), 0.5))
    keep = MASK > -1
    expected = attended(np.where(keep, SCORES, -np.inf))
    assert_close(evaluate(built, Q, K, V, keep)[0], expected, rtol=1e-12, atol=1e-14)
    check_gradient(built, Q, K, V, keep, order=2)


@pytest.mark.parametrize("causal", [0, 2])
def test_a_causal_query_sees_only_what_came_before(causal: int) -> None:
    built = one(lambda q, k, v: nn.Attention(q, k, v, (), 0.5, causal))
    seen = np.arange(5)[None, :] <= np.arange(3)[:, None] + causal
    expected = attended(np.where(seen, SCORES, -np.inf))
    assert_close(evaluate(built, Q, K, V)[0], expected, rtol=1e-12, atol=1e-14)


def test_causal_attention_over_symbolic_lengths() -> None:
    m, n = symbol("M"), symbol("N")
    types = [TensorType(F64, (2, size, width)) for size, width in ((m, 4), (n, 4), (n, 6))]
    module = program(one(lambda q, k, v: nn.Attention(q, k, v, (), 0.5, n - m)), types)
    seen = np.arange(5)[None, :] <= np.arange(3)[:, None] + 2
    (found,) = run(module, Q, K, V, dims={"M": 3, "N": 5})
    assert_close(found, attended(np.where(seen, SCORES, -np.inf)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ([tensor(2, 3), tensor(5, 4), tensor(5, 4)], r"keys f64\[5, 4\]"),
        (
            [tensor(2, 3), tensor(5, 3), tensor(5, 4), TensorType(BOOL, (5, 2))],
            "mask of the scores",
        ),
    ],
)
def test_attention_takes_what_fits(types: Sequence[TensorType], message: str) -> None:
    def built(emit: Builder, q: Value, k: Value, v: Value, *mask: Value) -> Value:
        return emit(nn.Attention(q, k, v, mask, 1.0))

    with pytest.raises(ModelError, match=message):
        program(built, types)


# recurrent networks


def lstm(
    x: Doubles, wx: Doubles, wh: Doubles, b: Doubles, h: Doubles, c: Doubles
) -> tuple[Doubles, Doubles, Doubles]:
    """Over [batch, time, i], written with explicit steps."""
    outputs: list[Doubles] = []
    for t in range(x.shape[1]):
        i, f, o, g = np.split(x[:, t] @ wx + b + h @ wh, 4, axis=1)
        c = scipy.special.expit(f) * c + scipy.special.expit(i) * np.tanh(g)
        h = scipy.special.expit(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs, axis=1), h, c


SEQUENCE = [RANDOM.standard_normal(s) for s in ((2, 4, 3), (3, 8), (2, 8), (8,), (2, 2), (2, 2))]


def test_lstm() -> None:
    built = one(nn.LSTM)
    found = evaluate(built, *SEQUENCE)
    for value, expected in zip(found, lstm(*SEQUENCE), strict=True):
        assert_close(value, expected, rtol=1e-12, atol=1e-14)
    check_gradient(built, *SEQUENCE, order=2)


def test_lstm_from_the_end_with_the_time_first() -> None:
    built = one(lambda x, wx, wh, b, h, c: nn.LSTM(x, wx, wh, b, h, c, 0, True))
    x, wx, wh, b, h0, c0 = SEQUENCE
    found = evaluate(built, x.transpose(1, 0, 2), wx, wh, b, h0, c0)
    outputs, h, c = lstm(x[:, ::-1], wx, wh, b, h0, c0)
    assert_close(found[0], outputs[:, ::-1].transpose(1, 0, 2), rtol=1e-12, atol=1e-14)
    assert_close(found[1], h, rtol=1e-12, atol=1e-14)
    assert_close(found[2], c, rtol=1e-12, atol=1e-14)


def test_only_the_product_with_the_state_is_inside_the_loop_of_an_lstm() -> None:
    (block,) = [decomposition(op) for op in ops(program(one(nn.LSTM), types_of(SEQUENCE)), nn.LSTM)]
    (scan,) = [op for op in block if isinstance(op, flow.Scan)]
    assert sum(isinstance(op, array.MatMul) for op in scan.body) == 1


def test_an_lstm_takes_what_fits() -> None:
    types = types_of(SEQUENCE)
    with pytest.raises(ModelError, match=r"with 2 cells wants a f64\[3, 8\], found f64\[2, 8\]"):
        program(one(nn.LSTM), [types[0], types[2], *types[2:]])
    with pytest.raises(ModelError, match="another batch"):
        program(one(lambda x, wx, wh, b, h, c: nn.LSTM(x, wx, wh, b, h, c, 0)), types)
    with pytest.raises(ModelError, match="a sequence of 3 axes"):
        program(one(nn.LSTM), [tensor(2, 3), *types[1:]])
