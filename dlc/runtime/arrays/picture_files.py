"""Pictures in files, decoded by Pillow, which is imported when the first one is read."""

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING

from dlc.errors import ArtifactError, Unsupported

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_MAX_PIXELS = 1 << 26
"""The most pixels of a picture: a file of a few bytes can claim any size, and decoding takes its time."""

CHANNELS = tuple(_MODES)
"""The possible numbers of channels: grey, RGB, RGBA."""


def require_pillow(what: str) -> None:
    """Raise Unsupported (D0703) if Pillow is not installed; `what` needs it."""
    if importlib.util.find_spec("PIL") is None:
        raise Unsupported(
            f"{what}: pictures need Pillow, which is not installed",
            code="D0703",
            help="pip install pillow",
        )


def open_picture(data: memoryview, name: str) -> Image:
    """A picture of which only the header was read, which gives its size.

    Raises Unsupported (D0703) without Pillow, ArtifactError (D0503) if the data is not a picture or has
    too many pixels.
    """
    require_pillow(name)
    from PIL import Image

    try:
        picture = Image.open(io.BytesIO(data))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - for damaged files Pillow raises exceptions of any class
        raise _damaged(name, error) from None
    if picture.width * picture.height > _MAX_PIXELS:
        raise _damaged(name, f"{picture.width} x {picture.height} pixels are too many")
    return picture


def decoded(picture: Image, name: str, channels: int) -> Image:
    """The picture with this number of 8-bit channels. Raises ArtifactError (D0503) if it is damaged."""
    try:
        return picture.convert(_MODES[channels])
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        raise _damaged(name, error) from None


def _damaged(name: str, why: object) -> ArtifactError:
    return ArtifactError(
        f"{name} is not a picture that can be read: {why}",
        code="D0503",
        help="save it again as PNG",
    )
