"""The twin of `contrastive.dlm`: two encoders find which halves of digits belong together."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class Halves(nn.Module):
    def __init__(self, hidden: int = 128, code: int = 32) -> None:
        super().__init__()
        self.upper = nn.Sequential(nn.Linear(32, hidden), nn.ReLU(), nn.Linear(hidden, code))
        self.lower = nn.Sequential(nn.Linear(32, hidden), nn.ReLU(), nn.Linear(hidden, code))
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def encode(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = (image / 16).view(-1, 64)
        return F.normalize(self.upper(x[:, :32])), F.normalize(self.lower(x[:, 32:]))

    def loss(self, image: Tensor) -> Tensor:
        above, below = self.encode(image)
        logits = self.log_scale.exp() * above @ below.T
        each = torch.arange(len(image))
        return (F.cross_entropy(logits, each) + F.cross_entropy(logits.T, each)) / 2


def main(epochs: int = 10) -> None:
    torch.manual_seed(1)
    data = TensorDataset(torch.tensor(np.load("examples/data/digits.npz")["images"]))
    train, test = random_split(data, [0.8, 0.2])
    batches = DataLoader(train, 64, shuffle=True)
    model = Halves()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        for (image,) in batches:
            optimizer.zero_grad()
            loss = model.loss(image)
            loss.backward()
            optimizer.step()
        right = []
        with torch.no_grad():
            for (image,) in DataLoader(test, 64):
                above, below = model.encode(image)
                right.append((above @ below.T).argmax(-1) == torch.arange(len(image)))
        found = torch.cat(right).double().mean()
        print(f"epoch {epoch + 1}  loss {loss:.4f}  test_found {found:.4f}")


if __name__ == "__main__":
    main()
