"""The safetensors format, read strictly and written deterministically.

A file consists of the length of a header (8 bytes, little-endian), the header (JSON: dtype, shape and
range of bytes of each array), and the arrays. These must fill the file after the header without gaps, and
each must have the length that follows from its shape.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Never, cast

import numpy as np

from dlc.errors import ArtifactError, Unsupported
from dlc.runtime.arrays.dtypes import BY_SAFETENSORS, DTYPES, byte_count
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.system.atomic_write import write_file
from dlc.runtime.system.counts import counted
from dlc.runtime.system.stack import check_json_depth

MAX_HEADER = 32 << 20
MAX_ENTRIES = 100_000
_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_ALIGNMENT = 64
_KEYS = {"dtype", "shape", "data_offsets"}


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def entries(file: memoryview, path: str) -> dict[str, Callable[[], Tensor]]:
    """A reader for each array of a file, by name. Raises ArtifactError (D0503) if the file is damaged."""
    header, data = _split(file, path)
    table = _parse(header, path)
    _check_ranges(table, len(data), path)
    return {name: partial(_tensor, data, name, entry, path) for name, entry in table.items()}


def metadata(file: memoryview, path: str) -> dict[str, str]:
    """The metadata of a file: texts by key."""
    header, _ = _split(file, path)
    found = _json_object(header, path).get(_METADATA, {})
    if not isinstance(found, dict):
        raise _damaged(path, f"{_METADATA} is not an object")
    texts = cast("dict[str, object]", found)
    if not all(isinstance(text, str) for text in texts.values()):
        raise _damaged(path, f"{_METADATA} holds something that is not text")
    return cast("dict[str, str]", texts)


def write(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write a file atomically; equal arrays give equal bytes, whatever their order in the mapping."""
    write_file(path, pieces(tensors, texts or {}))


def pieces(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The bytes of a file: the header, then one array at a time."""
    # Wide elements come first, which aligns each array to its element size.
    order = sorted(tensors, key=lambda name: (-DTYPES[tensors[name].dtype].bytes, name))
    table: dict[str, object] = {_METADATA: dict(sorted(texts.items()))} if texts else {}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        dtype = DTYPES[tensor.dtype].safetensors
        table[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    header = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-(_LENGTH_BYTES + len(header)) % _ALIGNMENT)
    yield len(header).to_bytes(_LENGTH_BYTES, "little")
    yield header
    for name in order:
        yield np.ascontiguousarray(tensors[name].bits).reshape(-1).view(np.uint8).data


def _split(file: memoryview, path: str) -> tuple[bytes, memoryview]:
    length = int.from_bytes(file[:_LENGTH_BYTES], "little")
    if len(file) < _LENGTH_BYTES or length > len(file) - _LENGTH_BYTES:
        raise _damaged(path, f"a header of {length} bytes does not fit into {len(file)}")
    if length > MAX_HEADER:
        raise _damaged(path, f"a header of {length} bytes; at most {MAX_HEADER} are read")
    return bytes(file[_LENGTH_BYTES : _LENGTH_BYTES + length]), file[_LENGTH_BYTES + length :]


def _json_object(header: bytes, path: str) -> dict[str, object]:
    if header[:1] != b"{":
        raise _damaged(path, "the header is not a JSON object")
    try:
        check_json_depth(header)
        found: object = json.loads(
            header.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_float=_refuse,
            parse_constant=_refuse,
        )
    except RecursionError:
        raise _damaged(path, "the header is nested too deep") from None
    except ValueError as error:
        raise _damaged(path, f"the header is not JSON: {error}") from None
    return cast("dict[str, object]", found)


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _refuse(text: str) -> Never:
    raise ValueError(f"the number {text} is not an integer")


def _parse(header: bytes, path: str) -> dict[str, _Entry]:
    found = _json_object(header, path)
    found.pop(_METADATA, None)
    if len(found) > MAX_ENTRIES:
        raise _damaged(path, f"{len(found)} arrays; at most {MAX_ENTRIES} are read")
    return {name: _entry(name, value, path) for name, value in found.items()}


def _entry(name: str, value: object, path: str) -> _Entry:
    if not isinstance(value, dict):
        raise _damaged(path, f"{_short(name)} is not described by an object")
    fields = cast("dict[str, object]", value)
    if set(fields) != _KEYS:
        raise _damaged(path, f"{_short(name)} must have the keys {', '.join(sorted(_KEYS))}")
    dtype, shape, offsets = fields["dtype"], _sizes(fields["shape"]), _sizes(fields["data_offsets"])
    if not isinstance(dtype, str) or shape is None:
        raise _damaged(path, f"{_short(name)} has no dtype, or a shape that is none")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _damaged(path, f"{_short(name)} has data_offsets that are none")
    return _Entry(dtype, shape, *offsets)


def _sizes(value: object) -> tuple[int, ...] | None:
    """A list of non-negative integers below 2^62; None for any other value."""
    if not isinstance(value, list):
        return None
    numbers = cast("list[object]", value)
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
        return None
    return tuple(cast("list[int]", numbers))


def _check_ranges(table: Mapping[str, _Entry], length: int, path: str) -> None:
    end = 0
    for name, entry in sorted(table.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise _damaged(
                path, f"{_short(name)} begins at byte {entry.begin}, where {end} is free"
            )
        end = entry.end
        dtype = BY_SAFETENSORS.get(entry.dtype)
        if dtype is not None and entry.end - entry.begin != byte_count(entry.shape, dtype):
            has = f"{_short(name)} has {counted(entry.end - entry.begin, 'byte')}"
            raise _damaged(path, f"{has}, which is not {list(entry.shape)} of {dtype}")
    if end != length:
        raise _damaged(path, f"the arrays end at byte {end} of the data, the file has {length}")


def _tensor(data: memoryview, name: str, entry: _Entry, path: str) -> Tensor:
    dtype = BY_SAFETENSORS.get(entry.dtype)
    if dtype is None:
        message = f"{path}: {_short(name)} has the dtype {_short(entry.dtype)}, which dlc lacks"
        raise Unsupported(message, code="D0507")
    bits = np.frombuffer(data[entry.begin : entry.end], dtype.numpy).reshape(entry.shape)
    return Tensor.from_bits(bits, dtype.name)


def _short(name: str) -> str:
    return name if len(name) <= 80 and name.isprintable() else repr(name[:80])


def _damaged(path: str, message: str) -> ArtifactError:
    return ArtifactError(f"{path}: {message}", code="D0503", help="the file may be cut short")
