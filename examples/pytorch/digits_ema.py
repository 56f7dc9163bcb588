"""The twin of `digits_ema.dlm`: gradients of four batches in a step, and an average of the weights."""

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class Small(nn.Module):
    def __init__(self, C: int = 32) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, C, 3, padding=1),
            nn.GroupNorm(4, C),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(C, 2 * C, 3, padding=1),
            nn.GroupNorm(4, 2 * C),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * C, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.net((image / 16).permute(0, 3, 1, 2)).mean((2, 3)))

    def loss(self, image: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self(image), label)


def main(epochs: int = 8, accumulate: int = 4, decay: float = 0.99, patience: int = 3) -> None:
    torch.manual_seed(1)
    digits = np.load("examples/data/digits.npz")
    data = TensorDataset(torch.tensor(digits["images"]), torch.tensor(digits["labels"]).long())
    train, test = random_split(data, [0.8, 0.2])
    batches = DataLoader(train, 8, shuffle=True, drop_last=True)
    model = Small()
    average, step = copy.deepcopy(model), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    best, waited = float("inf"), 0
    for epoch in range(epochs):
        for number, (image, label) in enumerate(batches, 1):
            (model.loss(image, label) / accumulate).backward()
            if number % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                with torch.no_grad():
                    for kept, weight in zip(average.parameters(), model.parameters(), strict=True):
                        kept.lerp_(weight, 1 - min(decay, (1 + step) / (10 + step)))
        with torch.no_grad():
            image, label = next(iter(DataLoader(test, len(test))))
            loss = average.loss(image, label).item()
            accuracy = (average(image).argmax(-1) == label).double().mean()
        print(f"epoch {epoch + 1}  test_loss {loss:.4f}  test_accuracy {accuracy:.4f}")
        best, waited = (loss, 0) if loss < best else (best, waited + 1)
        if waited == patience:
            break


if __name__ == "__main__":
    main()
