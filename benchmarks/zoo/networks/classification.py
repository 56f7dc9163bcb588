"""torchvision's classification networks, with ten classes; the heavy ones with fewer or narrower layers."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.catalogue import Module, Network, add, floats, network, torch
from benchmarks.zoo.vision import opened

models: Any = opened().models

PICTURES = {"batch": (1, 2, 3), "height": (64, 96, 160), "width": (96, 96, 128)}
LARGER = {"batch": (1, 2, 3), "height": (96, 128, 160), "width": (128, 160, 128)}
ODD = {"batch": (1, 2, 3), "height": (75, 101, 130), "width": (99, 97, 83)}
"""Sizes of pictures that no stride divides."""
BATCHES = {"batch": (1, 2, 5)}


def pictures(
    module: Module, sizes: dict[str, tuple[int, int, int]], height: int | str = "height"
) -> Network:
    """A network from pictures of any height and width, or of a number for both."""
    width = "width" if isinstance(height, str) else height
    return Network(module, {"image": floats("batch", 3, height, width)}, sizes)


def published(name: str, sizes: dict[str, tuple[int, int, int]], **settings: object) -> None:
    """A network of torchvision as it is, for pictures of any size."""
    add(name, lambda: pictures(models.get_model(name, num_classes=10, **settings), sizes))


for each in ("mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5", "regnet_y_400mf"):
    published(each, PICTURES)
for each in ("resnet18", "mobilenet_v3_large", "mnasnet0_5", "efficientnet_b0", "regnet_x_400mf"):
    published(each, ODD)
for each in ("squeezenet1_0", "squeezenet1_1", "densenet121", "shufflenet_v2_x1_0"):
    published(each, LARGER)
published("googlenet", LARGER, aux_logits=False, init_weights=False)
published("inception_v3", LARGER, aux_logits=False, init_weights=False)


@network
def resnet_bottleneck() -> Network:
    """ResNet-50's block, one in each stage."""
    resnet = models.resnet
    return pictures(resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], num_classes=10), PICTURES)


@network
def resnext_dilated() -> Network:
    """Groups, and strides replaced by dilation, as segmentation has them."""
    resnet = models.resnet
    settings = {"groups": 8, "width_per_group": 4, "num_classes": 10}
    dilated = [False, True, True]
    made = resnet.ResNet(
        resnet.Bottleneck, [1, 1, 1, 1], replace_stride_with_dilation=dilated, **settings
    )
    return pictures(made, ODD)


@network
def vgg_bn() -> Network:
    """VGG-11 with batch norms, an eighth as wide, for pictures of one size."""
    widths = [8, "M", 16, "M", 32, 32, "M", 64, 64, "M", 64, 64, "M"]
    made = models.VGG(models.vgg.make_layers(widths, batch_norm=True), num_classes=10)
    made.classifier = torch.nn.Sequential(
        torch.nn.Linear(64 * 49, 64), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(64, 10)
    )
    return pictures(made, BATCHES, 224)


@network
def alexnet() -> Network:
    """AlexNet with a narrower head, for pictures of one size."""
    made = models.alexnet(num_classes=10)
    made.classifier = torch.nn.Sequential(
        torch.nn.Linear(256 * 36, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    )
    return pictures(made, BATCHES, 224)


@network
def convnext() -> Network:
    """Four stages of one block each."""
    config = models.convnext.CNBlockConfig
    stages = [config(24, 48, 1), config(48, 96, 1), config(96, 192, 1), config(192, None, 1)]
    return pictures(models.ConvNeXt(stages, num_classes=10), PICTURES)


@network
def efficientnet_v2() -> Network:
    """Fused and plain inverted bottlenecks."""
    eff = models.efficientnet
    stages = [
        eff.FusedMBConvConfig(1, 3, 1, 24, 24, 1),
        eff.FusedMBConvConfig(4, 3, 2, 24, 48, 1),
        eff.MBConvConfig(4, 3, 2, 48, 64, 2),
        eff.MBConvConfig(6, 3, 2, 64, 96, 1),
    ]
    return pictures(models.EfficientNet(stages, dropout=0.1, num_classes=10), PICTURES)


@network
def swin_v1() -> Network:
    """Shifted windows over pictures of any size, which are padded."""
    made = models.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10)
    return pictures(made, PICTURES)


@network
def swin_v1_one_size() -> Network:
    """Pictures of one size, batches of any."""
    made = models.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10)
    return pictures(made, BATCHES, 64)


@network
def swin_v2() -> Network:
    """Cosine attention and continuous position biases."""
    swin = models.swin_transformer
    made = swin.SwinTransformer(
        [4, 4],
        24,
        [2, 2],
        [2, 4],
        [4, 4],
        num_classes=10,
        block=swin.SwinTransformerBlockV2,
        downsample_layer=swin.PatchMergingV2,
    )
    return pictures(made, BATCHES, 64)


@network
def vision_transformer() -> Network:
    """ViT with patches of 16, batches of any size."""
    made = models.VisionTransformer(64, 16, 2, 4, 64, 128, num_classes=10)
    return pictures(made, BATCHES, 64)


@network
def maxvit() -> Network:
    """Attention over windows and over grids."""
    made = models.MaxVit((64, 64), 16, 4, [32, 64], [1, 1], 16, 0.1, num_classes=10)
    return pictures(made, BATCHES, 64)
