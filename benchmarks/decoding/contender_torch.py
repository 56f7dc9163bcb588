"""The same decoder by PyTorch, for `benchmarks.decoding`.

    python -m benchmarks.decoding.contender_torch DTYPE ROOM TOKENS WEIGHTS.npz RESULTS.npy THREADS

It is written down a second time. The cache has its room from the beginning, new keys and values are put
into it in place, and attention sees the part that is filled: PyTorch's own kernel, with grouped queries.
Weights are stored as `linear` reads them best, [outputs, inputs].
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, TypeAlias

import numpy as np

from benchmarks.contenders.serve import serve
from benchmarks.decoding.case import PROMPT, SETTINGS, prompt

# PyTorch is not installed where types are checked.
torch: Any = importlib.import_module("torch")
f: Any = torch.nn.functional
Tensor: TypeAlias = Any

HEADS, GROUPS, LAYERS, WIDTH = (int(SETTINGS[name]) for name in ("H", "G", "L", "D"))
ROW = WIDTH // HEADS


class Decoder:
    """The weights, and a cache with some room."""

    def __init__(self, weights: dict[str, Tensor], room: int, dtype: Tensor) -> None:
        self.w = {name: value.to(dtype) for name, value in weights.items()}
        self.ks, self.vs = (torch.zeros(LAYERS, 1, GROUPS, room, ROW, dtype=dtype) for _ in "kv")
        half = torch.arange(ROW // 2)
        angles = torch.arange(room)[:, None] * 10000.0 ** (-half / (ROW // 2))
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def rotary(self, x: Tensor, begin: int) -> Tensor:
        end = begin + x.shape[-2]
        a, b = x.chunk(2, -1)
        c, s = self.cos[begin:end], self.sin[begin:end]
        return torch.cat((a * c - b * s, a * s + b * c), -1)

    def attention(self, x: Tensor, layer: int, begin: int) -> Tensor:
        count = x.shape[1]
        end = begin + count

        def heads(name: str, number: int) -> Tensor:
            y = f.linear(x, self.w[f"blocks.attn.{name}.w"][layer])
            return y.view(1, count, number, ROW).transpose(1, 2)

        self.ks[layer, :, :, begin:end] = self.rotary(heads("k", GROUPS), begin)
        self.vs[layer, :, :, begin:end] = heads("v", GROUPS)
        keys, values = self.ks[layer, :, :, :end], self.vs[layer, :, :, :end]
        query = self.rotary(heads("q", HEADS), begin)
        y = f.scaled_dot_product_attention(
            query, keys, values, is_causal=count > 1, enable_gqa=True
        )
        joined = y.transpose(1, 2).reshape(1, count, WIDTH)
        return f.linear(joined, self.w["blocks.attn.out.w"][layer])

    def step(self, ids: Tensor, begin: int) -> Tensor:
        """The logits of the last token."""
        w = self.w
        x = w["tokens"][ids]
        for layer in range(LAYERS):
            n = f.rms_norm(x, (WIDTH,), w["blocks.norm1.scale"][layer], 1e-5)
            x = x + self.attention(n, layer, begin)
            n = f.rms_norm(x, (WIDTH,), w["blocks.norm2.scale"][layer], 1e-5)
            gate, up = (f.linear(n, w[f"blocks.{name}.w"][layer]) for name in ("gate", "up"))
            x = x + f.linear(f.silu(gate) * up, w["blocks.down.w"][layer])
        last = f.rms_norm(x[:, -1], (WIDTH,), w["last.scale"], 1e-5)
        return f.linear(last, w["head.w"]).float()


def main(dtype: str, room: str, tokens: str, weights: str, results: str, threads: str) -> None:
    """Fill a cache, and serve calls."""
    torch.set_num_threads(int(threads))
    with np.load(weights) as file, torch.inference_mode():
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
        stored = {
            name: value.transpose(-1, -2).contiguous() if name.endswith(".w") else value
            for name, value in arrays.items()
        }
        decoder = Decoder(stored, int(room), {"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
        begin = PROMPT if int(tokens) else 0
        if begin:
            decoder.step(torch.from_numpy(prompt(PROMPT)), 0)
        ids = torch.from_numpy(prompt(int(tokens) or PROMPT))
        np.save(results, decoder.step(ids, begin).numpy())
        serve(lambda: decoder.step(ids, begin), {})


if __name__ == "__main__":
    main(*sys.argv[1:])
