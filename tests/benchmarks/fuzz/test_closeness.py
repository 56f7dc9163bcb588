"""What the fuzzers call wrong, and what they call the rounding of a peer."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.fuzz.closeness import Array, Exact, judge
from benchmarks.fuzz.shaken import evaluated
from dlc.dialects import func
from dlc.text.ir.short import parse_short

EPS = float(np.finfo(np.float32).eps)
TRUE = np.asarray([1.0, 2.0])


def shaken(true: Array) -> Exact:
    """Results in f64 that random rounding changes by one unit of f32."""
    return lambda shake: [true * (1 + (EPS if shake else 0))]


def verdict(ours: Array, peer: Array, true: Array = TRUE, second: list[Array] | None = None) -> str:
    """What is said of two results in f32, where f64 and perhaps a second implementation give these."""
    pair = ours.astype(np.float32), peer.astype(np.float32)
    return judge([pair[0]], [pair[1]], shaken(true), EPS, second=lambda: second or []).verdict


def test_a_peer_that_rounding_does_not_explain_is_wrong_unless_another_confirms_us() -> None:
    inaccurate = TRUE * (1 + 1e-4)
    assert verdict(TRUE, inaccurate) == "wrong"
    assert verdict(TRUE, inaccurate, second=[TRUE]) == "agreed"


@pytest.mark.parametrize("second", [TRUE * (1 + 1e-4), TRUE[:1], np.asarray([1, 2])])
def test_a_mistake_that_our_evaluator_shares_is_not_confirmed(second: Array) -> None:
    assert verdict(TRUE, TRUE * (1 + 1e-4), second=[second]) == "wrong"


def test_the_error_of_an_inaccurate_peer_excuses_none_of_ours() -> None:
    peer, ours = TRUE * (1 + 1e-3), TRUE * (1 + 1e-4)
    assert verdict(ours, peer, second=[TRUE]) == "wrong"


def test_random_rounding_changes_a_sum_by_the_magnitudes_of_its_terms() -> None:
    text = "func @f(%x: f64[3]) {\n  %y = array.reduce_sum %x {axes=[0]}\n  return %y\n}\n"
    (function,) = parse_short(text, "sum.dlir")
    assert isinstance(function, func.Func)
    terms = np.asarray([1e6, -1e6, 1.0])
    sums = [evaluated(function.body, [terms], {}, shake=k, eps=EPS)[0] for k in range(1, 7)]
    assert 0.01 < max(abs(float(one) - 1) for one in sums) < 2e6 * EPS


def test_a_sum_that_decomposes_keeps_its_shape() -> None:
    attributes = "lhs_batch=[], rhs_batch=[], lhs_contract=[1], rhs_contract=[0]"
    text = (
        "func @f(%x: f64[2, 3], %y: f64[3, 2]) {\n"
        f"  %z = array.dot_general %x, %y {{{attributes}}}\n"
        "  return %z\n"
        "}\n"
    )
    (function,) = parse_short(text, "product.dlir")
    assert isinstance(function, func.Func)
    given = np.arange(6.0).reshape(2, 3), np.ones((3, 2))
    (found,) = evaluated(function.body, given, {}, shake=1, eps=EPS)
    np.testing.assert_allclose(found, given[0] @ given[1], rtol=1e-5)
