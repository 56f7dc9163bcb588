"""Types of IR from their text.

`TYPES` has a row for each type with parameters, `SimpleType.known` and `DType.spelled` have the rest:
a dialect that makes a `SimpleType` need not say so here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dlc.ir.dims import MAX_FACTOR, Dim, Shape, Size
from dlc.ir.types import MAX_LANES, DType, SimpleType, TensorType, Type, VectorType, ViewType
from dlc.text.sizes import parse_size

__all__ = ["read_array_type", "read_shape", "read_size", "read_type"]

MAX_RANK = 64
MAX_SHAPE_TEXT = 20_000
"""The longest text of a symbolic shape."""
MAX_SIZE_TEXT = 16_000
"""The longest text of one symbolic size."""

_TENSOR = re.compile(r'((?:(?:\d+|\?)x)*)(\w+)(?:, *#dlc\.dims<"([^"]*)">)?', re.ASCII)
_VECTOR = re.compile(r"(\d{1,4})x(\w+)", re.ASCII)
_VIEW = re.compile(r'(\w+), *"([^"]*)"(?:, *"([^"]*)")?', re.ASCII)


def read_type(text: str) -> Type:
    """The type that one token spells. Raises ValueError that says what is wrong."""
    if text in DType.spelled:
        return DType.spelled[text]
    if text in SimpleType.known:
        return SimpleType.known[text]
    name, _, body = text.partition("<")
    if name not in TYPES:
        raise ValueError(f"{text[:40]!r} is not a type")
    return TYPES[name](body.removesuffix(">").strip())


def read_array_type(text: str) -> TensorType:
    """The type of an array as the language spells it: `f32[B, 64]`. Raises ValueError."""
    name, _, sizes = text.removesuffix("]").partition("[")
    if name not in DType.named:
        raise ValueError(
            f"{name[:40]!r} is not an element type; there are {', '.join(DType.named)}"
        )
    return TensorType(DType.named[name], _in_range(read_shape(sizes)))


def read_shape(text: str) -> Shape:
    """Sizes with commas between them: `B, 3*T, max(A, B)`. Raises ValueError."""
    if len(text) > MAX_SHAPE_TEXT:
        raise ValueError(f"a shape of {len(text)} characters is too long")
    parts = [""]
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    if len(parts) > MAX_RANK:
        raise ValueError(f"there are {len(parts)} sizes, more than {MAX_RANK}")
    return tuple(map(read_size, parts)) if text.strip() else ()


def read_size(text: str) -> Size:
    """One size: `3*T + 1`. Raises ValueError."""
    if len(text) > MAX_SIZE_TEXT:
        raise ValueError(f"a size of {len(text)} characters is too long")
    return parse_size(text)


def _tensor(body: str) -> TensorType:
    match = _TENSOR.fullmatch(body)
    if match is None:
        raise ValueError(f"tensor<{body[:40]}> is not a tensor type; write tensor<2x3xf32>")
    spelled = match[1].split("x")[:-1]
    if len(spelled) > MAX_RANK:
        raise ValueError(f"the tensor has {len(spelled)} axes, more than {MAX_RANK}")
    if match[3] is not None:
        shape = read_shape(match[3])
    elif "?" in spelled:
        raise ValueError(f'tensor<{body[:40]}> does not name its sizes: #dlc.dims<"...">')
    else:
        shape = tuple(map(read_size, spelled))
    sizes = ["?" if isinstance(size, Dim) else str(size) for size in shape]
    if match[3] is not None and (sizes != spelled or "?" not in sizes):
        raise ValueError(f"tensor<{body[:40]}> and its sizes {match[3]!r} disagree")
    return TensorType(_dtype(match[2]), _in_range(shape))


def _vector(body: str) -> VectorType:
    match = _VECTOR.fullmatch(body)
    if match is None or not 0 < int(match[1]) <= MAX_LANES:
        raise ValueError(f"vector<{body[:40]}> is not a vector type; write vector<8xf32>")
    return VectorType(_dtype(match[2]), int(match[1]))


def _view(body: str) -> ViewType:
    match = _VIEW.fullmatch(body)
    if match is None:
        raise ValueError(f'!mem.view<{body[:40]}> is not a view; write !mem.view<f32, "B, 64">')
    shape = _in_range(read_shape(match[2]))
    strides = None if match[3] is None else read_shape(match[3])
    if strides is not None and len(strides) != len(shape):
        raise ValueError(f"the view has {len(shape)} sizes and {len(strides)} strides")
    return ViewType(_dtype(match[1]), shape, strides)


def _dtype(text: str) -> DType:
    if text not in DType.spelled:
        known = ", ".join(DType.spelled)
        raise ValueError(f"{text[:40]!r} is not an element type; there are {known}")
    return DType.spelled[text]


def _in_range(shape: Shape) -> Shape:
    for size in shape:
        if isinstance(size, int) and size < 0:
            raise ValueError(f"the shape {list(shape)} has a negative size")
        if isinstance(size, int) and size > MAX_FACTOR:
            raise ValueError(f"the size {size} is beyond 2**62")
    return shape


TYPES: dict[str, Callable[[str], Type]] = {
    "tensor": _tensor,
    "vector": _vector,
    "!mem.view": _view,
}
"""Types with parameters: what stands before `<`, and how the parameters are read."""
