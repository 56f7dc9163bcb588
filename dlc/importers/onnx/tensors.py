"""The tensors of an ONNX file: in its message, in the file beside its message, or in files of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlc.errors import ArtifactError, ModelError, Unsupported
from dlc.importers.onnx.facts import DTYPES, Array, Tensor
from dlc.ir.types import BF16, BOOL, F16, DType
from dlc.runtime.arrays.dtypes import MAX_RANK
from dlc.runtime.system.mapped_files import map_inside, release_pages

if TYPE_CHECKING:
    from onnx import TensorProto

EXTERNAL_KEYS = frozenset(("location", "offset", "length", "checksum"))


def dtype_of(what: str, number: int) -> DType:
    """The element type of that number in ONNX. Raises Unsupported (D0507) for one that dlc lacks."""
    dtype = DTYPES.get(number)
    if dtype is None:
        raise Unsupported(
            f"{what} has the ONNX element type {number}, which dlc lacks", code="D0507"
        )
    return dtype


def check_shape(what: str, shape: Sequence[int]) -> None:
    """Raise ModelError (D0521) for a shape that no tensor has."""
    if len(shape) > MAX_RANK or min(shape, default=0) < 0 or math.prod(shape) >= 1 << 48:
        raise ModelError(f"{what} has the absurd shape {list(shape)[:20]}", code="D0521")


class Tensors:
    """Tensors of one file, `mapped` by its name; external files are mapped once."""

    def __init__(self, file: str, folder: Path, mapped: Mapping[str, memoryview]) -> None:
        self._file = file
        self._folder = folder
        self._mapped: dict[str, memoryview] = {**mapped}

    def tensor(self, proto: TensorProto) -> Tensor:
        """The elements, whose number agrees with the shape to the byte."""
        what = f"{self._file}: the tensor {proto.name or '(without a name)'}"
        dtype, shape = dtype_of(what, proto.data_type), [int(size) for size in proto.dims]
        check_shape(what, shape)
        count = math.prod(shape)
        if proto.data_location == proto.EXTERNAL:
            array = self._external(what, proto, count * dtype.bytes).view(dtype.numpy)
        elif proto.HasField("raw_data"):
            raw = proto.raw_data  # a copy of its own each time that it is asked for
            if len(raw) != count * dtype.bytes:
                raise _short(what, shape, dtype, f"{len(raw)} bytes")
            array = np.frombuffer(raw, dtype.numpy)
        else:
            array = _typed(proto, dtype)
            if array.size != count:
                raise _short(what, shape, dtype, f"{array.size} elements")
        if dtype is BOOL:
            array = array.view(np.uint8) != 0
        return Tensor(dtype, array.reshape(shape))

    def _external(self, what: str, proto: TensorProto, length: int) -> Array:
        """The bytes of a tensor outside of its message; those inside the file itself are copied."""
        entries = {entry.key: entry.value for entry in proto.external_data}
        unknown = sorted({*entries} - EXTERNAL_KEYS)
        if unknown or "location" not in entries:
            why = f"the unknown key {unknown[0]!r}" if unknown else "no location"
            raise ArtifactError(f"{what} is external data with {why}", code="D0520")
        location = entries["location"]
        if location not in self._mapped:
            self._mapped[location] = map_inside(self._folder, location)
        data = self._mapped[location]
        offset = _count(what, entries.get("offset", "0"))
        declared = _count(what, entries.get("length", str(length)))
        if declared != length or offset + length > len(data):
            raise ArtifactError(
                f"{what} needs {length} bytes, the file says {declared} at {offset} of {location}, "
                f"which has {len(data)}",
                code="D0520",
            )
        array = np.frombuffer(data[offset : offset + length], np.uint8)
        if location != self._file:
            return array
        array = array.copy()  # in a message elements may lie at any address
        release_pages(data, offset, offset + length)
        return array


def _count(what: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise ArtifactError(f"{what}: {text[:40]!r} is not a number of bytes", code="D0520")
    return int(text)


def _short(what: str, shape: Sequence[int], dtype: DType, contents: str) -> ArtifactError:
    return ArtifactError(f"{what} is {dtype.name}{list(shape)}, but has {contents}", code="D0520")


def _typed(proto: TensorProto, dtype: DType) -> Array:
    """Elements that are stored one by one in the field of their type."""
    match dtype.name:
        case "f32":
            return np.array(proto.float_data, np.float32)
        case "f64":
            return np.array(proto.double_data, np.float64)
        case "i64":
            return np.array(proto.int64_data, np.int64)
        case "u32" | "u64":
            return np.array(proto.uint64_data, np.uint64).astype(dtype.numpy)
        case _ if dtype in (F16, BF16):
            return np.array(proto.int32_data, np.int32).astype(np.uint16).view(dtype.numpy)
        case _:
            return np.array(proto.int32_data, np.int32).astype(dtype.numpy)
