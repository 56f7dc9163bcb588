"""Networks of sequences, pictures in patches and dense layers, as PyTorch exports them.

    python -m benchmarks.networks.sequences NAME FOLDER

Writes NAME.onnx with seeded weights and NAME.npz with its inputs. Runs in the environment of the zoo's
exporters, where `torch.compile` is a contender with the same modules.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.training.networks_torch_sequences import NCF
from benchmarks.zoo.catalogue import Module, Network, Tensor, floats, integers, torch

OPSET = 17
SEED = 19
TOKENS = 128
nn: Any = torch.nn
f: Any = torch.nn.functional


class Block(Module):
    """A transformer's block (Vaswani et al., 2017).

    It normalises what it reads, as GPT-2 and ViT do, or what it has added, as BERT does.
    """

    def __init__(self, width: int, heads: int, *, reads: bool, gelu: str = "none") -> None:
        super().__init__()
        self.heads, self.reads, self.gelu = heads, reads, gelu
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, causal: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """The result, the keys and the values."""
        if self.reads:
            seen, keys, values = self.attend(self.norm1(x), causal)
            x = x + seen
            return x + self.dense(self.norm2(x)), keys, values
        seen, keys, values = self.attend(x, causal)
        x = self.norm1(x + seen)
        return self.norm2(x + self.dense(x)), keys, values

    def attend(self, x: Tensor, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = [
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(x).chunk(3, -1)
        ]
        seen = f.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
        return self.out(seen.transpose(1, 2).flatten(2)), keys, values

    def dense(self, x: Tensor) -> Tensor:
        return self.down(f.gelu(self.up(x), approximate=self.gelu))


class Picture(Module):
    """The base transformer of Dosovitskiy et al. (2020) with patches of 16 x 16."""

    def __init__(self, width: int = 768) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.blocks = nn.ModuleList([Block(width, 12, reads=True) for _ in range(12)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, picture: Tensor) -> Tensor:
        patches = self.patches(picture).flatten(2).transpose(1, 2)
        x = torch.cat([self.first, patches], 1) + self.places
        for block in self.blocks:
            x = block(x)[0]
        return self.head(self.norm(x)[:, 0])


def vit_b16() -> Network:
    """A picture of 224 x 224."""
    return Network(Picture(), {"picture": floats(1, 3, 224, 224)}, {})


class Sentences(Module):
    """The sizes of all-MiniLM-L6-v2: layers as in BERT (Devlin et al., 2018), and the mean over tokens."""

    def __init__(self, width: int = 384) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList([Block(width, 12, reads=False) for _ in range(6)])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.tokens(ids) + self.places.weight[: ids.shape[1]])
        for block in self.blocks:
            x = block(x)[0]
        return x.mean(1)


def minilm(batch: int) -> Network:
    """Sentences of 128 tokens."""
    return Network(Sentences(), {"ids": integers(30522, batch, TOKENS)}, {})


class Prompt(Module):
    """GPT-2 of 124 million weights (Radford et al., 2019), and what a prompt leaves to generate from: the
    scores of the next token, and the keys and values of each layer."""

    def __init__(self, width: int = 768) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50257, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList([Block(width, 12, reads=True, gelu="tanh") for _ in range(12)])
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        kept: list[Tensor] = []
        for block in self.blocks:
            x, keys, values = block(x, causal=True)
            kept += [keys, values]
        return self.norm(x[:, -1]) @ self.tokens.weight.T, *kept


def gpt_prefill() -> Network:
    """A prompt of 128 tokens."""
    return Network(Prompt(), {"ids": integers(50257, 1, TOKENS)}, {})


def lstm_2x512() -> Network:
    """Two LSTM layers of width 512, 64 steps."""

    class States(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LSTM(512, 512, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)[0]

    return Network(States(), {"x": floats(1, 64, 512)}, {})


def gru_256() -> Network:
    """One GRU layer of width 256, 64 steps."""

    class States(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.GRU(256, 256, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[0]

    return Network(States(), {"x": floats(1, 64, 256)}, {})


def mlp() -> Network:
    """784-256-10, one picture."""
    layers = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    return Network(layers, {"x": floats(1, 784)}, {})


class Scores(Module):
    """He et al. (2017): how probably a user likes an item."""

    def __init__(self) -> None:
        super().__init__()
        self.network = NCF()

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.network.scores(user, item)


def ncf() -> Network:
    """One pair."""
    inputs = {"user": integers(20000, 1), "item": integers(10000, 1)}
    return Network(Scores(), inputs, {})


NETWORKS: dict[str, Callable[[], Network]] = {
    "vit_b16": vit_b16,
    "minilm": lambda: minilm(1),
    "minilm_batch8": lambda: minilm(8),
    "gpt_prefill": gpt_prefill,
    "lstm_2x512": lstm_2x512,
    "gru_256": gru_256,
    "mlp": mlp,
    "ncf": ncf,
}


QUANTIZED = {"minilm_int8": "minilm"}
"""Networks whose weights `quantize_dynamic` of ONNX Runtime makes bytes, by the network in f32."""


def seeded(name: str) -> Network:
    """The network in evaluation mode; its weights are the same in every process."""
    torch.manual_seed(SEED)
    network = NETWORKS[name]()
    network.module.eval()
    return network


def main(name: str, folder: str) -> None:
    """Export one network and draw its inputs, and quantize it if its name says so."""
    warnings.simplefilter("ignore")
    if name in QUANTIZED:
        main(QUANTIZED[name], folder)
        source, made = (Path(folder, f"{each}.onnx") for each in (QUANTIZED[name], name))
        tool: Any = importlib.import_module("onnxruntime.quantization")
        # Without VNNI ONNX Runtime saturates sums of two products of bytes; weights of 7 bits keep within.
        tool.quantize_dynamic(source, made, weight_type=tool.QuantType.QInt8, reduce_range=True)
        source.with_suffix(".npz").rename(made.with_suffix(".npz"))
        return
    network = seeded(name)
    given: dict[str, Any] = network.given(0)
    with torch.no_grad():
        torch.onnx.export(
            network.module,
            tuple([torch.from_numpy(each) for each in given.values()]),
            str(Path(folder, f"{name}.onnx")),
            dynamo=False,
            opset_version=OPSET,
            input_names=list(given),
        )
    np.savez(Path(folder, f"{name}.npz"), **given)


if __name__ == "__main__":
    main(*sys.argv[1:])
