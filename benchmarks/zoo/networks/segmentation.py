"""U-Nets, by how what comes up is made to fit what it joins."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.catalogue import (
    Model,
    Module,
    Network,
    Tensor,
    network,
    torch,
)
from benchmarks.zoo.networks.classification import ODD, PICTURES, pictures
from benchmarks.zoo.vision import opened

vision: Any = opened()
nn: Any = torch.nn
f: Any = torch.nn.functional


def _twice(inputs: int, outputs: int, padding: int = 1) -> Model:
    layers = [nn.Conv2d(inputs, outputs, 3, padding=padding), nn.BatchNorm2d(outputs), nn.ReLU()]
    layers += [nn.Conv2d(outputs, outputs, 3, padding=padding), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(Module):
    """Ronneberger et al. (2015). What comes up is padded to the size of what it joins, or (`cropped`) the
    latter is cut, as in the paper."""

    def __init__(self, widths: tuple[int, ...] = (8, 16, 32), *, cropped: bool = False) -> None:
        super().__init__()
        padding = 0 if cropped else 1
        self.cropped = cropped
        pairs = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList([_twice(a, b, padding) for a, b in pairs])
        ups = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList([nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in ups])
        self.join = nn.ModuleList([_twice(2 * b, b, padding) for _, b in ups])
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for layer in self.down[:-1]:
            x = layer(x)
            kept.append(x)
            x = f.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join, strict=True):
            x, beside = up(x), kept.pop()
            high, wide = beside.shape[2] - x.shape[2], beside.shape[3] - x.shape[3]
            if self.cropped:
                top, left = high // 2, wide // 2
                beside = beside[:, :, top : top + x.shape[2], left : left + x.shape[3]]
            else:
                x = f.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
            x = join(torch.cat([beside, x], 1))
        return self.last(x)


@network
def unet_padded() -> Network:
    """Pictures of any size."""
    return pictures(UNet(), ODD)


@network
def unet_cropped() -> Network:
    """Convolutions without padding."""
    return pictures(UNet(cropped=True), ODD)


class PlainUNet(UNet):
    """No padding before joining: sizes must divide by 4."""

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for layer in self.down[:-1]:
            x = layer(x)
            kept.append(x)
            x = f.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


@network
def unet() -> Network:
    """Heights and widths are multiples of 4."""
    return pictures(PlainUNet(), PICTURES)


class ResizedUNet(UNet):
    """What comes up is resized bilinearly to the size of what it joins."""

    def __init__(self, widths: tuple[int, ...] = (8, 16, 32)) -> None:
        super().__init__(widths)
        ups = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList([nn.Conv2d(a, b, 1) for a, b in ups])

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for layer in self.down[:-1]:
            x = layer(x)
            kept.append(x)
            x = f.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join, strict=True):
            beside = kept.pop()
            resized = f.interpolate(
                up(x), size=beside.shape[2:], mode="bilinear", align_corners=True
            )
            x = join(torch.cat([beside, resized], 1))
        return self.last(x)


@network
def unet_resized() -> Network:
    """Pictures of any size."""
    return pictures(ResizedUNet(), ODD)
