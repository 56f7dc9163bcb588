"""The twin of `vae.dlm`: a variational autoencoder of handwritten digits."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class VAE(nn.Module):
    def __init__(self, hidden: int = 128, code: int = 8) -> None:
        super().__init__()
        self.code = code
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, 64))

    def draw(self, z: Tensor) -> Tensor:
        return self.decoder(z).sigmoid().view(-1, 8, 8, 1)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        m, v = self.encoder(x).chunk(2, -1)
        return m, v

    def loss(self, image: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = (image / 16).view(-1, 64)
        m, v = self.encode(x)
        logits = self.decoder(m + (v / 2).exp() * z)
        fit = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        divergence = (v.exp() + m**2 - 1 - v).sum(-1).mean() / 2
        return fit + divergence, fit, divergence


def main(epochs: int = 20) -> None:
    torch.manual_seed(1)
    data = TensorDataset(torch.tensor(np.load("examples/data/digits.npz")["images"]))
    train, test = random_split(data, [0.8, 0.2])
    batches = DataLoader(train, 32, shuffle=True)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        for (image,) in batches:
            optimizer.zero_grad()
            model.loss(image, torch.randn(len(image), model.code))[0].backward()
            optimizer.step()
        with torch.no_grad():
            (image,) = next(iter(DataLoader(test, len(test))))
            loss, fit, divergence = model.loss(image, torch.randn(len(image), model.code))
        print(f"epoch {epoch + 1}  {loss:.4f} = {fit:.4f} + {divergence:.4f}")


if __name__ == "__main__":
    main()
