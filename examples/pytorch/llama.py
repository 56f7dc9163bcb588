"""The twin of `llama.dlm`: a decoder as Llama, with a cache of keys and values."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader


def rope(x: Tensor, begin: int, base: float = 10000.0) -> Tensor:
    half = x.shape[-1] // 2
    places = begin + torch.arange(x.shape[-2])
    angle = places[:, None] * base ** (-torch.arange(half) / half)
    (c, s), (a, b) = (angle.cos(), angle.sin()), x.chunk(2, -1)
    return torch.cat([a * c - b * s, a * s + b * c], -1)


class Cache:
    def __init__(self, B: int, G: int, S: int, W: int) -> None:
        self.keys, self.values, self.filled = torch.zeros(B, G, S, W), torch.zeros(B, G, S, W), 0

    def put(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        begin, self.filled = self.filled, self.filled + keys.shape[2]
        self.keys[:, :, begin : self.filled] = keys
        self.values[:, :, begin : self.filled] = values
        return self.keys[:, :, : self.filled], self.values[:, :, : self.filled]


class GroupedAttention(nn.Module):
    def __init__(self, D: int, H: int, G: int) -> None:
        super().__init__()
        self.W = D // H
        self.q = nn.Linear(D, D, bias=False)
        self.k = nn.Linear(D, G * self.W, bias=False)
        self.v = nn.Linear(D, G * self.W, bias=False)
        self.out = nn.Linear(D, D, bias=False)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        B, T, D = x.shape
        begin = cache.filled if cache else 0
        q, k, v = (m(x).view(B, T, -1, self.W).transpose(1, 2) for m in (self.q, self.k, self.v))
        q, k = rope(q, begin), rope(k, begin)
        if cache:
            k, v = cache.put(k, v)
        mask = torch.ones(T, k.shape[2], dtype=torch.bool).tril(k.shape[2] - T)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(B, T, D))


class Block(nn.Module):
    def __init__(self, D: int, H: int, G: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(D, eps=1e-5)
        self.attn = GroupedAttention(D, H, G)
        self.norm2 = nn.RMSNorm(D, eps=1e-5)
        self.gate = nn.Linear(D, hidden, bias=False)
        self.up = nn.Linear(D, hidden, bias=False)
        self.down = nn.Linear(hidden, D, bias=False)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        h = x + self.attn(self.norm1(x), cache)
        n = self.norm2(h)
        return h + self.down(F.silu(self.gate(n)) * self.up(n))


class Llama(nn.Module):
    def __init__(
        self, V: int = 32000, D: int = 512, H: int = 8, G: int = 2, L: int = 8, hidden: int = 1376
    ) -> None:
        super().__init__()
        self.tokens = nn.Parameter(0.02 * torch.randn(V, D))
        self.blocks = nn.ModuleList([Block(D, H, G, hidden) for _ in range(L)])
        self.last = nn.RMSNorm(D, eps=1e-5)
        self.head = nn.Linear(D, V, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens[ids]
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))

    @torch.no_grad()
    def step(self, ids: Tensor, caches: list[Cache]) -> Tensor:
        x = self.tokens[ids]
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache)
        return self.head(self.last(x[:, -1]))

    def loss(self, ids: Tensor) -> Tensor:
        return F.cross_entropy(self(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def main(epochs: int = 5) -> None:
    torch.manual_seed(1)
    with open("examples/data/shakespeare.txt", "rb") as file:
        windows = torch.tensor(list(file.read())).unfold(0, 65, 64)
    test, train = windows[-len(windows) // 10 :], windows[: -len(windows) // 10]
    batches = DataLoader(train, 32, shuffle=True)
    model = Llama(V=256, D=64, H=4, L=2, hidden=176)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(
            (step + 1) / 50, (1 + math.cos(math.pi * max(step - 50, 0) / (steps - 50))) / 2
        ),
    )
    for epoch in range(epochs):
        for ids in batches:
            optimizer.zero_grad()
            model.loss(ids).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            loss = model.loss(test)
        print(f"epoch {epoch + 1}  test_loss {loss:.4f}  bits_per_byte {loss / math.log(2):.4f}")


if __name__ == "__main__":
    main()
