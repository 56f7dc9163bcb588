"""Networks that say where something is: segmentation and detection."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.catalogue import (
    Model,
    Module,
    Network,
    Tensor,
    floats,
    network,
    torch,
    unit,
)
from benchmarks.zoo.networks.classification import ODD, PICTURES, pictures
from benchmarks.zoo.vision import opened

vision: Any = opened()
nn: Any = torch.nn
f: Any = torch.nn.functional

PLAIN: dict[str, Any] = {"weights": None, "weights_backbone": None}


class Segmented(Module):
    """The pictures of a network of torchvision, without their dictionary."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        return self.model(image)["out"]


@network
def lraspp_mobilenet() -> Network:
    """Lite R-ASPP over MobileNet v3."""
    made = vision.models.segmentation.lraspp_mobilenet_v3_large(num_classes=5, **PLAIN)
    return Network(Segmented(made), {"image": floats("batch", 3, "height", "width")}, ODD)


@network
def deeplab_mobilenet() -> Network:
    """DeepLab v3 over MobileNet v3: pyramids of dilated convolutions."""
    made = vision.models.segmentation.deeplabv3_mobilenet_v3_large(num_classes=5, **PLAIN)
    return Network(Segmented(made), {"image": floats("batch", 3, "height", "width")}, ODD)


@network
def fcn_resnet() -> Network:
    """A fully convolutional network over a ResNet of one block a stage."""
    models = vision.models
    resnet = models.resnet.ResNet(
        models.resnet.Bottleneck, [1, 1, 1, 1], replace_stride_with_dilation=[False, True, True]
    )
    features = models._utils.IntermediateLayerGetter(resnet, {"layer3": "out"})
    fcn = models.segmentation.fcn
    made = fcn.FCN(features, fcn.FCNHead(1024, 5), None)
    return Network(Segmented(made), {"image": floats("batch", 3, "height", "width")}, ODD)


@network
def ssdlite_mobilenet() -> Network:
    """SSDlite: anchors, and suppression of boxes that overlap."""
    few = {"topk_candidates": 20, "detections_per_img": 20}  # of many, scores would be nearly equal
    made = vision.models.detection.ssdlite320_mobilenet_v3_large(num_classes=5, **few, **PLAIN)
    _normalize(made)
    return Network(_One(made), {"image": unit(3, "height", "width")}, DETECTION)


@network
def retinanet() -> Network:
    """RetinaNet over a pyramid of features."""
    models = vision.models
    few = {"topk_candidates": 20, "detections_per_img": 20, "score_thresh": 0.005}
    made = models.detection.RetinaNet(
        _pyramid(), num_classes=5, anchor_generator=_anchors(), **few, **PICTURE
    )
    with torch.no_grad():  # as they are made, all scores would be alike
        made.head.classification_head.cls_logits.weight.mul_(30)
    return Network(_One(made), {"image": unit(3, "height", "width")}, DETECTION)


@network
def faster_rcnn() -> Network:
    """Faster R-CNN: proposals, regions of interest, and their classes."""
    made = vision.models.detection.FasterRCNN(_pyramid(), num_classes=5, **PICTURE)
    return Network(_One(made), {"image": unit(3, "height", "width")}, DETECTION)


@network
def mask_rcnn() -> Network:
    """Mask R-CNN: a mask for each box beside it."""
    few = {"box_detections_per_img": 10}
    made = vision.models.detection.MaskRCNN(_pyramid(), num_classes=5, **few, **PICTURE)
    return Network(_One(made, "masks"), {"image": unit(3, "height", "width")}, DETECTION)


@network
def keypoint_rcnn() -> Network:
    """Keypoint R-CNN: places of points in each box, where a map that is stretched to it is largest."""
    heads = vision.models.detection.keypoint_rcnn
    made = heads.KeypointRCNN(
        _pyramid(),
        num_classes=2,
        keypoint_head=heads.KeypointRCNNHeads(32, (16, 16)),
        keypoint_predictor=heads.KeypointRCNNPredictor(16, 5),
        box_detections_per_img=10,
        **PICTURE,
    )
    names = "keypoints", "keypoints_scores"
    return Network(_One(made, *names), {"image": unit(3, "height", "width")}, DETECTION)


@network
def fcos() -> Network:
    """FCOS: boxes from distances to their sides, without anchors of several shapes."""
    models = vision.models
    few = {"topk_candidates": 20, "detections_per_img": 20, "score_thresh": 0.05}
    made = models.detection.FCOS(
        _pyramid(), num_classes=5, anchor_generator=_squares(), **few, **PICTURE
    )
    return Network(_One(made), {"image": unit(3, "height", "width")}, DETECTION)


PICTURE = {"min_size": 96, "max_size": 160}
DETECTION = {"height": (96, 120, 160), "width": (128, 160, 160)}


def _pyramid() -> Model:
    models = vision.models
    resnet = models.resnet.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1])
    return models.detection.backbone_utils.BackboneWithFPN(
        resnet,
        {"layer1": "0", "layer2": "1", "layer3": "2", "layer4": "3"},
        [64, 128, 256, 512],
        32,
    )


def _anchors() -> Model:
    generator = vision.models.detection.anchor_utils.AnchorGenerator
    sizes = tuple([(8 * 2**k,) for k in range(5)])
    return generator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))


def _normalize(detector: Model) -> None:
    """Give batch norms the statistics of a picture: as they are made, all scores would be alike."""
    norms = [part for part in detector.modules() if isinstance(part, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    detector.train()
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        features = detector.backbone(torch.rand(2, 3, 320, 320))
        detector.head(list(features.values()))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def _squares() -> Model:
    generator = vision.models.detection.anchor_utils.AnchorGenerator
    return generator(tuple([(8 * 2**k,) for k in range(5)]), ((1.0,),) * 5)


class _One(Module):
    """A detector of torchvision takes a list of pictures; this takes one, and gives no dictionary."""

    def __init__(self, detector: Model, *more: str) -> None:
        super().__init__()
        self.detector = detector
        self.results = ("boxes", "scores", "labels", *more)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        (found,) = self.detector([image])
        return tuple([found[name] for name in self.results])


class Pyramid(Module):
    """A feature pyramid (Lin et al., 2017) with nearest resizing to the size of the level below."""

    def __init__(self) -> None:
        super().__init__()
        widths = (8, 16, 32, 64)
        pairs = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList([nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairs])
        self.side = nn.ModuleList([nn.Conv2d(b, 16, 1) for _, b in pairs])
        self.out = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1) for _ in pairs])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        levels: list[Tensor] = []
        for layer in self.down:
            x = f.relu(layer(x))
            levels.append(x)
        merged = [side(level) for side, level in zip(self.side, levels, strict=True)]
        for k in range(len(merged) - 2, -1, -1):
            size = merged[k].shape[-2:]
            merged[k] = merged[k] + f.interpolate(merged[k + 1], size=size, mode="nearest")
        return tuple([out(level) for out, level in zip(self.out, merged, strict=True)])


@network
def feature_pyramid() -> Network:
    """Four levels."""
    return pictures(Pyramid(), ODD)


class _ConvSiLU(Module):
    def __init__(self, inputs: int, outputs: int, size: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return f.silu(self.norm(self.conv(x)))


class _CSP(Module):
    """Two halves of the channels, one of which goes through bottlenecks; all are joined (YOLOv8's C2f)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = _ConvSiLU(width, width, 1)
        self.inner = nn.Sequential(
            _ConvSiLU(width // 2, width // 2), _ConvSiLU(width // 2, width // 2)
        )
        self.last = _ConvSiLU(width * 3 // 2, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.first(x).chunk(2, 1)
        return self.last(torch.cat([one, other, other + self.inner(other)], 1))


class Yolo(Module):
    """An anchor-free detector: pyramid pooling, two levels, boxes from distributions of distances."""

    def __init__(self, classes: int = 6, bins: int = 8) -> None:
        super().__init__()
        self.classes, self.bins = classes, bins
        self.stem = nn.Sequential(_ConvSiLU(3, 8, 3, 2), _ConvSiLU(8, 16, 3, 2), _CSP(16))
        self.third = nn.Sequential(_ConvSiLU(16, 32, 3, 2), _CSP(32))
        self.fourth = nn.Sequential(_ConvSiLU(32, 64, 3, 2), _CSP(64))
        self.pool = _ConvSiLU(64 * 4, 64, 1)
        self.merge = nn.Sequential(_ConvSiLU(96, 32, 1), _CSP(32))
        self.heads = nn.ModuleList([nn.Conv2d(w, 4 * bins + classes, 1) for w in (32, 64)])
        self.bin: Tensor
        self.register_buffer("bin", torch.arange(bins, dtype=torch.float32).reshape(1, 1, bins, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        third = self.third(self.stem(x))
        fourth = self.fourth(third)
        pools = [fourth]
        for _ in range(3):
            pools.append(f.max_pool2d(pools[-1], 5, 1, 2))
        fourth = self.pool(torch.cat(pools, 1))
        third = self.merge(torch.cat([third, f.interpolate(fourth, scale_factor=2.0)], 1))
        boxes: list[Tensor] = []
        scores: list[Tensor] = []
        for stride, head, level in zip((8, 16), self.heads, (third, fourth), strict=True):
            box, score = self.decoded(head(level), stride)
            boxes.append(box)
            scores.append(score)
        return torch.cat(boxes, 2), torch.cat(scores, 2)

    def decoded(self, x: Tensor, stride: int) -> tuple[Tensor, Tensor]:
        batch, _, height, width = x.shape
        box, score = x.flatten(2).split([4 * self.bins, self.classes], 1)
        distances = (box.reshape(batch, 4, self.bins, -1).softmax(2) * self.bin).sum(2)
        y, x0 = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centre = torch.stack([x0, y]).reshape(1, 2, -1) + 0.5
        low, high = centre - distances[:, :2], centre + distances[:, 2:]
        return torch.cat([low, high], 1) * stride, score.sigmoid()


@network
def yolo() -> Network:
    """Any size that 16 divides."""
    return pictures(Yolo(), PICTURES)
