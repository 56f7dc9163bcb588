"""The twin of `vit.dlm`: a vision transformer reads handwritten digits as sixteen patches."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class Attention(nn.Module):
    def __init__(self, D: int, H: int) -> None:
        super().__init__()
        self.H = H
        self.qkv = nn.Linear(D, 3 * D)
        self.out = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.H, D // self.H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(B, T, D))


class Block(nn.Module):
    def __init__(self, D: int, H: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(D)
        self.attn = Attention(D, H)
        self.norm2 = nn.LayerNorm(D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.attn(self.norm1(x))
        return y + self.mlp(self.norm2(y))


class ViT(nn.Module):
    def __init__(self, D: int = 48, H: int = 4, L: int = 3, P: int = 2) -> None:
        super().__init__()
        self.P = P
        self.class_token = nn.Parameter(0.02 * torch.randn(D))
        self.embed = nn.Linear(P * P, D)
        self.positions = nn.Embedding((8 // P) ** 2 + 1, D)
        self.blocks = nn.ModuleList([Block(D, H) for _ in range(L)])
        self.last = nn.LayerNorm(D)
        self.head = nn.Linear(D, 10)

    def forward(self, image: Tensor) -> Tensor:
        B, P = len(image), self.P
        pieces = (image / 16).view(B, 8 // P, P, 8 // P, P).transpose(2, 3).reshape(B, -1, P * P)
        x = torch.cat([self.class_token.expand(B, 1, -1), self.embed(pieces)], 1)
        x = x + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x[:, 0]))

    def loss(self, image: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self(image), label)


def main(epochs: int = 15) -> None:
    torch.manual_seed(1)
    digits = np.load("examples/data/digits.npz")
    data = TensorDataset(torch.tensor(digits["images"]), torch.tensor(digits["labels"]).long())
    train, test = random_split(data, [0.8, 0.2])
    batches = DataLoader(train, 32, shuffle=True)
    model = ViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(
            (step + 1) / 45, (1 + math.cos(math.pi * max(step - 45, 0) / (steps - 45))) / 2
        ),
    )
    for epoch in range(epochs):
        model.train()
        for image, label in batches:
            optimizer.zero_grad()
            loss = model.loss(image, label)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1)
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            image, label = next(iter(DataLoader(test, len(test))))
            accuracy = (model(image).argmax(-1) == label).double().mean()
        print(f"epoch {epoch + 1}  loss {loss:.4f}  test_accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
