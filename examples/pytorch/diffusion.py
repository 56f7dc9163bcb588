"""The twin of `diffusion.dlm`: a network that tells the noise in a digit draws digits from noise."""

import copy
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


def timestep_embedding(t: Tensor, width: int) -> Tensor:
    half = width // 2
    angle = t[:, None] * torch.exp(torch.arange(half) * (-math.log(10000) / half))
    return torch.cat([angle.sin(), angle.cos()], -1)


class Diffusion(nn.Module):
    def __init__(self, hidden: int = 256, steps: int = 100) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.first = nn.Linear(64, hidden)
        self.middle = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(2)])
        self.last = nn.Linear(hidden, 64)
        self.register_buffer("beta", 1e-3 + torch.arange(steps) / steps * 0.1)
        self.register_buffer("left", torch.cumprod(1 - self.beta, 0))

    def noise(self, x: Tensor, t: Tensor) -> Tensor:
        s = self.time(timestep_embedding(t, 32))
        h = self.first(x)
        for layer in self.middle:
            h = h + F.silu(layer(h + s))
        return self.last(h)

    @torch.no_grad()
    def draw(self, B: int) -> Tensor:
        x = torch.randn(B, 64)
        for t in reversed(range(len(self.beta))):
            z = torch.randn(B, 64) if t > 0 else 0
            noise = self.noise(x, torch.full((B,), t))
            beta, left = self.beta[t], self.left[t]
            x = (x - beta * (1 - left).rsqrt() * noise) * (1 - beta).rsqrt() + beta.sqrt() * z
        return (0.5 + 0.5 * x).clamp(0, 1).view(B, 8, 8, 1)

    def loss(self, image: Tensor, t: Tensor, z: Tensor) -> Tensor:
        x = (image / 8 - 1).view(-1, 64)
        a = self.left[t][:, None]
        return F.mse_loss(self.noise(a.sqrt() * x + (1 - a).sqrt() * z, t), z)


def main(epochs: int = 30) -> None:
    torch.manual_seed(1)
    data = TensorDataset(torch.tensor(np.load("examples/data/digits.npz")["images"]))
    train, test = random_split(data, [0.8, 0.2])
    batches = DataLoader(train, 64, shuffle=True)
    model = Diffusion()
    average, step = copy.deepcopy(model), 0
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / (epochs * len(batches)))) / 2
    )

    def measured(of: Diffusion, image: Tensor) -> Tensor:
        return of.loss(image, torch.randint(100, (len(image),)), torch.randn(len(image), 64))

    for epoch in range(epochs):
        for (image,) in batches:
            optimizer.zero_grad()
            measured(model, image).backward()
            optimizer.step()
            schedule.step()
            step += 1
            with torch.no_grad():
                for kept, weight in zip(average.parameters(), model.parameters(), strict=True):
                    kept.lerp_(weight, 1 - min(0.99, (1 + step) / (10 + step)))
        with torch.no_grad():
            (image,) = next(iter(DataLoader(test, len(test))))
            print(f"epoch {epoch + 1}  test_loss {measured(average, image):.4f}")


if __name__ == "__main__":
    main()
