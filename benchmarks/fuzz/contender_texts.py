"""Random programs by JAX: values, first and second derivatives.

It answers pickled requests on stdin until the end of the input, in an environment of its own; it imports
nothing of ours. `p` below is what programs of `benchmarks.fuzz.program_steps` call: the functions of our
library, written down a second time from their definitions.
"""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
# JAX is not installed where types are checked.
jax: Any = importlib.import_module("jax")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")
jnp: Any = importlib.import_module("jax.numpy")
lax: Any = importlib.import_module("jax.lax")
nn: Any = importlib.import_module("jax.nn")
jaxpr: Any = importlib.import_module("contender_jaxpr")
requests: Any = importlib.import_module("contender_requests")

Array: TypeAlias = Any


def norm(x: Array, axis: int, keepdims: bool) -> Array:
    return jnp.sqrt(jnp.sum(x * x, axis=axis, keepdims=keepdims))


def layer_norm(x: Array, eps: float) -> Array:
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred * centred, -1, keepdims=True) + eps)


def rms_norm(x: Array, eps: float) -> Array:
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + eps)


def cumsum(x: Array, axis: int, reverse: bool = False, exclusive: bool = False) -> Array:
    y = lax.cumsum(x, axis, reverse=reverse)
    return y - x if exclusive else y


def attention(q: Array, k: Array, v: Array, scale: float, causal: bool) -> Array:
    scores = q @ jnp.swapaxes(k, -1, -2) * scale
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jax.nn.softmax(scores, axis=-1) @ v


def conv(x: Array, w: Array, stride: int, padding: int) -> Array:
    dims = ("NWC", "WIO", "NWC")
    return lax.conv_general_dilated(x, w, (stride,), [(padding, padding)], dimension_numbers=dims)


def _windows(x: Array, size: int, stride: int) -> Sequence[Array]:
    count = (x.shape[1] - size) // stride + 1
    return [x[:, k : k + stride * (count - 1) + 1 : stride] for k in range(size)]


def max_pool1d(x: Array, size: int, stride: int) -> Array:
    first, *rest = _windows(x, size, stride)
    for other in rest:  # the first of equals gets the gradient
        first = jnp.where(first >= other, first, other)
    return first


def avg_pool1d(x: Array, size: int, stride: int) -> Array:
    return sum(_windows(x, size, stride)) / size


def scan(
    step: Callable[[Array, Array], tuple[Array, Array]], xs: Array, back: bool
) -> tuple[Array, Array]:
    return lax.scan(step, jnp.zeros(xs.shape[1:], xs.dtype), xs, reverse=back)


def counted(x: Array, rounds: int) -> Array:
    for k in range(rounds):
        x = jnp.sin(x) + 0.25 * k
    return x


def halved(x: Array, limit: int) -> Array:
    for _ in range(limit):
        x = jnp.where(jnp.max(jnp.abs(x)) > 0.1, x * 0.5, x)
    return x


def decided(x: Array) -> Array:
    return jnp.where(jnp.sum(x) > 0.1, jnp.sin(x), x * 0.5)


def mixed(x: Array) -> Array:
    h = x * jnp.full(x.shape[-1:], 0.75, x.dtype)
    return jnp.tanh(h) + x


def doubled(x: Array) -> Array:
    return x + x


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + jax.scipy.special.erf(x / np.sqrt(2).astype(x.dtype)))


p = types.SimpleNamespace(
    **{name: getattr(jnp, name) for name in ("sin", "cos", "tanh", "sinh", "cosh", "tan", "exp")},
    **{name: getattr(jnp, name) for name in ("expm1", "log", "log1p", "sqrt", "abs", "square")},
    **{
        name: getattr(jnp, name) for name in ("sign", "floor", "round", "maximum", "minimum", "sum")
    },
    **{
        name: getattr(jnp, name) for name in ("mean", "max", "min", "where", "clip", "full", "tril")
    },
    **{name: getattr(jnp, name) for name in ("triu", "stack", "repeat", "roll", "pad", "einsum")},
    **{name: getattr(jnp, name) for name in ("argmax", "argmin", "remainder", "sort", "flip")},
    **{name: getattr(jnp, name) for name in ("cumprod", "transpose")},
    **{
        name: getattr(nn, name)
        for name in ("softmax", "log_softmax", "sigmoid", "softplus", "relu")
    },
    **{name: getattr(nn, name) for name in ("silu", "elu", "selu", "mish", "leaky_relu")},
    **{
        f"a{name}": getattr(jnp, f"arc{name}")
        for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")
    },
    atan2=jnp.arctan2,
    erf=jax.scipy.special.erf,
    rsqrt=lax.rsqrt,
    gelu=gelu,
    softsign=nn.soft_sign,
    hardsigmoid=nn.hard_sigmoid,
    hardswish=nn.hard_swish,
    concat=jnp.concatenate,
    reshape=jnp.reshape,
    variance=jnp.var,
    product=jnp.prod,
    logsumexp=jax.scipy.special.logsumexp,
    cummax=lax.cummax,
    cummin=lax.cummin,
    top_k=lax.top_k,
    norm=norm,
    layer_norm=layer_norm,
    rms_norm=rms_norm,
    cumsum=cumsum,
    attention=attention,
    conv=conv,
    max_pool1d=max_pool1d,
    avg_pool1d=avg_pool1d,
    scan=scan,
    counted=counted,
    halved=halved,
    decided=decided,
    doubled=doubled,
    mixed=mixed,
)


def answered(
    text: str, floats: int, order: int, given: Sequence[Array], shake: int, eps: float
) -> list[list[Array]]:
    """The value, and derivatives up to `order` by the first `floats` arguments.

    With another `shake` than 0 each result is rounded at random, as `Rounding` does.
    """
    names: dict[str, Any] = {"p": p}
    exec(text, names)  # the text comes from our own generator
    g, wrt = names["g"], tuple(range(floats))

    def loss(*x: Array) -> Array:
        return jnp.sum(jnp.tanh(g(*x)))

    def slope(*x: Array) -> Array:
        return sum(jnp.sum(jnp.sin(each)) for each in jax.grad(loss, wrt)(*x))

    def value(*x: Array) -> list[Array]:
        return [g(*x)]

    wanted: list[Callable[..., Sequence[Array]]] = [
        value,
        jax.grad(loss, wrt),
        jax.grad(slope, wrt),
    ]

    def everything(*x: Array) -> list[list[Array]]:
        return [list(function(*x)) for function in wanted[: order + 1]]

    traced, shape = jax.make_jaxpr(everything, return_shape=True)(*given)
    jaxpr.Rounding.eps = eps
    jaxpr.Rounding.stream = np.random.default_rng(shake) if shake else None
    found = iter(jaxpr.evaluate(traced.jaxpr, traced.consts, given))
    return [[np.asarray(next(found)) for _ in group] for group in shape]


def main() -> None:
    """Answer requests."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    requests.answer(answered)


if __name__ == "__main__":
    main()
