"""The networks of `benchmarks.training` in plain JAX.

Each is a function of the weights, under our names and in our layout, and of the batch, and gives the loss;
those that draw random numbers take a key too. Batch norm keeps no running statistics here, which would only
cost JAX more. Weights may be of bf16, but for those of batch norms: then all between the first layer and
the scores is. Normalisation and the loss are of f32.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

# JAX is not installed where types are checked.
jax: Any = importlib.import_module("jax")
jnp: Any = jax.numpy
lax: Any = jax.lax
Array: TypeAlias = Any
Arrays: TypeAlias = Mapping[str, Array]
Key: TypeAlias = Any


def part(w: Arrays, name: str) -> dict[str, Array]:
    """The weights of a submodule, under their names inside it."""
    return {key.removeprefix(f"{name}."): v for key, v in w.items() if key.startswith(f"{name}.")}


def stack(w: Arrays, block: Callable[[Arrays, Array], Array], x: Array) -> Array:
    """The blocks of a stack one after the other, as a loop."""

    def step(h: Array, one: Arrays) -> tuple[Array, None]:
        return block(one, h), None

    return lax.scan(step, x, w)[0] if w else x


def linear(w: Arrays, name: str, x: Array) -> Array:
    return biased(w, f"{name}.b", x @ w[f"{name}.w"])


def biased(w: Arrays, name: str, y: Array) -> Array:
    """With a bias, if there is one. What it receives has a term for each row: they are added in f32."""
    if name not in w:
        return y
    return (y.astype(jnp.float32) + w[name].astype(jnp.float32)).astype(y.dtype)


def cross_entropy(scores: Array, wanted: Array) -> Array:
    """Of each example, in f32."""
    scores = scores.astype(jnp.float32)
    told = jnp.take_along_axis(scores, wanted[..., None], -1)[..., 0]
    return jax.nn.logsumexp(scores, -1) - told


def mlp(w: Arrays, batch: Arrays, _: Key) -> Array:
    return cross_entropy(layers(w, batch["image"]), batch["label"]).mean()


def layers(w: Arrays, image: Array) -> Array:
    """What an MLP gives for each class."""
    x = image.astype(w["net.0.w"].dtype)
    for k in (0, 2):
        x = jax.nn.relu(linear(w, f"net.{k}", x))
    return linear(w, "net.4", x)


# Pictures -----------------------------------------------------------------------------------------


def conv(
    w: Arrays, name: str, x: Array, stride: int = 1, padding: int | None = None, groups: int = 1
) -> Array:
    """Padded by half the kernel unless told otherwise."""
    kernel = w[f"{name}.w"]
    edge = kernel.shape[0] // 2 if padding is None else padding
    y = lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        [(edge, edge), (edge, edge)],
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    return biased(w, f"{name}.b", y)


def normed(w: Arrays, name: str, x: Array) -> Array:
    """By the moments of the batch."""
    wide = x.astype(jnp.float32)
    mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
    scale = w[f"{name}.scale"] * lax.rsqrt(variance + 1e-5)
    return ((wide - mean) * scale + w[f"{name}.shift"]).astype(x.dtype)


def max_pool(x: Array, size: int, stride: int, edge: int = 0) -> Array:
    sizes, strides = (1, size, size, 1), (1, stride, stride, 1)
    edges = [(0, 0), (edge, edge), (edge, edge), (0, 0)]
    return lax.reduce_window(x, -jnp.inf, lax.max, sizes, strides, edges)


def dropped(x: Array, key: Key, part: float) -> Array:
    return jnp.where(jax.random.bernoulli(key, 1 - part, x.shape), x / (1 - part), 0)


def residual(w: Arrays, x: Array, stride: int = 1) -> Array:
    h = jax.nn.relu(normed(w, "norm1", conv(w, "conv1", x, stride)))
    h = normed(w, "norm2", conv(w, "conv2", h))
    return jax.nn.relu(h + skip(w, x, stride))


def skip(w: Arrays, x: Array, stride: int) -> Array:
    return normed(w, "skip.1", conv(w, "skip.0", x, stride)) if "skip.0.w" in w else x


def resnet18(w: Arrays, batch: Arrays, _: Key) -> Array:
    x = jax.nn.relu(normed(w, "stem.1", conv(w, "stem.0", batch["image"])))
    for k in range(8):
        x = residual(part(w, f"stages.{k}"), x, 2 if k in (2, 4, 6) else 1)
    return cross_entropy(linear(w, "head", x.mean((1, 2))), batch["label"]).mean()


def bottleneck(w: Arrays, x: Array, stride: int = 1) -> Array:
    h = jax.nn.relu(normed(w, "norm1", conv(w, "down", x)))
    h = jax.nn.relu(normed(w, "norm2", conv(w, "middle", h, stride)))
    return jax.nn.relu(normed(w, "norm3", conv(w, "up", h)) + skip(w, x, stride))


def pixels(batch: Arrays) -> Array:
    """From -1 to 1; they are exact in bf16 too."""
    return batch["image"].astype(jnp.float32) / 128 - 1


def resnet50(w: Arrays, batch: Arrays, _: Key) -> Array:
    x = pixels(batch).astype(w["head.w"].dtype)
    x = jax.nn.relu(normed(w, "stem.1", conv(w, "stem.0", x, 2)))
    x = max_pool(x, 3, 2, 1)
    for k in range(4):
        stage = part(w, f"stages.{k}")
        x = bottleneck(part(stage, "first"), x, 2 if k else 1)
        x = stack(part(stage, "rest"), bottleneck, x)
    return cross_entropy(linear(w, "head", x.mean((1, 2))), batch["label"]).mean()


def alexnet(w: Arrays, batch: Arrays, key: Key) -> Array:
    x = pixels(batch)
    for k, stride, padding, pools in (
        (0, 4, 2, 1),
        (3, 1, 2, 1),
        (6, 1, 1, 0),
        (8, 1, 1, 0),
        (10, 1, 1, 1),
    ):
        x = jax.nn.relu(conv(w, f"features.{k}", x, stride, padding))
        x = max_pool(x, 3, 2) if pools else x
    one, two = jax.random.split(key)
    x = dropped(x.reshape(len(x), -1), one, 0.5)
    x = dropped(jax.nn.relu(linear(w, "head.2", x)), two, 0.5)
    x = jax.nn.relu(linear(w, "head.5", x))
    return cross_entropy(linear(w, "head.7", x), batch["label"]).mean()


def vgg19(w: Arrays, batch: Arrays, key: Key) -> Array:
    x = pixels(batch)
    for k in range(5):
        stage = part(w, f"features.{k}")
        x = jax.nn.relu(conv(stage, "first", x))
        rest = {f"one.{name}": v for name, v in part(stage, "rest").items()}
        x = max_pool(stack(rest, lambda one, h: jax.nn.relu(conv(one, "one", h)), x), 2, 2)
    one, two = jax.random.split(key)
    x = dropped(jax.nn.relu(linear(w, "head.1", x.reshape(len(x), -1))), one, 0.5)
    x = dropped(jax.nn.relu(linear(w, "head.4", x)), two, 0.5)
    return cross_entropy(linear(w, "head.7", x), batch["label"]).mean()


def separable(w: Arrays, x: Array, stride: int = 1) -> Array:
    x = jax.nn.relu(normed(w, "norm1", conv(w, "depth", x, stride, groups=x.shape[-1])))
    return jax.nn.relu(normed(w, "norm2", conv(w, "point", x)))


def mobilenet_v1(w: Arrays, batch: Arrays, _: Key) -> Array:
    x = jax.nn.relu(normed(w, "stem.1", conv(w, "stem.0", pixels(batch), 2)))
    for k in range(3, 9):
        x = separable(part(w, f"stem.{k}"), x, 2 if k in (4, 6, 8) else 1)
    x = stack(part(w, "middle"), separable, x)
    x = separable(part(w, "last.1"), separable(part(w, "last.0"), x, 2))
    return cross_entropy(linear(w, "head", x.mean((1, 2))), batch["label"]).mean()


def cut(w: Arrays, name: str, x: Array, stride: int = 1, groups: int = 1) -> Array:
    x = normed(w, f"{name}.normed", conv(w, f"{name}.filter", x, stride, groups=groups))
    return jnp.clip(x, 0, 6)


def inverted(w: Arrays, x: Array, stride: int = 1) -> Array:
    h = cut(w, "up", x) if "up.filter.w" in w else x
    h = normed(w, "normed", conv(w, "down", cut(w, "depth", h, stride, h.shape[-1])))
    return x + h if h.shape == x.shape else h


def mobilenet_v2(w: Arrays, batch: Arrays, key: Key) -> Array:
    x = cut(w, "features.0", pixels(batch), 2)
    for k, stride in enumerate((1, 2, 2, 2, 1, 2, 1), 1):
        stage = part(w, f"features.{k}")
        x = inverted(part(stage, "first"), x, stride)
        x = stack(part(stage, "rest"), inverted, x)
    x = dropped(cut(w, "features.8", x).mean((1, 2)), key, 0.2)
    return cross_entropy(linear(w, "head.1", x), batch["label"]).mean()


# Sequences and ratings ----------------------------------------------------------------------------


def layer_norm(w: Arrays, name: str, x: Array) -> Array:
    wide = x.astype(jnp.float32)
    mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    y = (wide - mean) * lax.rsqrt(variance + 1e-5) * w[f"{name}.scale"] + w[f"{name}.shift"]
    return y.astype(x.dtype)


def attention(w: Arrays, x: Array, heads: int, *, causal: bool) -> Array:
    count, length, width = x.shape
    qkv = linear(w, "attn.qkv", x).reshape(count, length, 3, heads, width // heads)
    q, k, v = jnp.moveaxis(qkv, 2, 0)
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
    return linear(w, "attn.out", mixed.reshape(x.shape))


def block(w: Arrays, x: Array, heads: int = 4) -> Array:
    x = x + attention(w, layer_norm(w, "norm1", x), heads, causal=True)
    h = jax.nn.gelu(linear(w, "up", layer_norm(w, "norm2", x)), approximate=False)
    return x + linear(w, "down", h)


def gpt(w: Arrays, batch: Arrays, _: Key) -> Array:
    ids = batch["ids"]
    x = w["tokens"][ids[:, :-1]] + w["positions"][: ids.shape[1] - 1]
    x = layer_norm(w, "last", stack(part(w, "blocks"), block, x))
    return cross_entropy(x @ w["tokens"].T, ids[:, 1:]).mean()


def lstm(w: Arrays, name: str, x: Array) -> Array:
    """What enters at each step is multiplied once for all steps."""
    wx, wh = w[f"{name}.wx"], w[f"{name}.wh"]

    def step(state: tuple[Array, Array], entering: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = state
        i, forget, o, g = jnp.split(entering + h @ wh, 4, -1)
        c = jax.nn.sigmoid(forget) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((len(x), wh.shape[0]), x.dtype)
    _, y = lax.scan(step, (start, start), jnp.swapaxes(biased(w, f"{name}.b", x @ wx), 0, 1))
    return jnp.swapaxes(y, 0, 1)


def language(w: Arrays, batch: Arrays, _: Key) -> Array:
    ids = batch["ids"]
    x = lstm(w, "rnn2", lstm(w, "rnn1", w["tokens"][ids[:, :-1]]))
    return cross_entropy(linear(w, "head", x), ids[:, 1:]).mean()


def gnmt(w: Arrays, batch: Arrays, _: Key) -> Array:
    source, wanted = batch["source"], batch["target"][:, 1:]
    x = w["source_words.w"][source]
    length, place = (source != 0).sum(1, keepdims=True), jnp.arange(source.shape[1])
    turned = jnp.where(place < length, length - 1 - place, place)[..., None]
    backward = lstm(w, "encoder.backward", jnp.take_along_axis(x, turned, 1))
    both = [lstm(w, "encoder.forward", x), jnp.take_along_axis(backward, turned, 1)]
    memory = lstm(w, "encoder.second", jnp.concatenate(both, -1))
    memory = stack(part(w, "encoder.rest"), lambda one, h: h + lstm(one, "rnn", h), memory)
    asked = lstm(w, "decoder.first", w["target_words.w"][batch["target"][:, :-1]])
    scores = linear(w, "decoder.query", asked) @ jnp.swapaxes(memory, 1, 2)
    answers = jax.nn.softmax(jnp.where((source != 0)[:, None], scores, -1e9)) @ memory

    def layer(one: Arrays, h: Array) -> Array:
        return h + lstm(one, "rnn", jnp.concatenate([h, answers], -1))

    y = linear(w, "head", stack(part(w, "decoder.rest"), layer, asked))
    counts = wanted != 0
    return jnp.where(counts, cross_entropy(y, wanted), 0).sum() / counts.sum()


def ncf(w: Arrays, batch: Arrays, _: Key) -> Array:
    user, item = batch["user"], batch["item"]
    product = w["user_factors.w"][user] * w["item_factors.w"][item]
    x = jnp.concatenate([w["user_traits.w"][user], w["item_traits.w"][item]], -1)
    for k in (0, 2, 4):
        x = jax.nn.relu(linear(w, f"tower.{k}", x))
    scores = linear(w, "head", jnp.concatenate([product, x], -1))[:, 0].astype(jnp.float32)
    return (jax.nn.softplus(scores) - scores * batch["liked"]).mean()


NETWORKS: dict[str, Callable[[Arrays, Arrays, Key], Array]] = {
    "mlp": mlp,
    "resnet18": resnet18,
    "gpt": gpt,
    "lstm": language,
    "ncf": ncf,
    "alexnet": alexnet,
    "vgg19": vgg19,
    "resnet50": resnet50,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v2": mobilenet_v2,
    "gnmt": gnmt,
}
