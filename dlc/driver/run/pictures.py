"""Pictures as arrays [height, width, channel]: `u8` as stored, or floats in 0..1. Needs Pillow."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlc.errors import UsageError
from dlc.runtime.arrays.picture_files import (
    CHANNELS,
    ENDINGS,
    decoded,
    open_picture,
    require_pillow,
)
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Input
from dlc.runtime.artifact.spelling import describe
from dlc.runtime.system.atomic_write import write_file
from dlc.runtime.system.mapped_files import map_file

PICTURES = ENDINGS


def read_picture(path: str, item: Input, *, resize: bool) -> NDArray[np.generic] | Tensor:
    """The picture in a file as the input wants it: [height, width, channel], or a batch of one.

    One channel is grey, three are red, green, blue, four have alpha. Raises UsageError (D0908) for an
    input that takes no picture, and for a picture of another size unless `resize` is set; ArtifactError
    (D0503) for a damaged file; Unsupported (D0703) without Pillow.
    """
    wanted = _picture_shape(item)
    pixels = _decoded(path, wanted, item, resize)
    if len(item.shape) == 4:
        pixels = pixels[None]
    if item.dtype == "u8":
        return np.ascontiguousarray(pixels)
    values = Tensor(pixels.astype(np.float32) / np.float32(255), item.dtype)
    return values if item.dtype == "bf16" else values.bits


def _picture_shape(item: Input) -> tuple[str, str, int]:
    """Height, width and channels that the input wants; sizes that are not numbers may be anything."""
    shape = item.shape[1:] if len(item.shape) == 4 else item.shape
    is_float = item.dtype in ("f16", "bf16", "f32", "f64")
    if len(shape) == 3 and shape[2] in ("1", "3", "4") and (is_float or item.dtype == "u8"):
        return shape[0], shape[1], int(shape[2])
    raise UsageError(
        f"{item.name} is {describe(item)}, which takes no picture",
        code="D0908",
        help="a picture is u8 or f32 [height, width, channel] with 1, 3 or 4 channels",
    )


def _decoded(
    path: str, wanted: tuple[str, str, int], item: Input, resize: bool
) -> NDArray[np.uint8]:
    height, width, channels = wanted
    require_pillow(path)
    with open_picture(map_file(path), path) as picture:
        converted = decoded(picture, path, channels)
    size = (
        int(width) if width.isdecimal() else converted.width,
        int(height) if height.isdecimal() else converted.height,
    )
    if size != converted.size:
        if not resize:
            raise UsageError(
                f"{path} is {converted.width} x {converted.height}, "
                f"{item.name} takes {size[0]} x {size[1]}",
                code="D0908",
                help="--resize makes it fit",
            )
        converted = converted.resize(size)
    return np.asarray(converted, np.uint8).reshape(size[1], size[0], channels)


def write_picture(path: str, values: NDArray[np.generic]) -> None:
    """Write [height, width, channel] (or [height, width]): `u8` as it is, floats from 0..1.

    Raises UsageError (D0908) for arrays that are not pictures, Unsupported (D0703) without Pillow.
    """
    require_pillow(path)
    from PIL import Image

    pixels = values[0] if values.ndim == 4 and values.shape[0] == 1 else values
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if not _is_picture(pixels.shape) or pixels.dtype.kind not in "uf":
        raise UsageError(
            f"{path}: an array of shape {list(values.shape)} and dtype {values.dtype} is not a picture",
            code="D0908",
            help="write it to a .npy file",
        )
    if pixels.dtype.kind == "f":
        scaled = np.nan_to_num(np.clip(pixels.astype(np.float64), 0, 1)) * 255
        pixels = np.rint(scaled).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels, np.uint8)).save(stream, _format(path))
    write_file(path, [stream.getvalue()])


def _is_picture(shape: Sequence[int]) -> bool:
    return len(shape) == 2 or (len(shape) == 3 and shape[2] in CHANNELS)


def _format(path: str) -> str:
    ending = path.rpartition(".")[2].upper()
    return {"JPG": "JPEG", "TIF": "TIFF"}.get(ending, ending)
