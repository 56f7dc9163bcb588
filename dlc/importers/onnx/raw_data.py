"""The bytes of weights inside an ONNX file, found without reading them.

Protobuf copies them when it parses a file, and once more when they are asked for. So the file is parsed
without those of large tensors, which become external data (https://onnx.ai/onnx/repo-docs/ExternalData.html)
whose location is the file itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

LARGE = 1 << 16
"""Bytes from which on a tensor is left in the file."""

_GRAPH = 7
"""The field of a model."""
_INITIALIZER = 5
"""The field of a graph."""
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
"""Fields of a tensor."""
_VARINT, _BYTES = 0, 2
"""Wire types of protobuf (https://protobuf.dev/programming-guides/encoding); 1 and 5 are 8 and 4 bytes."""


class _Field(NamedTuple):
    """A field of a message: its number, where it begins, and where its contents begin and end."""

    number: int
    start: int
    first: int
    end: int


def without_raw_data(data: memoryview, location: str) -> bytes | memoryview:
    """The model with its large tensors as external data in `location`, where `data` is found.

    The data itself, if nothing in it is large, or if it is not a well-formed message.
    """
    try:
        pieces = list(_model(data, location.encode()))
    except (IndexError, ValueError):
        return data
    return b"".join(pieces) if any(isinstance(piece, bytes) for piece in pieces) else data


def _model(data: memoryview, location: bytes) -> Iterator[bytes | memoryview]:
    for field in _fields(data, 0, len(data)):
        if field.number != _GRAPH:
            yield data[field.start : field.end]
            continue
        inner = list(_graph(data, field, location))
        if any(isinstance(piece, bytes) for piece in inner):
            yield _head(_GRAPH, sum(map(len, inner)))
            yield from inner
        else:
            yield data[field.start : field.end]


def _graph(data: memoryview, graph: _Field, location: bytes) -> Iterator[bytes | memoryview]:
    """The fields of a graph; new ones are bytes."""
    for field in _fields(data, graph.first, graph.end):
        tensor = None
        if field.number == _INITIALIZER and field.end - field.first >= LARGE:
            tensor = _tensor(data, field, location)
        yield data[field.start : field.end] if tensor is None else tensor


def _tensor(data: memoryview, tensor: _Field, location: bytes) -> bytes | None:
    """The tensor with its bytes as external data; None for one that has none, or is external already."""
    fields = list(_fields(data, tensor.first, tensor.end))
    raw = [field for field in fields if field.number == _RAW_DATA]
    is_external = any(field.number in (_EXTERNAL_DATA, _DATA_LOCATION) for field in fields)
    if len(raw) != 1 or is_external:
        return None
    (bytes_,) = raw
    entries = {
        b"location": location,
        b"offset": str(bytes_.first).encode(),
        b"length": str(bytes_.end - bytes_.first).encode(),
    }
    kept = [bytes(data[field.start : field.end]) for field in fields if field is not bytes_]
    external = [_message(_EXTERNAL_DATA, _entry(key, value)) for key, value in entries.items()]
    location_is_external = _varint(_DATA_LOCATION << 3 | _VARINT) + b"\1"
    return _message(_INITIALIZER, b"".join([*kept, *external, location_is_external]))


def _entry(key: bytes, value: bytes) -> bytes:
    return _message(1, key) + _message(2, value)


def _message(number: int, contents: bytes) -> bytes:
    return _head(number, len(contents)) + contents


def _head(number: int, length: int) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(length)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _fields(data: memoryview, start: int, end: int) -> Iterator[_Field]:
    """The fields of a message. Raises ValueError where it is not well-formed."""
    while start < end:
        tag, first = _read_varint(data, start)
        match tag & 7:
            case _ if tag >> 3 == 0:
                raise ValueError(tag)
            case 0:
                _, last = _read_varint(data, first)
            case 1:
                last = first + 8
            case 2:
                length, first = _read_varint(data, first)
                last = first + length
            case 5:
                last = first + 4
            case kind:
                raise ValueError(kind)
        if last > end:
            raise ValueError(last)
        yield _Field(tag >> 3, start, first, last)
        start = last


def _read_varint(data: memoryview, start: int) -> tuple[int, int]:
    """A number of up to 64 bits, and where it ends."""
    number = 0
    for place in range(10):
        byte = data[start + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, start + place + 1
    raise ValueError(start)
