"""Pictures as examples: a folder with one subfolder for each class. Needs Pillow.

The fields are `image` and `label`. An image has the shape [height, width, channel], as `u8` or as floats
from 0 to 1; one channel is grey, three are RGB, four are RGBA. The classes are the names of the
subfolders in alphabetical order, numbered from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlc.errors import ModelError
from dlc.runtime.arrays.dtypes import DTYPES, DType
from dlc.runtime.arrays.picture_files import (
    CHANNELS,
    ENDINGS,
    decoded,
    open_picture,
    require_pillow,
)
from dlc.runtime.artifact.manifest import DataSource, Input
from dlc.runtime.artifact.spelling import describe
from dlc.runtime.data.fields import Array, ArrayField, Field, Table, convert
from dlc.runtime.data.fitting import Fitting, check_dtype, label_of, missing, refusal
from dlc.runtime.data.order import Rows
from dlc.runtime.data.place import DataLocation
from dlc.runtime.data.source import NAMES

_U8 = DTYPES["u8"]

Classes = Mapping[str, tuple[str, ...]]


def picture_table(
    place: DataLocation, source: DataSource, fitting: Fitting, known: Classes
) -> Table:
    """The pictures of a folder; for the test, `known` has the classes of the training examples."""
    require_pillow(str(place))
    called = {item.name: source.fields.get(item.name, item.name) for item in fitting.wanted}
    names = next((known[name] for name in called if name in known), None)
    classes, pictures, numbers = _listed(place, names)
    fields: dict[str, Field] = {}
    for item in fitting.wanted:
        match called[item.name]:
            case "image":
                fields[item.name] = _images(pictures, item, source.size)
            case "label":
                labels = np.array(numbers, np.int64)
                check_dtype(str(place), item.name, labels, DTYPES["i64"], DTYPES[item.dtype])
                fields[item.name] = ArrayField(labels, DTYPES["i64"], DTYPES[item.dtype])
            case other:
                raise missing(str(place), item, other, NAMES[source.kind])
    shown = {item.name: label_of(item, called[item.name]) for item in fitting.wanted}
    named = {name: classes for name in called if called[name] == "label"}
    return Table(fields, fitting.check(str(place), fields, shown), named)


def _listed(
    place: DataLocation, known: tuple[str, ...] | None
) -> tuple[tuple[str, ...], Sequence[DataLocation], Sequence[int]]:
    """The classes, and each picture with the number of its class."""
    folders = [name for name in place.names() if place.inside(name).is_folder]
    classes = known or tuple(folders)
    if strange := [name for name in folders if name not in classes]:
        raise refusal(
            str(place),
            "D0546",
            f"the class {strange[0]} is none of those to train on",
            f"there are {', '.join(classes[:8])}",
        )
    pictures: list[DataLocation] = []
    numbers: list[int] = []
    for folder in folders:
        inside = place.inside(folder)
        found = [inside.inside(name) for name in inside.names() if name.lower().endswith(ENDINGS)]
        pictures += found
        numbers += [classes.index(folder)] * len(found)
    if not pictures:
        raise refusal(
            str(place),
            "D0546",
            "it holds no pictures in sub-folders",
            f"make a sub-folder for each class, with {', '.join(ENDINGS[:3])} files in it",
        )
    return classes, pictures, numbers


class PictureField:
    """Pictures that are decoded on access."""

    ready = False

    def __init__(
        self,
        pictures: Sequence[DataLocation],
        shape: tuple[int, int, int],
        want: DType,
        *,
        resize: bool,
    ) -> None:
        self.count = len(pictures)
        self.shape = shape
        self._pictures = pictures
        self._want = want
        self._resize = resize

    def read(self, rows: Rows, out: Array) -> None:
        height, width, channels = self.shape
        for target, row in enumerate(rows):
            place = self._pictures[int(row)]
            with open_picture(place.bytes(), str(place)) as picture:
                converted = decoded(picture, str(place), channels)
            if self._resize and converted.size != (width, height):
                converted = converted.resize((width, height))
            pixels = np.asarray(converted, np.uint8).reshape(height, width, channels)
            if self._want is _U8:
                out[target] = pixels
            else:
                values = pixels.astype(np.float32) / np.float32(255)
                convert(values, DTYPES["f32"], self._want, out[target : target + 1])


def _images(
    pictures: Sequence[DataLocation], item: Input, size: tuple[int, ...] | None
) -> PictureField:
    """The field of all pictures; their sizes are compared before the first one is decoded."""
    want = DTYPES[item.dtype]
    shape = item.shape[1:]
    takes = len(shape) == 3 and shape[2] in map(str, CHANNELS)
    if not takes or (want.kind != "f" and want is not _U8):
        raise ModelError(
            f"{item.name} is {describe(item)}, which takes no picture",
            code="D0543",
            help=f"declare it as u8 or f32: {item.name}: u8[B, 64, 64, 3], with 1, 3 or 4 channels",
        )
    height, width = size or _common_size(pictures)
    return PictureField(pictures, (height, width, int(shape[2])), want, resize=size is not None)


def _common_size(pictures: Sequence[DataLocation]) -> tuple[int, int]:
    """The height and width of all pictures. Raises ModelError (D0546) if they differ."""
    first = None
    for place in pictures:
        with open_picture(place.bytes(), str(place)) as picture:
            found = picture.height, picture.width
        first = first or found
        if found != first:
            raise refusal(
                str(place),
                "D0546",
                f"it is {found[0]} x {found[1]} (height x width), "
                f"where {pictures[0]} is {first[0]} x {first[1]}",
                f'write size="{first[0]}x{first[1]}" in the data to make all of them fit',
            )
    assert first is not None
    return first
