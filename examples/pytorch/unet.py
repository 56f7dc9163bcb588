"""The twin of `unet.dlm`: a U-Net finds the ink of a digit under noise."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


class Double(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class UNet(nn.Module):
    def __init__(self, C: int = 8) -> None:
        super().__init__()
        self.down1 = Double(1, C)
        self.down2 = Double(C, 2 * C)
        self.bottom = Double(2 * C, 4 * C)
        self.up2 = nn.ConvTranspose2d(4 * C, 2 * C, 2, stride=2)
        self.join2 = Double(4 * C, 2 * C)
        self.up1 = nn.ConvTranspose2d(2 * C, C, 2, stride=2)
        self.join1 = Double(2 * C, C)
        self.out = nn.Conv2d(C, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        d = self.join2(torch.cat([b, self.up2(c)], 1))
        return self.out(self.join1(torch.cat([a, self.up1(d)], 1)))

    def loss(self, image: Tensor, z: Tensor) -> Tensor:
        image, z = image.permute(0, 3, 1, 2), z.permute(0, 3, 1, 2)
        ink = (image >= 8) * 1.0
        return F.binary_cross_entropy_with_logits(self(image / 16 + 0.5 * z), ink)


def main(epochs: int = 5) -> None:
    torch.manual_seed(1)
    data = TensorDataset(torch.tensor(np.load("examples/data/digits.npz")["images"]))
    train, test = random_split(data, [0.8, 0.2])
    batches = DataLoader(train, 32, shuffle=True)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / (epochs * len(batches)))) / 2
    )
    for epoch in range(epochs):
        model.train()
        for (image,) in batches:
            optimizer.zero_grad()
            model.loss(image, torch.randn(image.shape)).backward()
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            (image,) = next(iter(DataLoader(test, len(test))))
            loss = model.loss(image, torch.randn(image.shape))
        print(f"epoch {epoch + 1}  test_loss {loss:.4f}")


if __name__ == "__main__":
    main()
