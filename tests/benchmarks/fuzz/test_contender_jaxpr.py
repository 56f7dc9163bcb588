"""What the fuzzer of model texts evaluates with NumPy is what JAX computes."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: make test-jax")

import jax.extend.core.primitives as primitives  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from benchmarks.fuzz import contender_jaxpr  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

Array: TypeAlias = Any
Call: TypeAlias = tuple[Callable[..., object], tuple[Array, ...]]

FLOATS = (np.float16, np.float32, np.float64)
NUMBERS = (*FLOATS, np.int32, np.int64)
TRUTH = (np.bool_,)
SHAPES = ((), (5,), (3, 1), (2, 3, 4))
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 0.49999997, np.inf, -np.inf, np.nan)
FAR = ((1 << 60) + 1, -(1 << 60) - 7, 3, -3, 7)
"""Integers that f64 does not hold, and others."""
ROUNDINGS = 64
"""So many units in the last place may implementations differ; of the largest element, an eighth."""
PROGRAM_ROUNDINGS = 4096
"""The same for the derivatives of a program, where differences of near numbers have fewer true digits."""


@pytest.fixture(autouse=True)
def in_64_bits() -> Generator[None]:
    with jax.enable_x64(True):
        yield


def compare(
    function: Callable[..., object], args: Sequence[Array], roundings: int = ROUNDINGS
) -> None:
    """Both evaluate a function; dtypes, shapes, integers and the places of NaN are equal."""
    traced, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    found = contender_jaxpr.evaluate(traced.jaxpr, traced.consts, [*map(np.asarray, args)])
    wanted = [np.asarray(each) for each in jax.tree_util.tree_leaves(jax.jit(function)(*args))]
    assert len(found) == len(wanted) == len(jax.tree_util.tree_leaves(shape))
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if theirs.dtype.kind != "f":
            np.testing.assert_array_equal(ours, theirs)
            continue
        eps = float(np.finfo(theirs.dtype).eps)
        finite = np.abs(theirs[np.isfinite(theirs)]).astype(np.float64)
        near = eps * float(finite.max(initial=0)) * roundings / 8
        np.testing.assert_allclose(ours, theirs, rtol=roundings * eps, atol=near)


def drawn(dtype: type, *shape: int, seed: int = 0) -> Array:
    """Floats in ±1.5, integers in ±6 without 0, or truth values."""
    stream = np.random.default_rng(seed)
    if dtype is np.bool_:
        return stream.random(shape) < 0.5
    if issubclass(dtype, np.integer):
        return (stream.integers(1, 7, shape) * stream.choice([-1, 1], shape)).astype(dtype)
    return np.asarray(stream.uniform(-1.5, 1.5, shape), dtype)


def elementwise(function: Callable[..., object], count: int, *dtypes: type) -> list[Call]:
    """Calls with operands of all shapes, and of special floats in all pairs."""
    calls: list[Call] = []
    for dtype in dtypes:
        for shape in SHAPES:
            calls.append((function, tuple([drawn(dtype, *shape, seed=k) for k in range(count)])))
        if issubclass(dtype, np.floating):
            calls.append((function, tuple(np.meshgrid(*[np.array(SPECIAL, dtype)] * count))))
        if dtype is np.int64:
            calls.append((function, tuple(np.meshgrid(*[np.array(FAR)] * count))))
    return calls


def on(function: Callable[..., object], *shapes: tuple[int, ...], dtypes: Sequence[type] = NUMBERS):
    """Calls with operands of these shapes in each dtype."""
    return [
        (function, tuple([drawn(dtype, *shape, seed=k) for k, shape in enumerate(shapes)]))
        for dtype in dtypes
    ]


def reduced(function: Callable[..., object], *dtypes: type) -> list[Call]:
    return [
        (lambda x, axes=axes: function(x, axes), (drawn(dtype, 2, 3, 4),))
        for dtype in dtypes
        for axes in ((0,), (1, 2), (0, 1, 2))
    ]


def along(function: Callable[..., object]) -> list[Call]:
    return [
        (lambda x, a=axis, r=reverse: function(x, a, reverse=r), (drawn(dtype, 4, 3),))
        for dtype in NUMBERS
        for axis in (0, 1)
        for reverse in (False, True)
    ]


def chosen(function: Callable[..., object]) -> list[Call]:
    """The place of the largest or smallest element, also where some are equal or NaN."""
    rows = np.array([[1, 3, 3, 0], [np.nan, 2, np.nan, 5], [-1, -1, -1, -1]])
    floats = [rows.astype(dtype) for dtype in FLOATS]
    return [
        (lambda x, axis=axis, index=index: function(x, axis, index), (x,))
        for x in (*floats, drawn(np.int32, 3, 4), drawn(np.int64, 3, 4))
        for axis in (0, 1)
        for index in (np.int32, np.int64)
    ]


def products() -> list[Call]:
    def dot(contract, batch):
        return lambda x, y: lax.dot_general(x, y, (contract, batch))

    calls: list[Call] = []
    for dtype in (np.float32, np.float64, np.int32):
        calls += on(dot(((1,), (0,)), ((), ())), (3, 4), (4, 5), dtypes=[dtype])
        calls += on(dot(((0,), (0,)), ((), ())), (4,), (4,), dtypes=[dtype])
        calls += on(dot(((3,), (2,)), ((0, 1), (1, 0))), (2, 3, 4, 5), (3, 2, 5, 6), dtypes=[dtype])
        calls += on(dot(((1, 2), (2, 0)), ((), ())), (2, 3, 4), (4, 5, 3), dtypes=[dtype])
        calls += on(dot(((), ()), ((), ())), (2,), (3,), dtypes=[dtype])
    return calls


def convolutions() -> list[Call]:
    def conv(dims, **how):
        return lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=dims, **how)

    one, two = ("NWC", "WIO", "NWC"), ("NCHW", "OIHW", "NHWC")
    cases = [
        (conv(one, window_strides=(2,), padding=[(1, 2)]), (2, 7, 3), (3, 3, 4)),
        (
            conv(one, window_strides=(1,), padding=[(-1, 0)], lhs_dilation=(2,)),
            (2, 7, 3),
            (3, 3, 4),
        ),
        (conv(two, window_strides=(1, 2), padding="SAME"), (2, 3, 5, 6), (4, 3, 3, 2)),
        (
            conv(two, window_strides=(1, 1), padding="VALID", rhs_dilation=(2, 1)),
            (2, 3, 6, 6),
            (4, 3, 2, 3),
        ),
    ]
    return [
        call
        for function, x, w in cases
        for call in on(function, x, w, dtypes=(np.float32, np.float64))
    ]


def gathered() -> list[Call]:
    """Indices that lie outside, batches, slices of several elements, each way of reading outside."""
    places = np.array([[0, 2], [5, -1], [-3, 1]])

    def taken(mode):
        return lambda x, k: x.at[k].get(mode=mode)

    calls: list[Call] = []
    for dtype in (np.float32, np.float64, np.int32, np.bool_):
        x = drawn(dtype, 4, 3)
        for mode in ("clip", "fill", "promise_in_bounds"):
            inside = places % 4 if mode == "promise_in_bounds" else places
            calls.append((taken(mode), (x, inside)))
            calls.append((jax.vmap(taken(mode)), (x.T, inside % 4)))
        calls.append(
            (lambda x, k: jnp.take_along_axis(x, k, 1), (x, np.array([[0], [2], [1], [1]])))
        )
        calls.append(
            (
                lambda x, k: jax.vmap(lambda a: lax.dynamic_slice(x, (a, 0), (2, 2)))(k),
                (x, places[0]),
            )
        )
        calls.append(
            (
                lambda x, i, j: x[i, :, j],
                (drawn(dtype, 3, 2, 4), np.array([0, 2]), np.array([3, 1])),
            )
        )
    return calls


def scattered(change: str) -> list[Call]:
    """Rows and elements, several times to one place, and outside."""
    calls: list[Call] = []
    for dtype in (np.float32, np.float64, np.int32):
        x, rows = drawn(dtype, 4, 3), drawn(dtype, 3, 3, seed=1)
        places = np.array([1, 3, 1]) if change != "set" else np.array([1, 3, 0])
        for mode in ("drop", "clip", "promise_in_bounds"):
            calls.append(
                (lambda x, k, y, m=mode: getattr(x.at[k], change)(y, mode=m), (x, places, rows))
            )
        outside = np.array([1, 9, -9])
        calls.append((lambda x, k, y: getattr(x.at[k], change)(y, mode="drop"), (x, outside, rows)))
        one_each = jax.vmap(lambda a, k, y: getattr(a.at[k], change)(y))
        calls.append((one_each, (x, np.array([0, 2, 1, 1]), drawn(dtype, 4))))
        calls.append(
            (
                lambda x, i, j, y: getattr(x.at[i, :, j], change)(y),
                (drawn(dtype, 3, 2, 4), np.array([0, 2]), np.array([3, 1]), drawn(dtype, 2, 2)),
            )
        )
    return calls


def sorted_rows() -> list[Call]:
    values = np.array([[2, 1, 2, 0], [np.nan, -0.0, 0.0, -1], [np.inf, 3, -np.inf, 3]])
    numbers = np.arange(12).reshape(3, 4)
    calls: list[Call] = []
    for dtype in FLOATS:
        for axis in (0, 1):
            stable = lambda x, k, a=axis: lax.sort((x, k), dimension=a, num_keys=1)  # noqa: E731
            calls.append((stable, (values.astype(dtype), numbers)))
    two = lambda x, y, k: lax.sort((x, y, k), dimension=1, num_keys=2)  # noqa: E731
    calls.append((two, (values.round(), drawn(np.int32, 3, 4), numbers)))
    return [*calls, *on(lambda x: lax.sort(x, dimension=0), (5, 3))]


def largest() -> list[Call]:
    values = np.array([[2, 1, 2, 0], [np.nan, -0.0, 0.0, -1], [np.inf, 3, -np.inf, 3]])
    rows = [
        *[values.astype(dtype) for dtype in FLOATS],
        drawn(np.int32, 3, 4),
        drawn(np.int64, 3, 4),
    ]
    return [
        (lambda x, k=k, axis=axis: lax.top_k(x, k, axis=axis), (x,))
        for x in rows
        for k in (1, 3)
        for axis in (0, 1)
    ]


def scans() -> list[Call]:
    def step(carried, x):
        total, count = carried
        return (total * 0.5 + jnp.sin(x), count + 1), (total + x, count)

    def run(reverse):
        return lambda xs: lax.scan(step, (jnp.zeros_like(xs[0]), 0), xs, reverse=reverse)

    calls = [call for r in (False, True) for call in on(run(r), (4, 3), dtypes=FLOATS)]
    counted = lambda x: lax.scan(lambda c, _: (c * 2, None), x, length=3)[0]  # noqa: E731
    return [*calls, *on(counted, (2,))]


def whiles() -> list[Call]:
    halved = lambda x: lax.while_loop(lambda y: jnp.max(jnp.abs(y)) > 0.1, lambda y: y * 0.5, x)  # noqa: E731

    def bounded(x, limit):
        return lax.while_loop(lambda s: s[0] < limit, lambda s: (s[0] + 1, s[1] + x), (0, x))

    return [*on(halved, (3,), dtypes=FLOATS), (bounded, (drawn(np.float32, 2), np.int64(3)))]


def conditions() -> list[Call]:
    branches = [jnp.sin, jnp.cos, lambda x: x * 2]
    switch = lambda k, x: lax.switch(k, branches, x)  # noqa: E731
    either = lambda c, x: lax.cond(c, jnp.sin, jnp.cos, x)  # noqa: E731
    x = drawn(np.float32, 3)
    return [
        *[(switch, (np.int32(k), x)) for k in (-1, 0, 1, 2, 7)],
        *[(either, (np.bool_(c), x)) for c in (False, True)],
    ]


def called() -> list[Call]:
    """Functions that call functions, with rules of their own for derivatives or without."""
    f = jax.custom_jvp(jnp.sin)
    f.defjvps(lambda d, y, x: d * 3)
    g = jax.custom_vjp(jnp.cos)
    g.defvjp(lambda x: (jnp.cos(x), x), lambda x, d: (d * x,))
    x = (drawn(np.float64, 3),)
    every = (jax.jit(jnp.sin), f, g, jax.checkpoint(jnp.tanh))
    return [(call, x) for one in every for call in (one, jax.grad(lambda x, one=one: one(x).sum()))]


def padded(low: int, high: int, inner: int) -> Callable[..., object]:
    return lambda x: lax.pad(x, np.array(3, x.dtype), [(0, 0, 0), (low, high, inner)])


def added(x: Array, y: Array) -> Array:
    return primitives.add_jaxvals_p.bind(x, y)


EVERY = (*NUMBERS, *TRUTH)
FLOAT_FUNCTIONS = (
    *("floor", "ceil", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "tanh", "sinh", "cosh"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh", "sqrt", "rsqrt", "logistic", "erf"),
    "is_finite",
)
CASES: dict[str, list[Call]] = {
    **{name: elementwise(getattr(lax, name), 1, *FLOATS) for name in FLOAT_FUNCTIONS},
    **{name: elementwise(getattr(lax, name), 1, *NUMBERS) for name in ("neg", "sign", "abs", "square")},
    **{
        name: elementwise(getattr(lax, name), 2, *NUMBERS)
        for name in ("add", "sub", "mul", "div", "rem", "max", "min", "eq", "ne", "lt", "le", "gt", "ge")
    },
    **{name: elementwise(getattr(lax, name), 2, *FLOATS) for name in ("pow", "atan2")},
    **{
        name: elementwise(getattr(lax, f"bitwise_{name}"), 2, np.int32, np.int64, np.bool_)
        for name in ("and", "or", "xor")
    },
    "not": elementwise(lax.bitwise_not, 1, np.int32, np.int64, np.bool_),
    "add_any": elementwise(added, 2, *NUMBERS),
    "integer_pow": [
        call
        for n in (2, 3, 7, -1, -3)
        for call in elementwise(lambda x, n=n: lax.integer_pow(x, n), 1, *FLOATS)
    ],
    "round": [
        call
        for way in (lax.RoundingMethod.TO_NEAREST_EVEN, lax.RoundingMethod.AWAY_FROM_ZERO)
        for call in elementwise(lambda x, way=way: lax.round(x, way), 1, *FLOATS)
    ],
    "clamp": [
        *elementwise(lax.clamp, 3, *NUMBERS),
        (lax.clamp, (np.float32(-0.5), np.array(SPECIAL, np.float32), np.float32(0.5))),
    ],
    "select_n": [
        (lax.select_n, (which, *[drawn(dtype, 2, 3, seed=k) for k in range(count)]))
        for dtype in EVERY
        for which, count in (
            (drawn(np.bool_, 2, 3), 2),
            (np.bool_(True), 2),
            (np.array([[0, 2, 1], [2, 2, 0]], np.int32), 3),
        )
    ],
    "convert_element_type": [
        (lambda x, to=to: lax.convert_element_type(x, to), (drawn(dtype, 4) * 3,))
        for dtype in NUMBERS
        for to in EVERY
        if dtype is not to
    ]
    + [(lambda x, to=to: lax.convert_element_type(x, to), (drawn(np.bool_, 4),)) for to in NUMBERS],
    "stop_gradient": on(lax.stop_gradient, (2, 3)),
    "copy": on(lambda x: jnp.array(x, copy=True), (2, 3)),
    "reduce_sum": reduced(lax.reduce_sum, *NUMBERS),
    "reduce_max": reduced(lax.reduce_max, *NUMBERS),
    "reduce_min": reduced(lax.reduce_min, *NUMBERS),
    "reduce_prod": reduced(lax.reduce_prod, *NUMBERS),
    "reduce_and": reduced(lax.reduce_and, np.bool_, np.int32, np.int64),
    "reduce_or": reduced(lax.reduce_or, np.bool_, np.int32, np.int64),
    "argmax": chosen(lax.argmax),
    "argmin": chosen(lax.argmin),
    "cumsum": along(lax.cumsum),
    "cumprod": along(lax.cumprod),
    "cummax": along(lax.cummax),
    "cummin": along(lax.cummin),
    "dot_general": products(),
    "broadcast_in_dim": on(lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1,)), (3,), dtypes=EVERY)
    + on(lambda x: lax.broadcast_in_dim(x, (2, 3), ()), (), dtypes=EVERY),
    "reshape": on(lambda x: lax.reshape(x, (3, 4)), (2, 6), dtypes=EVERY)
    + on(lambda x: lax.reshape(x, (12,), (1, 0)), (2, 6), dtypes=EVERY),
    "squeeze": on(lambda x: lax.squeeze(x, (0, 2)), (1, 3, 1), dtypes=EVERY),
    "transpose": on(lambda x: lax.transpose(x, (2, 0, 1)), (2, 3, 4), dtypes=EVERY),
    "rev": on(lambda x: lax.rev(x, (0, 2)), (2, 3, 4), dtypes=EVERY),
    "concatenate": on(lambda *x: lax.concatenate(x, 1), (2, 3), (2, 1), (2, 2), dtypes=EVERY),
    "slice": on(lambda x: lax.slice(x, (0, 1), (2, 6), (1, 2)), (2, 7), dtypes=EVERY)
    + on(lambda x: lax.slice(x, (0, 1), (2, 6)), (2, 7), dtypes=EVERY),
    "pad": [
        call
        for around in ((1, 2, 0), (-1, 0, 0), (1, -2, 2), (-2, -1, 1), (0, 0, 3))
        for call in on(padded(*around), (2, 5))
    ],
    "iota": [
        (lambda d=dtype, k=axis: lax.broadcasted_iota(d, (2, 3, 4), k), ())
        for dtype in NUMBERS
        for axis in range(3)
    ],
    "stack": on(lambda *x: lax.stack(x, 1), (2, 3), (2, 3), dtypes=EVERY),
    "unstack": on(lambda x: lax.unstack(x, 1), (2, 3, 4), dtypes=EVERY),
    "split": on(lambda x: lax.split(x, (1, 3, 2), 1), (2, 6), dtypes=EVERY),
    "top_k": largest(),
    "sort": sorted_rows(),
    "gather": gathered(),
    "scatter": scattered("set"),
    "scatter-add": scattered("add"),
    "scatter-mul": scattered("multiply"),
    "conv_general_dilated": convolutions(),
    "scan": scans(),
    "while": whiles(),
    "cond": conditions(),
}  # fmt: skip
TABLES = (contender_jaxpr.NUMPY, contender_jaxpr.SEVERAL, contender_jaxpr.REGIONS)


def test_every_operation_has_cases() -> None:
    assert {*CASES} == {name for table in TABLES for name in table}


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_operation_gives_what_jax_computes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (table,) = [table for table in TABLES if name in table]
    run, reached = table[name], []
    monkeypatch.setitem(table, name, lambda p, given: reached.append(name) or run(p, given))
    for number, (function, args) in enumerate(CASES[name]):
        try:
            compare(function, args)
        except AssertionError as error:
            kinds = [f"{each.dtype}{list(each.shape)}" for each in map(np.asarray, args)]
            raise AssertionError(f"case {number}, {', '.join(kinds)}: {error}") from error
        assert len(reached) > number, f"case {number} does without {name}"


def test_functions_that_call_others_give_what_jax_computes() -> None:
    for function, args in called():
        compare(function, args)


def test_operations_that_have_no_line_are_computed_by_jax() -> None:
    x = drawn(np.float32, 4, 3)
    compare(lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b + 1, (0,)), [x])
    compare(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 1), "VALID"), [x])
    compare(lambda x: x.at[np.array([1, 1])].max(np.float32(0.1)), [x])
    compare(lax.cumlogsumexp, [x])
    compare(lax.lgamma, [x])


def perceptron(x, w, v):
    likely = jax.nn.log_softmax(jax.nn.gelu(x @ w, approximate=False) @ v)
    return likely[jnp.arange(2), jnp.array([1, 0])]


def attended(x, w, v):
    q, k = x @ w, jnp.tanh(x @ v[: w.shape[0], : w.shape[1]])
    scores = jnp.where(jnp.tril(jnp.ones((2, 2), bool)), q @ k.T, -jnp.inf)
    return jax.nn.softmax(scores) @ x / jnp.linalg.norm(k, axis=-1, keepdims=True)


def recurrent(x, w, v):
    def step(h, row):
        h = jnp.tanh(row @ w + h)
        return h, jnp.where(h > 0, h, 0.1 * h)

    last, rows = lax.scan(step, jnp.zeros(w.shape[1], x.dtype), x, reverse=True)
    return last, rows @ v, lax.cumprod(rows, 1)


def convolved(x, w, v):
    dims = ("NWC", "WIO", "NWC")
    y = lax.conv_general_dilated(x[:, :, None], w[:, None, :], (1,), "SAME", dimension_numbers=dims)
    best = jnp.maximum(y[:, ::2], y[:, 1::2])
    return best, jnp.sort(best, 1)[:, :1], lax.top_k(best[..., 0], 1)[0] * v[0, 0]


def placed(x, w, v):
    normed = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    halved = lax.fori_loop(0, 3, lambda k, h: h * 0.5 + jnp.sin(h), normed)
    spread = jnp.zeros((6, 4), x.dtype).at[jnp.array([1, 1])].add(halved)
    either = lax.cond(x.sum() > 0, jnp.sinh, jnp.cosh, w)
    return spread.at[2].multiply(3.0), either, jnp.pad(v, 1, mode="edge") ** 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("program", [perceptron, attended, recurrent, convolved, placed])
def test_programs_and_their_derivatives_are_those_of_jax(program, dtype: type) -> None:
    args = drawn(dtype, 2, 4), drawn(dtype, 4, 3, seed=1), drawn(dtype, 3, 2, seed=2)
    args = (*args[:2], drawn(dtype, 4, 4, seed=2)) if program is attended else args

    def loss(*x):
        return sum(jnp.sum(jnp.tanh(each)) for each in jax.tree_util.tree_leaves(program(*x)))

    def slope(*x):
        return sum(jnp.sum(jnp.sin(each)) for each in jax.grad(loss, (0, 1, 2))(*x))

    for function in (program, jax.grad(loss, (0, 1, 2)), jax.grad(slope, (0, 1, 2))):
        compare(function, args, PROGRAM_ROUNDINGS)


def rounded(function: Callable[..., Array], x: Array, monkeypatch: pytest.MonkeyPatch) -> Array:
    """What six random roundings to f32 change at most, in f64."""
    traced = jax.make_jaxpr(function)(x)
    (exact,) = contender_jaxpr.evaluate(traced.jaxpr, traced.consts, [x])
    monkeypatch.setattr(contender_jaxpr.Rounding, "eps", float(np.finfo(np.float32).eps))
    changes = []
    for shake in range(1, 7):
        stream = np.random.default_rng(shake)
        monkeypatch.setattr(contender_jaxpr.Rounding, "stream", stream)
        (found,) = contender_jaxpr.evaluate(traced.jaxpr, traced.consts, [x])
        changes.append(np.max(np.abs(found - exact)))
    return np.max(changes)


def test_random_rounding_changes_a_sum_by_the_magnitudes_of_its_terms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = rounded(jnp.sum, np.asarray([1e6, -1e6, 1.0]), monkeypatch)
    assert 0.01 < changed < 1


def test_random_rounding_does_not_hide_the_derivative_of_a_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slope = jax.grad(lambda x: jnp.sum(jnp.maximum(x, 0.25) ** 2) + jnp.max(x))
    assert rounded(slope, np.asarray([-1.0, 0.5, 2.0]), monkeypatch) < 1e-5
