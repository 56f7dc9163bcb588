"""The twin of `digits_lion.dlm`: Lion trains a classifier of digits, whose labels are smoothed."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class Lion(torch.optim.Optimizer):
    """Chen et al., 2023; PyTorch has none."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - lr * group["weight_decay"])
                p.sub_(lr * torch.sign(beta1 * m + (1 - beta1) * p.grad))
                m.lerp_(p.grad, 1 - beta2)


class Residual(nn.Module):
    def __init__(self, D: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.up = nn.Linear(D, 2 * D)
        self.down = nn.Linear(2 * D, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.silu(self.up(self.norm(x))))


class Classifier(nn.Module):
    def __init__(self, D: int = 64, L: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(64, D)
        self.blocks = nn.ModuleList([Residual(D) for _ in range(L)])
        self.head = nn.Linear(D, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.embed((image / 16).view(-1, 64))
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def loss(self, image: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self(image), label, label_smoothing=0.1)


def main(epochs: int = 10) -> None:
    torch.manual_seed(1)
    digits = np.load("examples/data/digits.npz")
    data = TensorDataset(torch.tensor(digits["images"]), torch.tensor(digits["labels"]).long())
    train, test = random_split(data, [0.8, 0.2])
    batches = DataLoader(train, 32, shuffle=True)
    model = Classifier()
    optimizer = Lion(model.parameters(), lr=5e-4, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / (epochs * len(batches)))) / 2
    )
    for epoch in range(epochs):
        for image, label in batches:
            optimizer.zero_grad()
            loss = model.loss(image, label)
            loss.backward()
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            image, label = next(iter(DataLoader(test, len(test))))
            accuracy = (model(image).argmax(-1) == label).double().mean()
        print(f"epoch {epoch + 1}  loss {loss:.4f}  test_accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
