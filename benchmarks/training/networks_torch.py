"""The networks of `benchmarks.training` for PyTorch, as its users write them.

Each is called with the batch and gives its loss. Submodules have the names that ours have, a `Sequential`
where we have a chain and a `ModuleList` where we have a stack: so weights find their places. Pictures come
as ours do, `[count, height, width, channels]`, which is PyTorch's `channels_last`. Weights may be of bf16,
but for those of batch norms: then all between the first layer and the scores is. The loss is of f32.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

# PyTorch is not installed where types are checked.
torch: Any = importlib.import_module("torch")
nn: Any = torch.nn
f: Any = torch.nn.functional
Tensor: TypeAlias = Any

if TYPE_CHECKING:

    class Module:
        """As much of PyTorch's as is used here."""

        def __call__(self, *given: Tensor) -> Tensor: ...
        def parameters(self) -> Iterator[Tensor]: ...
else:
    Module = nn.Module


class Pictures(Module):
    """Normalises bytes, puts channels where PyTorch has them, and classifies by `logits`."""

    def logits(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        return f.cross_entropy(self.scores(image), label)

    def scores(self, image: Tensor) -> Tensor:
        if not image.is_floating_point():
            image = image.float() / 128 - 1
        image = image.to(next(self.parameters()).dtype)
        return self.logits(image.permute(0, 3, 1, 2)).float()


class MLP(Module):
    def __init__(self, hidden: int = 1024) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(784, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 10),
        )

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        return f.cross_entropy(self.scores(image), label)

    def scores(self, image: Tensor) -> Tensor:
        return self.net(image.to(self.net[0].weight.dtype)).float()


# Residual networks --------------------------------------------------------------------------------


def conv(i: int, o: int, kernel: int, stride: int = 1, groups: int = 1) -> Module:
    """Without a bias, for a batch norm behind it."""
    return nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False)


def skip(i: int, o: int, stride: int) -> Module:
    """What the picture goes through around a residual block."""
    if stride == 1 and i == o:
        return nn.Identity()
    return nn.Sequential(conv(i, o, 1, stride), nn.BatchNorm2d(o))


class Residual(Module):
    def __init__(self, i: int, o: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv(i, o, 3, stride), nn.BatchNorm2d(o)
        self.conv2, self.norm2 = conv(o, o, 3), nn.BatchNorm2d(o)
        self.skip = skip(i, o, stride)

    def forward(self, x: Tensor) -> Tensor:
        h = f.relu(self.norm1(self.conv1(x)))
        return f.relu(self.norm2(self.conv2(h)) + self.skip(x))


class ResNet18(Pictures):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU())
        sizes = [(64, 64), (64, 128), (128, 256), (256, 512)]
        blocks = [
            block
            for i, o in sizes
            for block in (Residual(i, o, 1 if i == o else 2), Residual(o, o))
        ]
        self.stages = nn.Sequential(*blocks)
        self.head = nn.Linear(512, classes)

    def logits(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


class Bottleneck(Module):
    def __init__(self, i: int, m: int, stride: int = 1) -> None:
        super().__init__()
        self.down, self.norm1 = conv(i, m, 1), nn.BatchNorm2d(m)
        self.middle, self.norm2 = conv(m, m, 3, stride), nn.BatchNorm2d(m)
        self.up, self.norm3 = conv(m, 4 * m, 1), nn.BatchNorm2d(4 * m)
        self.skip = skip(i, 4 * m, stride)

    def forward(self, x: Tensor) -> Tensor:
        h = f.relu(self.norm1(self.down(x)))
        h = f.relu(self.norm2(self.middle(h)))
        return f.relu(self.norm3(self.up(h)) + self.skip(x))


class Stage(Module):
    """One block, and a stack of further ones."""

    def __init__(self, first: Module, rest: list[Module]) -> None:
        super().__init__()
        self.first, self.rest = first, nn.ModuleList(rest)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.rest:
            x = block(x)
        return x


class ResNet50(Pictures):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        sizes = [(64, 64, 3, 1), (256, 128, 4, 2), (512, 256, 6, 2), (1024, 512, 3, 2)]
        self.stages = nn.Sequential(
            *[
                Stage(Bottleneck(i, m, s), [Bottleneck(4 * m, m) for _ in range(n - 1)])
                for i, m, n, s in sizes
            ]
        )
        self.head = nn.Linear(2048, classes)

    def logits(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


# Further networks for pictures --------------------------------------------------------------------


def flattened(x: Tensor) -> Tensor:
    """Channels last, as our weights have them."""
    return x.permute(0, 2, 3, 1).flatten(1)


class AlexNet(Pictures):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, 1, 2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, 1, 1),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
        )
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(6 * 6 * 256, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Linear(4096, classes),
        )

    def logits(self, x: Tensor) -> Tensor:
        return self.head(flattened(self.features(x)))


class Convolutions(Module):
    """n convolutions to o channels, then a picture of half the size."""

    def __init__(self, i: int, o: int, n: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(i, o, 3, 1, 1)
        self.rest = nn.ModuleList([nn.Conv2d(o, o, 3, 1, 1) for _ in range(n - 1)])

    def forward(self, x: Tensor) -> Tensor:
        x = f.relu(self.first(x))
        for layer in self.rest:
            x = f.relu(layer(x))
        return f.max_pool2d(x, 2)


class VGG19(Pictures):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        sizes = [(3, 64, 2), (64, 128, 2), (128, 256, 4), (256, 512, 4), (512, 512, 4)]
        self.features = nn.Sequential(*[Convolutions(*size) for size in sizes])
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(7 * 7 * 512, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, classes),
        )

    def logits(self, x: Tensor) -> Tensor:
        return self.head(flattened(self.features(x)))


class Separable(Module):
    def __init__(self, i: int, o: int, stride: int = 1) -> None:
        super().__init__()
        self.depth, self.norm1 = conv(i, i, 3, stride, i), nn.BatchNorm2d(i)
        self.point, self.norm2 = conv(i, o, 1), nn.BatchNorm2d(o)

    def forward(self, x: Tensor) -> Tensor:
        x = f.relu(self.norm1(self.depth(x)))
        return f.relu(self.norm2(self.point(x)))


class MobileNetV1(Pictures):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        sizes = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
        blocks = [Separable(*size) for size in [*sizes, (256, 512, 2)]]
        self.stem = nn.Sequential(conv(3, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU(), *blocks)
        self.middle = nn.ModuleList([Separable(512, 512) for _ in range(5)])
        self.last = nn.Sequential(Separable(512, 1024, 2), Separable(1024, 1024))
        self.head = nn.Linear(1024, classes)

    def logits(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.middle:
            x = block(x)
        return self.head(self.last(x).mean((2, 3)))


class Normed(Module):
    """A convolution, normalised, and cut at 0 and 6."""

    def __init__(self, i: int, o: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.filter = conv(i, o, kernel, stride, groups)
        self.normed = nn.BatchNorm2d(o)

    def forward(self, x: Tensor) -> Tensor:
        return f.relu6(self.normed(self.filter(x)))


class Inverted(Module):
    def __init__(self, i: int, o: int, widen: int, stride: int = 1) -> None:
        super().__init__()
        wide = widen * i
        self.up = nn.Identity() if widen == 1 else Normed(i, wide, 1)
        self.depth = Normed(wide, wide, 3, stride, wide)
        self.down, self.normed = conv(wide, o, 1), nn.BatchNorm2d(o)
        self.adds = stride == 1 and i == o

    def forward(self, x: Tensor) -> Tensor:
        h = self.normed(self.down(self.depth(self.up(x))))
        return x + h if self.adds else h


class MobileNetV2(Pictures):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        sizes = [(32, 16, 1, 1, 1), (16, 24, 2, 6, 2), (24, 32, 3, 6, 2), (32, 64, 4, 6, 2)]
        sizes += [(64, 96, 3, 6, 1), (96, 160, 3, 6, 2), (160, 320, 1, 6, 1)]
        stages = [
            Stage(Inverted(i, o, w, s), [Inverted(o, o, w) for _ in range(n - 1)])
            for i, o, n, w, s in sizes
        ]
        self.features = nn.Sequential(Normed(3, 32, 3, 2), *stages, Normed(320, 1280, 1))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def logits(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))
