"""Gradients of the networks of `examples/networks` by PyTorch.

    python contender_torch.py NAME GIVEN.npz RESULTS.npz

The file has every weight under its path in our text, `weight:` before it, and the arrays of the batch;
the results are the loss and the gradient by each weight, in f32 and in f64. The networks are written
down here a second time, from their papers: whatever both texts agree on is not a copy. It imports nothing
of ours, because it runs in an environment of its own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

# PyTorch is not installed where types are checked.
torch: Any = importlib.import_module("torch")
f: Any = torch.nn.functional
Tensor: TypeAlias = Any
Tensors: TypeAlias = Mapping[str, Tensor]


def linear(w: Tensors, name: str, x: Tensor) -> Tensor:
    """Our weights are [inputs, outputs]."""
    return x @ w[f"{name}.w"] + w[f"{name}.b"]


def conv(w: Tensors, name: str, x: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """Our kernels are [height, width, inputs, outputs]."""
    return f.conv2d(x, w[f"{name}.w"].permute(3, 2, 0, 1), stride=stride, padding=padding)


def batch_norm(w: Tensors, name: str, x: Tensor) -> Tensor:
    """By the moments of the batch, as in training."""
    return f.batch_norm(x, None, None, w[f"{name}.scale"], w[f"{name}.shift"], training=True)


def residual(w: Tensors, name: str, x: Tensor, stride: int, *, projected: bool) -> Tensor:
    """The basic block of He et al. (2015)."""
    h = f.relu(batch_norm(w, f"{name}.norm1", conv(w, f"{name}.conv1", x, stride, 1)))
    h = batch_norm(w, f"{name}.norm2", conv(w, f"{name}.conv2", h, 1, 1))
    if projected:
        x = batch_norm(w, f"{name}.skip.1", conv(w, f"{name}.skip.0", x, stride))
    return f.relu(h + x)


def resnet18(w: Tensors, batch: Tensors) -> Tensor:
    x = batch["image"].permute(0, 3, 1, 2)
    x = f.relu(batch_norm(w, "stem.1", conv(w, "stem.0", x, padding=1)))
    for k in range(8):
        first = k % 2 == 0 and k > 0
        x = residual(w, f"stages.{k}", x, 2 if first else 1, projected=first)
    return f.cross_entropy(linear(w, "head", x.mean((2, 3))), batch["label"].long())


def bottleneck(w: Tensors, name: str, x: Tensor, stride: int, *, projected: bool) -> Tensor:
    """The block of the deeper networks, with the stride in its middle."""
    h = f.relu(batch_norm(w, f"{name}.norm1", conv(w, f"{name}.down", x)))
    h = f.relu(batch_norm(w, f"{name}.norm2", conv(w, f"{name}.middle", h, stride, 1)))
    h = batch_norm(w, f"{name}.norm3", conv(w, f"{name}.up", h))
    if projected:
        x = batch_norm(w, f"{name}.skip.1", conv(w, f"{name}.skip.0", x, stride))
    return f.relu(h + x)


def resnet50(w: Tensors, batch: Tensors) -> Tensor:
    x = (batch["image"].to(w["head.w"].dtype) / 128 - 1).permute(0, 3, 1, 2)
    x = f.relu(batch_norm(w, "stem.1", conv(w, "stem.0", x, 2, 3)))
    x = f.max_pool2d(x, 3, 2, 1)
    for k in range(4):
        x = bottleneck(w, f"stages.{k}.first", x, 2 if k > 0 else 1, projected=True)
        rest = f"stages.{k}.rest."
        for n in range(len(w[f"{rest}up.w"])):
            block = {
                f"block.{name.removeprefix(rest)}": v[n] for name, v in w.items() if rest in name
            }
            x = bottleneck(block, "block", x, 1, projected=False)
    return f.cross_entropy(linear(w, "head", x.mean((2, 3))), batch["label"].long())


def layer_norm(w: Tensors, name: str, x: Tensor) -> Tensor:
    return f.layer_norm(x, x.shape[-1:], w[f"{name}.scale"], w[f"{name}.shift"])


def gpt(w: Tensors, batch: Tensors, heads: int = 4) -> Tensor:
    ids = batch["ids"].long()
    length, width = ids.shape[1] - 1, w["tokens"].shape[1]
    x = w["tokens"][ids[:, :-1]] + w["positions"][:length]
    for k in range(len(w["blocks.up.w"])):
        block = {name.removeprefix("blocks."): v[k] for name, v in w.items() if "blocks." in name}
        qkv = linear(block, "attn.qkv", layer_norm(block, "norm1", x))
        q, keys, v = qkv.reshape(*x.shape[:2], 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = f.scaled_dot_product_attention(q, keys, v, is_causal=True)
        x = x + linear(block, "attn.out", mixed.transpose(1, 2).reshape(x.shape))
        x = x + linear(block, "down", f.gelu(linear(block, "up", layer_norm(block, "norm2", x))))
    scores = layer_norm(w, "last", x) @ w["tokens"].T
    return f.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())


def lstm_layer(w: Tensors, name: str, x: Tensor) -> Tensor:
    """PyTorch's own layer, whose gates are in the order i, f, g, o; ours i, f, o, g."""
    width = w[f"{name}.wh"].shape[0]
    order = torch.cat([torch.arange(2 * width), torch.arange(3 * width, 4 * width)])
    order = torch.cat([order, torch.arange(2 * width, 3 * width)])
    wx, wh = w[f"{name}.wx"].T[order], w[f"{name}.wh"].T[order]
    b = w[f"{name}.b"][order]
    start = x.new_zeros(1, x.shape[0], width)
    weights = (wx, wh, b, torch.zeros_like(b))
    return torch.lstm(x, (start, start), weights, True, 1, 0.0, True, False, True)[0]


def lstm(w: Tensors, batch: Tensors) -> Tensor:
    ids = batch["ids"].long()
    x = lstm_layer(w, "rnn2", lstm_layer(w, "rnn1", w["tokens"][ids[:, :-1]]))
    return f.cross_entropy(linear(w, "head", x).flatten(0, 1), ids[:, 1:].flatten())


def ncf(w: Tensors, batch: Tensors) -> Tensor:
    user, item = batch["user"].long(), batch["item"].long()
    product = w["user_factors.w"][user] * w["item_factors.w"][item]
    x = torch.cat([w["user_traits.w"][user], w["item_traits.w"][item]], -1)
    for k in (0, 2, 4):
        x = f.relu(linear(w, f"tower.{k}", x))
    scores = linear(w, "head", torch.cat([product, x], -1)).flatten()
    return f.binary_cross_entropy_with_logits(scores, batch["liked"])


NETWORKS: dict[str, Callable[[Tensors, Tensors], Tensor]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "gpt": gpt,
    "lstm": lstm,
    "ncf": ncf,
}


def main(name: str, given: str, results: str) -> None:
    """Write the loss and the gradients."""
    found: dict[str, Any] = {}
    with np.load(given) as file:
        arrays = {key: torch.from_numpy(file[key]) for key in file.files}
    for dtype in (torch.float32, torch.float64):
        floats = {k: v.to(dtype, copy=True) for k, v in arrays.items() if v.is_floating_point()}
        cast = {**arrays, **floats}
        weights = {
            key.removeprefix("weight:"): value.requires_grad_()
            for key, value in cast.items()
            if key.startswith("weight:")
        }
        loss = NETWORKS[name](weights, cast)
        loss.backward()
        bits = str(dtype).removeprefix("torch.float")
        found[f"{bits}:loss"] = loss.detach().numpy()
        for key, value in weights.items():
            if value.grad is not None:
                found[f"{bits}:{key}"] = value.grad.numpy()
    np.savez(results, allow_pickle=False, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
