"""The networks of `benchmarks.training` for PyTorch that read sequences and ratings.

As those of `benchmarks.training.networks_torch`.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

from benchmarks.training.networks_torch import Module

# PyTorch is not installed where types are checked.
torch: Any = importlib.import_module("torch")
nn: Any = torch.nn
f: Any = torch.nn.functional
Tensor: TypeAlias = Any


class Attention(Module):
    def __init__(self, width: int, heads: int, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        split = self.qkv(x).view(count, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = f.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Block(Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.down(f.gelu(self.up(self.norm2(x))))


class GPT(Module):
    def __init__(self, V: int = 256, D: int = 256, H: int = 4, L: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(V, D))
        self.positions = nn.Parameter(torch.empty(128, D))
        self.blocks = nn.ModuleList([Block(D, H) for _ in range(L)])
        self.last = nn.LayerNorm(D)

    def forward(self, ids: Tensor) -> Tensor:
        return f.cross_entropy(self.scores(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    def scores(self, ids: Tensor) -> Tensor:
        x = f.embedding(ids, self.tokens) + self.positions[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return f.linear(self.last(x), self.tokens).float()


class Later(Module):
    """A block that norms what it has added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn, self.norm1 = Attention(width, heads, causal=False), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x + self.attn(x))
        return self.norm2(y + self.down(f.gelu(self.up(y))))


class MiniLM(Module):
    def __init__(self, V: int = 30522, D: int = 384, H: int = 12, L: int = 6) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(V, D))
        self.positions = nn.Parameter(torch.empty(512, D))
        self.first = nn.LayerNorm(D)
        self.blocks = nn.ModuleList([Later(D, H) for _ in range(L)])

    def scores(self, ids: Tensor) -> Tensor:
        x = self.first(f.embedding(ids, self.tokens) + self.positions[: ids.shape[1]])
        for block in self.blocks:
            x = block(x)
        return f.normalize(x.float().mean(1))


class LSTM(Module):
    """PyTorch's own layer, with one bias as ours has: its second one stays zero."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.wx = nn.Parameter(torch.empty(4 * width, inputs))
        self.wh = nn.Parameter(torch.empty(4 * width, width))
        self.b = nn.Parameter(torch.empty(4 * width))
        self.zeros = torch.zeros(4 * width)

    # So PyTorch treats its own LSTM too: one that is compiled is unrolled, which takes minutes.
    @torch.compiler.disable
    def forward(self, x: Tensor) -> Tensor:
        start = x.new_zeros(1, x.shape[0], self.wh.shape[1])
        weights = (self.wx, self.wh, self.b, self.zeros)
        return torch.lstm(x, (start, start), weights, True, 1, 0.0, True, False, True)[0]


class Language(Module):
    def __init__(self, V: int = 256, D: int = 512) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(V, D))
        self.rnn1, self.rnn2 = LSTM(D, D), LSTM(D, D)
        self.head = nn.Linear(D, V)

    def forward(self, ids: Tensor) -> Tensor:
        return f.cross_entropy(self.scores(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    def scores(self, ids: Tensor) -> Tensor:
        return self.head(self.rnn2(self.rnn1(f.embedding(ids, self.tokens)))).float()


class Layer(Module):
    """An LSTM around which what it reads is added again."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.rnn = LSTM(inputs, width)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return h + self.rnn(x)


def turned(words: Tensor) -> Tensor:
    """The place that each one changes with in its sentence; those behind the end stay."""
    length = (words != 0).sum(1, keepdim=True)
    place = torch.arange(words.shape[1]).expand_as(words)
    return torch.where(place < length, length - 1 - place, place)


class Encoder(Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.forwards, self.backwards = LSTM(width, width), LSTM(width, width)
        self.second = LSTM(2 * width, width)
        self.rest = nn.ModuleList([Layer(width, width) for _ in range(layers - 2)])

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        turn = turned(words)[..., None].expand_as(x)
        backwards = self.backwards(x.gather(1, turn)).gather(1, turn)
        h = self.second(torch.cat([self.forwards(x), backwards], -1))
        for layer in self.rest:
            h = layer(h, h)
        return h


class Decoder(Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.first = LSTM(width, width)
        self.query = nn.Linear(width, width, bias=False)
        self.rest = nn.ModuleList([Layer(2 * width, width) for _ in range(layers - 1)])

    def forward(self, x: Tensor, memory: Tensor, known: Tensor) -> Tensor:
        h = self.first(x)
        scores = self.query(h) @ memory.transpose(1, 2)
        weights = scores.masked_fill(~known[:, None], -1e9).softmax(-1)
        answers = weights @ memory
        for layer in self.rest:
            h = layer(torch.cat([h, answers], -1), h)
        return h


class GNMT(Module):
    def __init__(self, V: int = 32000, D: int = 1024, L: int = 4) -> None:
        super().__init__()
        self.source_words, self.target_words = nn.Embedding(V, D), nn.Embedding(V, D)
        self.encoder, self.decoder = Encoder(D, L), Decoder(D, L)
        self.head = nn.Linear(D, V)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(self.source_words(source), source)
        x = self.decoder(self.target_words(target[:, :-1]), memory, source != 0)
        wanted = target[:, 1:].flatten()
        return f.cross_entropy(self.head(x).flatten(0, 1), wanted, ignore_index=0)


class NCF(Module):
    """With the sizes of `examples/networks/ncf.dlm`."""

    def __init__(self, users: int = 20000, items: int = 10000, width: int = 64) -> None:
        super().__init__()
        self.user_factors, self.item_factors = (
            nn.Embedding(users, width),
            nn.Embedding(items, width),
        )
        self.user_traits, self.item_traits = nn.Embedding(users, width), nn.Embedding(items, width)
        self.tower = nn.Sequential(
            *(nn.Linear(2 * width, 2 * width), nn.ReLU()),
            *(nn.Linear(2 * width, width), nn.ReLU()),
            *(nn.Linear(width, width // 2), nn.ReLU()),
        )
        self.head = nn.Linear(width + width // 2, 1)

    def forward(self, user: Tensor, item: Tensor, liked: Tensor) -> Tensor:
        return f.binary_cross_entropy_with_logits(self.logits(user, item), liked)

    def logits(self, user: Tensor, item: Tensor) -> Tensor:
        product = self.user_factors(user) * self.item_factors(item)
        traits = torch.cat([self.user_traits(user), self.item_traits(item)], -1)
        return self.head(torch.cat([product, self.tower(traits)], -1)).squeeze(-1).float()

    def scores(self, user: Tensor, item: Tensor) -> Tensor:
        return self.logits(user, item).sigmoid()
