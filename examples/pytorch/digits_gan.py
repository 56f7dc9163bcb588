"""The twin of `digits_gan.dlm`: one network draws digits, the other tells them from real ones."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class DigitsGAN(nn.Module):
    def __init__(self, noise: int = 16, hidden: int = 64) -> None:
        super().__init__()
        self.noise = noise
        self.generator = nn.Sequential(
            nn.Linear(noise, hidden), nn.ReLU(), nn.Linear(hidden, 64), nn.Sigmoid()
        )
        self.discriminator = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def belief(self, pixels: Tensor) -> Tensor:
        return self.discriminator(pixels).view(-1)

    def draw(self, z: Tensor) -> Tensor:
        return self.generator(z).view(-1, 8, 8, 1)

    def discriminate(self, image: Tensor, z: Tensor) -> Tensor:
        real = (image / 16).view(-1, 64)
        drawn = self.generator(z).detach()
        return (F.softplus(-self.belief(real)) + F.softplus(self.belief(drawn))).mean()

    def generate(self, image: Tensor, z: Tensor) -> Tensor:
        return F.softplus(-self.belief(self.generator(z))).mean()


def main(epochs: int = 1) -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.tensor(np.load("examples/data/digits.npz")["images"]))
    batches = DataLoader(data, 64, shuffle=True)
    model = DigitsGAN()
    settings = {"lr": 2e-4, "betas": (0.5, 0.999)}
    discriminator = torch.optim.Adam(model.discriminator.parameters(), **settings)
    generator = torch.optim.Adam(model.generator.parameters(), **settings)
    for epoch in range(epochs):
        for (image,) in batches:
            z = torch.randn(len(image), model.noise)
            discriminator.zero_grad()
            one = model.discriminate(image, z)
            one.backward()
            discriminator.step()
            z = torch.randn(len(image), model.noise)
            generator.zero_grad()
            other = model.generate(image, z)
            other.backward()
            generator.step()
        print(f"epoch {epoch + 1}  discriminate {one:.4f}  generate {other:.4f}")


if __name__ == "__main__":
    main()
