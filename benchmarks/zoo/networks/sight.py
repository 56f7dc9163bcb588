"""transformers' networks over pictures, with random weights."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.catalogue import (
    Input,
    Model,
    Module,
    Named,
    Network,
    Tensor,
    add,
    floats,
    mask,
    network,
)
from benchmarks.zoo.networks.language import NARROW, WORDS, made, tokens

ONE = {"batch": (1, 2, 5)}
ANY = {"batch": (1, 2, 3), "height": (64, 96, 128), "width": (96, 64, 160)}

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
PATCHED = {**SMALL, "image_size": 64, "patch_size": 16}


def seen(
    name: str,
    config: str,
    model: str,
    size: int | None = None,
    constants: dict[str, object] | None = None,
    /,
    **settings: object,
) -> None:
    """Enter a network into the catalogue: for pictures of one size, or (without) of any."""

    def make() -> Network:
        sizes: tuple[int | str, int | str] = ("height", "width") if size is None else (size, size)
        inputs = {"pixel_values": floats("batch", 3, *sizes)}
        module = made(config, model, **settings)
        called = Named(module, list(inputs), {"return_dict": False, **(constants or {})})
        return Network(called, inputs, ANY if size is None else ONE)

    add(name, make)


FREE: dict[str, object] = {"interpolate_pos_encoding": True}
"""Position embeddings are resized for pictures of other sizes."""

seen("vit", "ViT", "ViTForImageClassification", 64, **PATCHED)
seen("vit_any_size", "ViT", "ViTModel", None, FREE, **PATCHED)
seen("deit", "DeiT", "DeiTForImageClassification", 64, **PATCHED)
seen("beit", "Beit", "BeitForImageClassification", 64, **PATCHED, use_relative_position_bias=True)
seen("data2vec_vision", "Data2VecVision", "Data2VecVisionModel", 64, **PATCHED)
seen("dinov2", "Dinov2", "Dinov2Model", 64, **{**SMALL, "image_size": 64, "patch_size": 16})
seen("dinov2_any_size", "Dinov2", "Dinov2Model", **{**SMALL, "image_size": 64, "patch_size": 16})
seen("ijepa", "IJepa", "IJepaModel", 64, **PATCHED)
seen("vit_msn", "ViTMSN", "ViTMSNModel", 64, **PATCHED)
seen("pvt", "Pvt", "PvtForImageClassification", 64, image_size=64, depths=[1, 1, 1, 1],
     hidden_sizes=[16, 32, 40, 64], num_attention_heads=[1, 2, 5, 8])  # fmt: skip
seen("poolformer", "PoolFormer", "PoolFormerModel", depths=[1, 1, 1, 1],
     hidden_sizes=[16, 32, 40, 64])  # fmt: skip
seen("swin", "Swin", "SwinForImageClassification", 64, image_size=64, embed_dim=24, depths=[2, 2],
     num_heads=[2, 4], window_size=4)  # fmt: skip
seen("swin_any_size", "Swin", "SwinModel", None, image_size=64, embed_dim=24, depths=[2, 2],
     num_heads=[2, 4], window_size=4)  # fmt: skip
seen("swinv2", "Swinv2", "Swinv2Model", 64, image_size=64, embed_dim=24, depths=[2, 2],
     num_heads=[2, 4], window_size=4)  # fmt: skip
seen("swin_super_resolution", "Swin2SR", "Swin2SRForImageSuperResolution", 32, image_size=32,
     embed_dim=24, depths=[2], num_heads=[2], window_size=4, upscale=2)  # fmt: skip
seen("segformer", "Segformer", "SegformerForSemanticSegmentation", depths=[1, 1, 1, 1],
     hidden_sizes=[16, 32, 40, 64], num_attention_heads=[1, 2, 5, 8],
     decoder_hidden_size=32)  # fmt: skip
seen("hf_convnext", "ConvNext", "ConvNextForImageClassification", depths=[1, 1, 1, 1],
     hidden_sizes=[16, 32, 40, 64])  # fmt: skip
seen("convnextv2", "ConvNextV2", "ConvNextV2Model", depths=[1, 1, 1, 1],
     hidden_sizes=[16, 32, 40, 64])  # fmt: skip
seen("hf_resnet", "ResNet", "ResNetForImageClassification", depths=[1, 1, 1, 1],
     embedding_size=16, hidden_sizes=[16, 32, 40, 64])  # fmt: skip
seen("regnet", "RegNet", "RegNetModel", depths=[1, 1, 1, 1], embedding_size=16,
     hidden_sizes=[16, 32, 48, 64], groups_width=8)  # fmt: skip
seen("mobilenet_v1", "MobileNetV1", "MobileNetV1ForImageClassification", depth_multiplier=0.25)
seen("mobilevit", "MobileViT", "MobileViTForImageClassification", 64, image_size=64,
     hidden_sizes=[32, 48, 64], neck_hidden_sizes=[8, 16, 24, 32, 48, 64, 96])  # fmt: skip
seen("mobilevitv2", "MobileViTV2", "MobileViTV2Model", 64, image_size=64, width_multiplier=0.25)
seen("levit", "Levit", "LevitForImageClassification", 64, image_size=64,
     hidden_sizes=[32, 48, 64], num_attention_heads=[2, 3, 4], depths=[1, 1, 1],
     key_dim=[8, 8, 8])  # fmt: skip
seen("cvt", "Cvt", "CvtForImageClassification", embed_dim=[16, 32, 48], num_heads=[1, 2, 3],
     depth=[1, 1, 1])  # fmt: skip
seen("focalnet", "FocalNet", "FocalNetForImageClassification", 64, image_size=64, embed_dim=16,
     depths=[1, 1], hidden_sizes=[16, 32], focal_levels=[2, 2], focal_windows=[3, 3])  # fmt: skip
seen("van", "Van", "VanModel", hidden_sizes=[16, 32, 40, 64], depths=[1, 1, 1, 1])
seen("glpn_depth", "GLPN", "GLPNForDepthEstimation", depths=[1, 1, 1, 1],
     hidden_sizes=[16, 32, 40, 64], num_attention_heads=[1, 2, 5, 8],
     decoder_hidden_size=32)  # fmt: skip
seen("yolos", "Yolos", "YolosForObjectDetection", 64,
     **{**SMALL, "image_size": [64, 64], "patch_size": 16}, num_detection_tokens=10)  # fmt: skip
seen("upernet", "UperNet", "UperNetForSemanticSegmentation", None, num_labels=5, hidden_size=32,
     pool_scales=[1, 2], auxiliary_channels=16)  # fmt: skip
seen("siglip_vision", "SiglipVision", "SiglipVisionModel", 64, **PATCHED)
seen("clip_vision", "CLIPVision", "CLIPVisionModelWithProjection", 64, **PATCHED,
     projection_dim=32)  # fmt: skip


@network
def detr() -> Network:
    """Carion et al. (2020): queries find boxes."""
    backbone = made_config("ResNet", depths=[1, 1, 1, 1], embedding_size=16,
                           hidden_sizes=[16, 32, 40, 64], out_features=["stage4"])  # fmt: skip
    module = made("Detr", "DetrForObjectDetection", use_timm_backbone=False,
                  use_pretrained_backbone=False, backbone=None, backbone_config=backbone,
                  d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=64,
                  decoder_ffn_dim=64, encoder_attention_heads=4, decoder_attention_heads=4,
                  num_queries=10)  # fmt: skip
    inputs = {"pixel_values": floats("batch", 3, "height", "width")}
    return Network(Named(module, list(inputs), {"return_dict": False}), inputs, ANY)


@network
def table_transformer() -> Network:
    """DETR with norms before attention."""
    backbone = made_config("ResNet", depths=[1, 1, 1, 1], embedding_size=16,
                           hidden_sizes=[16, 32, 40, 64], out_features=["stage4"])  # fmt: skip
    module = made("TableTransformer", "TableTransformerForObjectDetection",
                  use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
                  backbone_config=backbone, d_model=32, encoder_layers=1, decoder_layers=1,
                  encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4,
                  decoder_attention_heads=4, num_queries=10)  # fmt: skip
    inputs = {"pixel_values": floats("batch", 3, "height", "width")}
    return Network(Named(module, list(inputs), {"return_dict": False}), inputs, ANY)


def made_config(name: str, **settings: object) -> Model:
    """A configuration of transformers, for the backbone of another."""
    from benchmarks.zoo.networks.language import hf

    return getattr(hf, f"{name}Config")(**settings)


CLIP_TEXT = {k: v for k, v in NARROW.items() if k != "max_position_embeddings"} | {
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
BOTH_SIZES = {"texts": (1, 3, 4), "sequence": (5, 12, 33), "images": (1, 2, 3)}


class Alike(Module):
    """How well each picture fits each text."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor) -> Model:
        found = self.model(
            input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask
        )
        return (
            found.logits_per_image,
            found.logits_per_text,
            found.text_embeds,
            found.image_embeds,
        )


def paired(name: str, config: str, model: str, **settings: object) -> None:
    """Enter a network of texts and pictures into the catalogue."""

    def make() -> Network:
        inputs: dict[str, Input] = {
            "input_ids": tokens("texts", "sequence"),
            "pixel_values": floats("images", 3, 64, 64),
            "attention_mask": mask("texts", "sequence"),
        }
        return Network(Alike(made(config, model, **settings)), inputs, BOTH_SIZES)

    add(name, make)


PAIR: dict[str, Any] = {"text_config": CLIP_TEXT, "vision_config": PATCHED}
paired("clip", "CLIP", "CLIPModel", **PAIR, projection_dim=32)
paired("siglip", "Siglip", "SiglipModel", **PAIR)
paired("chinese_clip", "ChineseCLIP", "ChineseCLIPModel", **PAIR, projection_dim=32)


@network
def clip_text() -> Network:
    """The text's half."""
    inputs = {"input_ids": tokens(), "attention_mask": mask("batch", "sequence")}
    module = made("CLIPText", "CLIPTextModelWithProjection", **CLIP_TEXT, projection_dim=32)
    sizes = {"batch": (1, 2, 3), "sequence": (5, 12, 33)}
    return Network(Named(module, list(inputs), {"return_dict": False}), inputs, sizes)


@network
def vilt() -> Network:
    """Words and a picture in one encoder."""
    inputs = {
        "input_ids": tokens(),
        "attention_mask": mask("batch", "sequence"),
        "pixel_values": floats("batch", 3, 64, 64),
    }
    module = made("Vilt", "ViltModel", **PATCHED, vocab_size=WORDS, max_position_embeddings=64)
    sizes = {"batch": (1, 2, 3), "sequence": (5, 12, 33)}
    return Network(Named(module, list(inputs), {"return_dict": False}), inputs, sizes)


@network
def sam_image_encoder() -> Network:
    """Segment Anything: the encoder of pictures."""
    vision = {**SMALL, "image_size": 64, "patch_size": 16, "window_size": 2, "mlp_dim": 128,
              "output_channels": 32, "global_attn_indexes": [1]}  # fmt: skip
    module = made("SamVision", "SamVisionModel", **vision)
    inputs = {"pixel_values": floats("batch", 3, 64, 64)}
    return Network(Named(module, list(inputs), {"return_dict": False}), inputs, ONE)
