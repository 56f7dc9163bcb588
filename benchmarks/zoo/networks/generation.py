"""Networks whose results are pictures: generation, restoration, depth."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from benchmarks.zoo.catalogue import (
    Module,
    Network,
    Tensor,
    floats,
    integers,
    network,
    torch,
    unit,
)
from benchmarks.zoo.networks.classification import BATCHES, LARGER, ODD, PICTURES, pictures
from benchmarks.zoo.vision import opened

vision: Any = opened()
nn: Any = torch.nn
f: Any = torch.nn.functional


@network
def dcgan_generator() -> Network:
    """Radford et al. (2016), from noise to pictures of 32 by 32."""
    layers: list[Any] = []
    widths = (32, 64, 32, 16)
    for k, (a, b) in enumerate(pairwise(widths)):
        layers += [nn.ConvTranspose2d(a, b, 4, 2 if k else 1, 1 if k else 0, bias=False)]
        layers += [nn.BatchNorm2d(b), nn.ReLU()]
    made = nn.Sequential(*layers, nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh())
    return Network(made, {"noise": floats("batch", 32, 1, 1)}, BATCHES)


@network
def dcgan_discriminator() -> Network:
    """Its judge."""
    layers: list[Any] = [nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2)]
    layers += [nn.Conv2d(16, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.LeakyReLU(0.2)]
    layers += [nn.Conv2d(32, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.LeakyReLU(0.2)]
    return pictures(nn.Sequential(*layers, nn.Conv2d(64, 1, 4), nn.Flatten()), BATCHES, 32)


class VAE(Module):
    """A convolutional variational autoencoder; the noise is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GELU()
        )
        self.moments = nn.Linear(32 * 64, 2 * 16)
        self.start = nn.Linear(16, 32 * 64)
        self.decode = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(32, 16, 3, 1, 1), nn.GELU()
        )
        self.last = nn.ConvTranspose2d(16, 3, 2, 2)

    def forward(self, image: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.moments(self.encode(image).flatten(1)).chunk(2, -1)
        code = mean + torch.exp(0.5 * log_variance) * noise
        start = self.start(code).view(-1, 32, 8, 8)
        return torch.sigmoid(self.last(self.decode(start))), mean, log_variance


@network
def vae() -> Network:
    """Pictures of 32 by 32."""
    inputs = {"image": unit("batch", 3, 32, 32), "noise": floats("batch", 16)}
    return Network(VAE(), inputs, BATCHES)


class SubPixel(Module):
    """Shi et al. (2016): convolutions, then channels become pixels."""

    def __init__(self, factor: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(
                nn.Conv2d(1, 32, 5, padding=2),
                nn.Tanh(),
                nn.Conv2d(32, 16, 3, padding=1),
                nn.Tanh(),
            ),
            *(nn.Conv2d(16, factor**2, 3, padding=1), nn.PixelShuffle(factor)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@network
def super_resolution() -> Network:
    """Three times the height and width."""
    return Network(SubPixel(), {"image": unit("batch", 1, "height", "width")}, ODD)


class Restored(Module):
    """SRCNN: bicubic or bilinear enlargement, then convolutions, and the difference is added."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 9, padding=4), nn.PReLU(16), nn.Conv2d(16, 3, 5, padding=2)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = f.interpolate(x, scale_factor=2.0, mode=self.mode, align_corners=False)
        return torch.clamp(x + self.layers(x), 0, 1)


@network
def srcnn_bilinear() -> Network:
    """Bilinear, twice the size."""
    return pictures(Restored("bilinear"), ODD)


@network
def srcnn_bicubic() -> Network:
    """Bicubic, twice the size."""
    return pictures(Restored("bicubic"), ODD)


class StyleTransfer(Module):
    """Johnson et al. (2016): reflected borders, instance norms, nearest enlargement."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            *(
                nn.ReflectionPad2d(4),
                nn.Conv2d(3, 8, 9),
                nn.InstanceNorm2d(8, affine=True),
                nn.ReLU(),
            ),
            *(nn.ReflectionPad2d(1), nn.Conv2d(8, 16, 3, 2), nn.InstanceNorm2d(16, affine=True)),
        )
        self.inner = nn.Sequential(
            *(nn.ReflectionPad2d(1), nn.Conv2d(16, 16, 3), nn.InstanceNorm2d(16, affine=True)),
            *(nn.ReLU(), nn.ReflectionPad2d(1), nn.Conv2d(16, 16, 3)),
        )
        self.up = nn.Sequential(
            *(nn.Upsample(scale_factor=2, mode="nearest"), nn.ReflectionPad2d(4)),
            nn.Conv2d(16, 3, 9),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = f.relu(self.down(x))
        return self.up(x + self.inner(x))


@network
def style_transfer() -> Network:
    """Even sizes."""
    return pictures(StyleTransfer(), PICTURES)


class _TimedBlock(Module):
    """A residual block that a moment in time shifts."""

    def __init__(self, inputs: int, outputs: int, times: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(times, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(f.silu(self.norm1(x))) + self.time(f.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(f.silu(self.norm2(h)))


class _Attention2d(Module):
    """Self-attention over the places of a picture."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, width, high, wide = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(batch, 3, self.heads, -1, high * wide).unbind(1)
        h = f.scaled_dot_product_attention(*[each.transpose(-1, -2) for each in (q, k, v)])
        h = h.transpose(-1, -2).reshape(batch, width, high, wide)
        return x + self.out(h)


class DiffusionUNet(Module):
    """The noise in a picture at a moment (Ho et al., 2020)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        times = 4 * width
        self.register_buffer("rates", torch.exp(-torch.arange(width // 2) * 9.2 / (width // 2)))
        self.rates: Tensor
        self.time = nn.Sequential(nn.Linear(width, times), nn.SiLU(), nn.Linear(times, times))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down1 = _TimedBlock(width, width, times)
        self.smaller = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.down2 = _TimedBlock(2 * width, 2 * width, times)
        self.attention = _Attention2d(2 * width)
        self.inner = _TimedBlock(2 * width, 2 * width, times)
        self.larger = nn.Conv2d(4 * width, width, 3, padding=1)
        self.up = _TimedBlock(2 * width, width, times)
        self.last = nn.Sequential(
            nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, x: Tensor, moment: Tensor) -> Tensor:
        angles = moment.float()[:, None] * self.rates[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        one = self.down1(self.first(x), time)
        two = self.down2(self.smaller(one), time)
        two = torch.cat([two, self.inner(self.attention(two), time)], 1)
        up = self.larger(f.interpolate(two, scale_factor=2.0, mode="nearest"))
        return self.last(self.up(torch.cat([one, up], 1), time))


@network
def diffusion_unet() -> Network:
    """Even sizes, a moment for each picture."""
    sizes = {"batch": (1, 2, 3), "height": (16, 24, 32), "width": (24, 16, 32)}
    inputs = {
        "image": floats("batch", 3, "height", "width"),
        "moment": integers(1000, "batch"),
    }
    return Network(DiffusionUNet(), inputs, sizes)


class DepthEstimator(Module):
    """Encoder and decoder with bilinear enlargement; the inverse of a sigmoid is a distance."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, 2, 1), nn.ELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ELU())
        )
        self.decode = nn.Sequential(
            *(nn.UpsamplingBilinear2d(scale_factor=2), nn.ReflectionPad2d(1), nn.Conv2d(32, 16, 3)),
            *(nn.ELU(), nn.UpsamplingNearest2d(scale_factor=2), nn.ReflectionPad2d(1)),
            nn.Conv2d(16, 1, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return 1 / (0.01 + 9.99 * torch.sigmoid(self.decode(self.encode(x))))


@network
def monocular_depth() -> Network:
    """Multiples of 4."""
    return pictures(DepthEstimator(), LARGER)
