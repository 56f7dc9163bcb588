"""Each operation of StableHLO computes what XLA computes."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false
# pyright: reportArgumentType=false

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: make test-jax")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from tests.importers.stablehlo.agreement import check, numbers  # noqa: E402

X = numbers(3, 4)
INTEGERS = np.array([[7, -7, 3, 0], [-1, 1, 100, -100], [5, 2, -9, 31]], np.int32)
DIVISORS = np.array([[2, 2, 0, 0], [-1, 3, 7, 7], [-2, 40, 4, -3]], np.int32)
NARROW = X.astype(jnp.bfloat16)

FUNCTIONS = {
    "arithmetic": lambda x: (x + 1) * x - x / 3 + jnp.abs(x) ** 1.5,
    "rounding": lambda x: (jnp.floor(x), jnp.ceil(x), lax.round(5 * x), jnp.round(5 * x)),
    "signs": lambda x: (jnp.sign(x), jnp.copysign(x, -x), jnp.signbit(x), jnp.isfinite(x)),
    "exponentials": lambda x: (jnp.exp(x), jnp.expm1(x), jnp.log1p(abs(x)), jax.nn.sigmoid(x)),
    "trigonometry": lambda x: (jnp.sin(x), jnp.tan(x), jnp.arctan2(x, x + 1), jnp.tanh(x)),
    "inverse": lambda x: (jnp.arcsin(x / 9), jnp.arctanh(x / 9), jnp.arcsinh(x)),
    "roots": lambda x: (jnp.sqrt(abs(x)), lax.rsqrt(abs(x) + 1), jnp.cbrt(x)),
    "erf": lambda x: (lax.erf(x), lax.erfc(x), lax.erf_inv(x / 9)),
    "gamma": lambda x: (lax.lgamma(abs(x)), lax.digamma(abs(x))),
    "next_after": lambda x: jnp.nextafter(x, -x),
    "clamp": lambda x: (jnp.clip(x, -0.5, 0.5), lax.clamp(-x, x * 3, abs(x))),
    "comparison": lambda x: (x < 0, x >= x[::-1], jnp.where(x > 0, x, -1.0)),
    "reduce": lambda x: (x.sum(0), x.prod(1), x.max(), x.min(0), (x > 0).all(1), (x > 0).any()),
    "reduce_with_initial": lambda x: lax.reduce(x, 3.0, lax.add, (0,)),
    "reduce_by_any_function": lambda x: lax.reduce(x, 0.0, lambda a, b: a + b + a * b, (1,)),
    "argmax": lambda x: (x.argmax(0), x.argmin(1), x.argmax()),
    "transpose": lambda x: (x.T, x.reshape(2, 6), x[::-1], jnp.concatenate([x, x], 1)),
    "pad": lambda x: lax.pad(x, 9.0, [(1, -1, 2), (-2, 3, 0)]),
    "slices": lambda x: (x[1:, ::2], lax.dynamic_slice(x, (5, 1), (2, 2)), x[-1]),
    "update": lambda x: lax.dynamic_update_slice(x, x[:2, :2] * 0, (9, -9)),
    "products": lambda x: (x @ x.T, jnp.einsum("ij,ik->jk", x, x), jnp.tensordot(x, x, 2)),
    "cumulative": lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 1, reverse=True)),
    "sort": lambda x: (jnp.sort(x), jnp.argsort(x, 0), jnp.sort(x, descending=True)),
    "lexicographic": lambda x: jnp.lexsort((x[0], x[1] > 0)),
    "top_k": lambda x: lax.top_k(x, 2),
    "approximate_top_k": lambda x: (lax.approx_max_k(x, 2), lax.approx_min_k(x, 2)),
    "conversions": lambda x: (x.astype(int), (x * 9).astype(np.int8), x.astype(bool)),
    "bits": lambda x: (
        lax.bitcast_convert_type(x, np.int32),
        lax.bitcast_convert_type(x, np.uint8),
        lax.bitcast_convert_type(lax.bitcast_convert_type(x, np.uint16), np.float32),
    ),
    "reduce_precision": lambda x: [lax.reduce_precision(x, *bits) for bits in ((8, 7), (4, 3))],
    "random": lambda x: jax.random.normal(jax.random.PRNGKey(1), x.shape) + x,
    "map": jax.vmap(lambda row: row * row.max()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_floats(name: str) -> None:
    check(FUNCTIONS[name], X)


@pytest.mark.parametrize("name", ["arithmetic", "reduce", "products", "sort", "cumulative"])
def test_brain_floats(name: str) -> None:
    check(FUNCTIONS[name], NARROW)


def test_integers() -> None:
    """Quotients by 0 are -1, shifts may be longer than the width."""
    check(lambda x, y: (lax.div(x, y), lax.rem(x, y), x // y, x % y), INTEGERS, DIVISORS)
    check(lax.shift_right_arithmetic, INTEGERS, DIVISORS)
    check(lax.shift_right_logical, INTEGERS, DIVISORS)
    check(lax.shift_left, INTEGERS, DIVISORS)
    check(lambda x: (lax.population_count(x), lax.clz(x), ~x, x ^ 5), INTEGERS)
    check(lambda x, y: jnp.power(x, abs(y) % 5), INTEGERS, DIVISORS)


WINDOWS = {
    "max": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID"),
    "sum": lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 3), (1, 1), "SAME"),
    "mul": lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 2), (1, 1), "VALID"),
    "initial": lambda x: lax.reduce_window(x, 5.0, lax.max, (2, 2), (1, 1), "SAME"),
    "dilated": lambda x: lax.reduce_window(
        x, -jnp.inf, lax.max, (2, 2), (1, 1), [(3, 0), (1, 1)], (1, 2), (2, 1)
    ),
    "gradient": jax.grad(
        lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "SAME") ** 2).sum()
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    check(WINDOWS[name], X)


CONVOLUTIONS = {
    "plain": ((2, 3, 8, 8), (4, 3, 3, 3), {}),
    "strided": ((2, 3, 8, 8), (4, 3, 3, 3), {"window_strides": (2, 1), "padding": "SAME"}),
    "transposed": (
        (2, 3, 5, 5),
        (4, 3, 3, 3),
        {"lhs_dilation": (2, 2), "padding": [(2, 2), (1, 2)]},
    ),
    "dilated": ((2, 3, 8, 8), (4, 3, 3, 3), {"rhs_dilation": (2, 1)}),
    "groups": ((2, 4, 6, 6), (6, 2, 3, 3), {"feature_group_count": 2}),
    "batch_groups": ((4, 3, 6, 6), (6, 3, 3, 3), {"batch_group_count": 2}),
    "cut": ((2, 3, 8, 8), (4, 3, 3, 3), {"padding": [(-1, 2), (0, -2)]}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    source, kernel, options = CONVOLUTIONS[name]
    given = {"window_strides": (1, 1), "padding": "VALID", **options}
    check(
        lambda x, w: lax.conv_general_dilated(x, w, **given),
        numbers(*source),
        numbers(*kernel, seed=1),
    )


def test_axes_of_a_convolution_may_stand_in_any_order() -> None:
    order = lax.ConvDimensionNumbers((3, 0, 1, 2), (2, 3, 0, 1), (1, 0, 3, 2))
    check(
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=order),
        numbers(3, 6, 6, 2),
        numbers(3, 3, 4, 3, seed=1),
    )


INDICES = np.array([[0, 2], [1, 1], [7, -1]], np.int32)
INDEXED = {
    "rows": lambda x, i: x[i],
    "clipped": lambda x, i: jnp.take(x, i, 0, mode="clip"),
    "filled": lambda x, i: jnp.take(x, i, 1, mode="fill"),
    "elements": lambda x, i: x[i[:, 0], i[:, 1]],
    "along": lambda x, i: jnp.take_along_axis(x, i, 1),
    "windows": lambda x, i: jax.vmap(lambda k: lax.dynamic_slice(x, (k[0], k[1]), (2, 3)))(i),
    "one": lambda x, i: x[i[0, 1]],
    "set": lambda x, i: x.at[i[:, 0]].set(0.5),
    "add": lambda x, i: x.at[i[:, 0], i[:, 1]].add(1.0),
    "multiply": lambda x, i: x.at[:, i[:, 1]].multiply(2.0),
    "largest": lambda x, i: x.at[i[:, 0]].max(0.0),
    "smallest": lambda x, i: x.at[i[:, 0]].min(0.0),
    "known_places": lambda x, i: x.at[jnp.array([2, 0])].set(x[:2]) + i[0, 0],
    "segments": lambda x, i: jax.ops.segment_sum(x, i[:, 0] % 2, 2),
    "batched": jax.vmap(lambda row, k: row.at[k].add(1.0)),
    "slices": lambda x, i: jax.vmap(lambda k: lax.dynamic_update_slice(x, x[:2, :2], (k[0], k[1])))(
        i
    ),
}


@pytest.mark.parametrize("name", INDEXED)
def test_places_outside_are_moved_filled_or_left_out(name: str) -> None:
    check(INDEXED[name], X, INDICES)


LOOPS = {
    "scan": lambda x: lax.scan(lambda c, row: (c + row, c * 2), x[0], x),
    "backwards": lambda x: lax.scan(lambda c, row: (c + row, c), x[0], x, reverse=True),
    "while": lambda x: lax.while_loop(lambda s: s.sum() < 100, lambda s: s * 2, abs(x)),
    "counted": lambda x: lax.fori_loop(2, 7, lambda i, c: c + i * x, x),
    "cond": lambda x: lax.cond(x[0, 0] > 0, lambda y: y + 1, lambda y: y * 2, x),
    "switch": lambda x: lax.switch(x.argmax(), [jnp.sin, jnp.cos, jnp.tanh], x),
    "nested": lambda x: lax.fori_loop(
        0, 3, lambda i, c: lax.cond(c.sum() > 0, lambda y: y - x, lambda y: y + i, c), x
    ),
    "gradient": jax.grad(lambda x: lax.scan(lambda c, r: (jnp.tanh(c + r), c), x[0], x)[1].sum()),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_choices(name: str) -> None:
    check(LOOPS[name], X)
