"""JAX on a GPU, for `benchmarks.gpu`; see `benchmarks.gpu.serve`.

python -m benchmarks.gpu.contender_jax SPEC.json
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np

from benchmarks.gpu.serve import LAUNCHES, Array, Spec, answers, read_spec, serve, timed
from benchmarks.training import networks_jax as networks
from benchmarks.training.contender_jax import OPTIMIZERS

# JAX is not installed where types are checked.
jax: Any = importlib.import_module("jax")
jnp: Any = jax.numpy
lax: Any = jax.lax
Tensor: TypeAlias = Any
Tensors: TypeAlias = dict[str, Any]


def scale(x: Tensor) -> Tensor:
    return x * 2 + 1


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def gelu(x: Tensor) -> Tensor:
    return jax.nn.gelu(x, approximate=False)


def softmax(x: Tensor) -> Tensor:
    return jax.nn.softmax(x, -1)


def row_sum(x: Tensor) -> Tensor:
    return x.sum(-1)


def layer_norm(x: Tensor) -> Tensor:
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    return (centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype)


def column_sum(x: Tensor) -> Tensor:
    return x.sum(0)


def embedding(x: Tensor, ids: Tensor) -> Tensor:
    return x[ids]


def adam(x: Tensor, y: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    m = 0.9 * m + 0.1 * y
    v = jnp.sqrt(0.999 * v**2 + 0.001 * y * y)
    return x - 0.001 * m / (v + 1e-6), m, v


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """By cuDNN where it has it: for 16 bits."""
    by = "cudnn" if q.dtype.itemsize == 2 and jax.default_backend() == "gpu" else None
    tokens_first = [x.swapaxes(1, 2) for x in (q, k, v)]
    return jax.nn.dot_product_attention(*tokens_first, implementation=by).swapaxes(1, 2)


def attention_gradient(q: Tensor, k: Tensor, v: Tensor, dy: Tensor) -> Tensor:
    return jax.vjp(attention, q, k, v)[1](dy)


KERNELS: dict[str, Callable[..., Tensor]] = {
    "scale": scale,
    "add": add,
    "gelu": gelu,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "row_sum": row_sum,
    "column_sum": column_sum,
    "transpose": jnp.transpose,
    "embedding": embedding,
    "adam": adam,
    "product": jnp.matmul,
    "attention": attention,
    "attention_gradient": attention_gradient,
}
PRECISIONS = {"f32": "highest", "tf32": "tensorfloat32", "f16": "highest", "bf16": "highest"}
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


# Networks without their losses --------------------------------------------------------------------


def scores(y: Tensor) -> Tensor:
    """What a network gives, in f32 whatever its layers are of."""
    return y.astype(jnp.float32)


def mlp(w: Tensors, image: Tensor) -> Tensor:
    return scores(networks.layers(w, image))


def settled(w: networks.Arrays, name: str, x: Tensor) -> Tensor:
    """Batch norm with the running statistics that training begins with, 0 and 1."""
    y = x.astype(jnp.float32) * (w[f"{name}.scale"] * lax.rsqrt(1 + 1e-5)) + w[f"{name}.shift"]
    return y.astype(x.dtype)


def bottleneck(w: networks.Arrays, x: Tensor, stride: int = 1) -> Tensor:
    h = jax.nn.relu(settled(w, "norm1", networks.conv(w, "down", x)))
    h = jax.nn.relu(settled(w, "norm2", networks.conv(w, "middle", h, stride)))
    h = settled(w, "norm3", networks.conv(w, "up", h))
    if "skip.0.w" in w:
        x = settled(w, "skip.1", networks.conv(w, "skip.0", x, stride))
    return jax.nn.relu(h + x)


def resnet50(w: Tensors, image: Tensor) -> Tensor:
    x = networks.pixels({"image": image}).astype(w["head.w"].dtype)
    x = jax.nn.relu(settled(w, "stem.1", networks.conv(w, "stem.0", x, 2)))
    x = networks.max_pool(x, 3, 2, 1)
    for k in range(4):
        stage = networks.part(w, f"stages.{k}")
        x = bottleneck(networks.part(stage, "first"), x, 2 if k else 1)
        x = networks.stack(networks.part(stage, "rest"), bottleneck, x)
    return scores(networks.linear(w, "head", x.mean((1, 2))))


def gpt(w: Tensors, ids: Tensor) -> Tensor:
    x = w["tokens"][ids] + w["positions"][: ids.shape[1]]
    x = networks.stack(networks.part(w, "blocks"), networks.block, x)
    return scores(networks.layer_norm(w, "last", x) @ w["tokens"].T)


def later(w: networks.Arrays, x: Tensor) -> Tensor:
    """A block of MiniLM, which norms what it has added."""
    y = networks.layer_norm(w, "norm1", x + networks.attention(w, x, 12, causal=False))
    h = jax.nn.gelu(networks.linear(w, "up", y), approximate=False)
    return networks.layer_norm(w, "norm2", y + networks.linear(w, "down", h))


def minilm(w: Tensors, ids: Tensor) -> Tensor:
    x = networks.layer_norm(w, "first", w["tokens"][ids] + w["positions"][: ids.shape[1]])
    x = scores(networks.stack(networks.part(w, "blocks"), later, x)).mean(1)
    return x / jnp.sqrt((x * x).sum(-1, keepdims=True))


def lstm(w: Tensors, ids: Tensor) -> Tensor:
    x = networks.lstm(w, "rnn2", networks.lstm(w, "rnn1", w["tokens"][ids]))
    return scores(networks.linear(w, "head", x))


def ncf(w: Tensors, user: Tensor, item: Tensor) -> Tensor:
    product = w["user_factors.w"][user] * w["item_factors.w"][item]
    x = jnp.concatenate([w["user_traits.w"][user], w["item_traits.w"][item]], -1)
    for k in (0, 2, 4):
        x = jax.nn.relu(networks.linear(w, f"tower.{k}", x))
    y = networks.linear(w, "head", jnp.concatenate([product, x], -1))
    return jax.nn.sigmoid(scores(y)[:, 0])


SCORES: dict[str, Callable[..., Tensor]] = {
    "mlp": mlp,
    "resnet50": resnet50,
    "gpt": gpt,
    "minilm": minilm,
    "lstm": lstm,
    "ncf": ncf,
}


# What is measured ---------------------------------------------------------------------------------


def on_device(spec: Spec) -> dict[str, Tensor]:
    """The arrays of the case."""
    return {
        name: jnp.asarray(array, DTYPES[spec.dtype] if spec.rounds(array) else None)
        for name, array in spec.arrays().items()
    }


def convolution(spec: Spec) -> Callable[..., Tensor]:
    """Of pictures with channels last."""
    stride, padding = spec.settings["stride"], spec.settings["padding"]

    def run(x: Tensor, w: Tensor) -> Tensor:
        around = [(padding, padding)] * 2
        axes = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (stride, stride), around, dimension_numbers=axes)

    return run


def rounded(arrays: Tensors, names: frozenset[str]) -> Tensors:
    """With those of these names in bf16."""
    return {name: x.astype(jnp.bfloat16) if name in names else x for name, x in arrays.items()}


def called(spec: Spec) -> tuple[dict[str, Array], Callable[[], float], float]:
    """A kernel, a product, or a network."""
    begin = time.perf_counter()
    given: list[Any] = list(on_device(spec).values())
    match spec.name:
        case "convolution":
            run = jax.jit(convolution(spec))
        case _ if not spec.is_network:
            run = jax.jit(KERNELS[spec.name])
        case _:
            start = spec.weights().items()
            weights = {name.removeprefix("weight:"): jnp.asarray(x) for name, x in start}
            run = jax.jit(SCORES[spec.name])
            given = [rounded(weights, spec.narrow()), *given]

    def many() -> float:
        start = time.perf_counter()
        last = run(*given)
        for _ in range(LAUNCHES - 1):
            last = run(*given)
        jax.block_until_ready(last)
        return (time.perf_counter() - start) * 1e3 / LAUNCHES

    found = run(*given)
    several = cast("tuple[Tensor, ...]", found if isinstance(found, tuple) else (found,))
    results = spec.compared([np.asarray(one.astype(jnp.float32)) for one in several])
    ready = time.perf_counter() - begin
    waited = timed(lambda: jax.block_until_ready(run(*given)))
    measure = waited if spec.kind == "inference" else many
    return results, measure, ready


def trained(spec: Spec) -> tuple[dict[str, Array], Callable[[], float], float]:
    """A step of training, optimizer included, as one function that gives its arguments away."""
    begin = time.perf_counter()
    batch = on_device(spec)
    with np.load(spec.start) as file:
        names = {key.removeprefix("moment:") for key in file.files if key.startswith("moment:")}
        weights = {key: jnp.asarray(file[f"weight:{key}"]) for key in sorted(names)}
    network, update = networks.NETWORKS[spec.name], OPTIMIZERS[spec.optimizer]
    narrow = spec.narrow()

    def step(w: Tensors, m: Tensors, v: Tensors, number: int, batch: Tensors) -> tuple[Any, ...]:
        def cost(w: Tensors) -> Tensor:
            return network(rounded(w, narrow), batch, jax.random.key(number))

        loss, gradients = jax.value_and_grad(cost)(w)
        return *update(w, gradients, m, v, number), loss

    first = {key: jnp.zeros_like(value) for key, value in weights.items()}
    is_adam = spec.optimizer == "adam"
    second = {key: jnp.zeros_like(w) for key, w in weights.items()} if is_adam else {}
    run = jax.jit(step, donate_argnums=(0, 1, 2))
    state: tuple[Any, ...] = (weights, first, second)
    number = 0

    def call() -> float:
        nonlocal state, number
        *now, loss = run(*state, number, batch)
        state = tuple(now)
        number += 1
        return float(loss)

    results: dict[str, Array] = {"loss": np.asarray(call())}
    ready = time.perf_counter() - begin
    results |= {f"moment:{key}": np.array(value) for key, value in state[1].items()}
    results["second_loss"] = np.asarray(call())
    return results, timed(call), ready


def main() -> None:
    """Make what is measured, write results, and serve."""
    out, spec = answers(), read_spec()
    jax.config.update("jax_default_matmul_precision", PRECISIONS[spec.precision])
    results, measure, ready = (trained if spec.kind == "training" else called)(spec)
    spec.write(results)
    serve(out, measure, {"ready_s": ready})


if __name__ == "__main__":
    main()
