"""Operators of PyTorch that are decomposed before they are imported, such as fast paths for layers."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from dlc.importers.torch.detectors import roi_align
from dlc.importers.torch.importing import importer_of

if TYPE_CHECKING:
    from torch import Tensor


def decompositions() -> dict[object, Callable[..., object]]:
    """What AOTAutograd takes apart: Core ATen's table, without what dlc imports, and fast paths."""
    import torch
    from torch._decomp import core_aten_decompositions

    table = {op: how for op, how in core_aten_decompositions().items() if not _is_imported(op)}
    table.update(before_autograd())
    table[torch.ops.aten._transformer_encoder_layer_fwd.default] = encoder_layer
    table[torch.ops.aten._native_multi_head_attention.default] = multi_head_attention
    table[torch.ops.aten._weight_norm_interface_backward.default] = weight_norm_backward
    table[torch.ops.aten._cdist_backward.default] = distances_backward
    table[torch.ops.aten.masked_scatter_backward.default] = masked_scatter_backward
    return table


def before_autograd() -> dict[object, Callable[..., object]]:
    """What is taken apart before it is differentiated: PyTorch has its derivative as one operator only."""
    import torch
    from torch._decomp import decomposition_table

    aten = torch.ops.aten
    whole = (aten.grid_sampler_2d, aten.hardshrink, aten.softshrink, aten.multi_margin_loss)
    table: dict[object, Callable[..., object]] = {
        op.default: decomposition_table[op.default] for op in whole
    }
    table[aten.grid_sampler.default] = _grid_sampler
    if "torchvision" in sys.modules and hasattr(torch.ops.torchvision, "roi_align"):
        table[torch.ops.torchvision.roi_align.default] = roi_align
    return table


def _grid_sampler(x: Tensor, *rest: object) -> Tensor:
    """Of pictures by the decomposition, of volumes as it is."""
    import torch
    from torch._decomp import decomposition_table

    aten = torch.ops.aten
    if x.dim() == 4:
        return decomposition_table[aten.grid_sampler_2d.default](x, *rest)
    return cast("Callable[..., Tensor]", aten.grid_sampler_3d.default)(x, *rest)


def _is_imported(op: object) -> bool:
    return importer_of(str(op)) is not None


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The fast path of `torch.nn.MultiheadAttention`: [batch, length, width] in and out.

    A mask is true where a key is not seen; `mask_type` is 0 for one of [queries, keys], 1 for one of
    [batch, keys] and 2 for one that is whole.
    """
    import torch
    from torch.nn import functional

    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    heads: list[Tensor] = []
    for source, weight, bias in zip((query, key, value), weights, biases, strict=True):
        rows = functional.linear(source, weight, bias)
        split = rows.unflatten(-1, (num_head, embed_dim // num_head))
        heads.append(split.transpose(1, 2))
    q, k, v = heads
    scores = torch.matmul(q, k.transpose(-2, -1)) * (embed_dim // num_head) ** -0.5
    if mask is not None:
        seen = mask[:, None, None, :] if mask_type == 1 else mask
        scores = scores.masked_fill(seen.to(torch.bool), float("-inf"))
    found = torch.softmax(scores, -1)
    y = torch.matmul(found, v).transpose(1, 2).flatten(-2)
    y = functional.linear(y, proj_weight, proj_bias)
    if not need_weights:
        return y, None
    return y, found.mean(1) if average_attn_weights else found


def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """The derivatives of `g * v / norm(v)` by v and by g; the norm is over all axes but one."""
    axes = [axis for axis in range(saved_v.dim()) if axis != dim]
    norms = saved_norms.to(grad_w.dtype)
    along = (grad_w * saved_v).sum(axes, keepdim=True)
    grad_v = (grad_w - saved_v * (along / (norms * norms))) * (saved_g / norms)
    return grad_v, along / norms


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """The fast path of `torch.nn.TransformerEncoderLayer`."""
    from torch.nn import functional

    def attended(x: Tensor) -> Tensor:
        parts = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        y, _ = multi_head_attention(
            x, x, x, embed_dim, num_heads, *parts, mask, need_weights=False, mask_type=mask_type
        )
        return y

    def fed_forward(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(inner, ffn_weight_2, ffn_bias_2)

    def first_norm(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attended(first_norm(src))
        return x + fed_forward(second_norm(x))
    x = first_norm(src + attended(src))
    return second_norm(x + fed_forward(x))


def distances_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The derivative by `x1` of the distances of order `p` between its rows and those of `x2`.

    It is 0 where the distance is, and at the largest differences for an infinite order.
    """
    import torch

    apart = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    size, far, dy = apart.abs(), cdist.unsqueeze(-1), grad.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(x1)
    if p == 1:
        return (dy * apart.sign()).sum(-2)
    if p == float("inf"):
        return (dy * apart.sign() * size.eq(far)).sum(-2)
    powers = apart if p == 2 else apart.sign() * size.pow(p - 1)
    found = dy * powers / far.pow(p - 1)
    none = far.eq(0) | size.eq(0) if p < 1 else far.eq(0)
    return torch.where(none, torch.zeros_like(found), found).sum(-2)


def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The derivative by the source, whose elements went to the places of the mask in their order."""
    import torch

    chosen = mask.expand_as(grad).flatten(0)
    count = math.prod(sizes)
    place = (chosen.to(torch.int64).cumsum(0) - 1).clamp(0, count - 1)
    taken = torch.where(chosen, grad.flatten(0), torch.zeros_like(grad).flatten(0))
    return grad.new_zeros((count,)).scatter_add(0, place, taken).reshape(sizes)
