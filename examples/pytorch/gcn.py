"""The twin of `gcn.dlm`: graph convolutions classify digits of which one label in ten is known."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GCN(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.w = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.b = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        degree = 1 + torch.zeros(len(x)).index_add(0, dst, torch.ones(len(dst)))
        h = (x @ self.w) * degree.rsqrt()[:, None]
        return (h.index_add(0, dst, h[src])) * degree.rsqrt()[:, None] + self.b


class GraphNet(nn.Module):
    def __init__(self, hidden: int = 32, k: int = 4) -> None:
        super().__init__()
        self.k = k
        self.gcn1 = GCN(64, hidden)
        self.drop = nn.Dropout(0.5)
        self.gcn2 = GCN(hidden, 10)

    def forward(self, x: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        return self.gcn2(self.drop(self.gcn1(x, src, dst).relu()), src, dst)

    def neighbours(self, x: Tensor) -> tuple[Tensor, Tensor]:
        near = torch.cdist(x, x).fill_diagonal_(torch.inf).topk(self.k, largest=False).indices
        return near.flatten(), torch.arange(len(x)).repeat_interleave(self.k)

    def loss(self, image: Tensor, label: Tensor) -> Tensor:
        x = (image / 16).view(-1, 64)
        known = torch.arange(len(x)) % 10 == 0
        return F.cross_entropy(self(x, *self.neighbours(x))[known], label[known])


def main(epochs: int = 100) -> None:
    torch.manual_seed(1)
    digits = np.load("examples/data/digits.npz")
    order = torch.randperm(1797)
    image = torch.tensor(digits["images"])[order]
    label = torch.tensor(digits["labels"]).long()[order]
    model = GraphNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    for epoch in range(epochs):
        model.train()
        optimizer.zero_grad()
        loss = model.loss(image[:899], label[:899])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            x = (image[899:] / 16).view(-1, 64)
            right = model(x, *model.neighbours(x)).argmax(-1) == label[899:]
        print(f"epoch {epoch + 1}  loss {loss:.4f}  test_accuracy {right.double().mean():.4f}")


if __name__ == "__main__":
    main()
