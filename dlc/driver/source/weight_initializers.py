"""Initial values of weights, from the text of an initialiser and a seed.

Each weight has a stream of its own, from the seed and its name: adding a layer changes no other. The
streams are Philox4x64 (J. Salmon et al., SC 2011) in counter order, turned into numbers by the formulas
written here, so that no library release changes a model.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from inspect import signature

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError
from dlc.ir.attributes import decode, encode
from dlc.ir.types import TensorType
from dlc.runtime.cpu.blas import numpy_single_threaded

Floats = NDArray[np.float64]
Shape = tuple[int, ...]

_CALL = re.compile(r"(\w+)\((.*)\)")


class Stream:
    """Random numbers in f64 for one weight."""

    def __init__(self, seed: int, name: str) -> None:
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        key = np.frombuffer(digest[:16], "<u8").astype(np.uint64)
        self._bits = np.random.Philox(key=key)

    def uniform(self, count: int) -> Floats:
        """Numbers in [0, 1) with 53 random bits."""
        raw = np.asarray(self._bits.random_raw(count), np.uint64)
        raw >>= np.uint64(11)
        numbers = raw.astype(np.float64)
        numbers *= 2.0**-53
        return numbers

    def normal(self, count: int) -> Floats:
        """Standard normal numbers, by Box and Muller (1958)."""
        pairs = (count + 1) // 2
        radius = np.sqrt(-2 * np.log1p(-self.uniform(pairs)))
        angle = 2 * np.pi * self.uniform(pairs)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def fans(shape: Shape) -> tuple[int, int]:
    """The fan-in and fan-out of a weight `[in, out]`, or `[.., in, out]` for kernels."""
    if len(shape) < 2:
        size = shape[0] if shape else 1
        return size, size
    field = math.prod(shape[:-2])
    return field * shape[-2], field * shape[-1]


def _uniform(stream: Stream, shape: Shape, low: float, high: float) -> Floats:
    numbers = stream.uniform(math.prod(shape))
    numbers *= high - low
    numbers += low
    return numbers


def _scaled_uniform(stream: Stream, shape: Shape, variance: float) -> Floats:
    limit = math.sqrt(3 * variance)
    return _uniform(stream, shape, -limit, limit)


def _scaled_normal(stream: Stream, shape: Shape, variance: float) -> Floats:
    return math.sqrt(variance) * stream.normal(math.prod(shape))


def _glorot(shape: Shape) -> float:
    return 2 / max(1, sum(fans(shape)))


def _he(shape: Shape) -> float:
    return 2 / max(1, fans(shape)[0])


def _orthogonal(stream: Stream, shape: Shape, gain: float = 1.0) -> Floats:
    """Rows or columns orthonormal, whichever are fewer, of the matrix with the last axis as columns."""
    rows, columns = math.prod(shape[:-1]), shape[-1] if shape else 1
    tall = stream.normal(rows * columns).reshape(max(rows, columns), min(rows, columns))
    with numpy_single_threaded:  # sums of several threads have other last bits
        q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))
    return gain * (q if rows >= columns else q.T).ravel()


def _zeros(stream: Stream, shape: Shape) -> Floats:
    """All elements are 0."""
    return _constant(stream, shape, 0.0)


def _ones(stream: Stream, shape: Shape) -> Floats:
    """All elements are 1."""
    return _constant(stream, shape, 1.0)


def _constant(stream: Stream, shape: Shape, value: float) -> Floats:
    """All elements are the number."""
    return np.broadcast_to(np.float64(value), math.prod(shape))


def _normal(stream: Stream, shape: Shape, scale: float = 1.0) -> Floats:
    """Normally distributed around 0 with the standard deviation `scale`."""
    return scale * stream.normal(math.prod(shape))


def _plain_uniform(stream: Stream, shape: Shape, low: float = 0.0, high: float = 1.0) -> Floats:
    """Spread evenly from `low` to `high`."""
    return _uniform(stream, shape, low, high)


def _glorot_uniform(stream: Stream, shape: Shape) -> Floats:
    """Spread evenly around 0 with the variance 2 / (inputs + outputs) (Glorot and Bengio, 2010)."""
    return _scaled_uniform(stream, shape, _glorot(shape))


def _glorot_normal(stream: Stream, shape: Shape) -> Floats:
    """Normally distributed with the variance 2 / (inputs + outputs) (Glorot and Bengio, 2010)."""
    return _scaled_normal(stream, shape, _glorot(shape))


def _he_uniform(stream: Stream, shape: Shape) -> Floats:
    """Spread evenly around 0 with the variance 2 / inputs, for relu (He et al., 2015)."""
    return _scaled_uniform(stream, shape, _he(shape))


def _he_normal(stream: Stream, shape: Shape) -> Floats:
    """Normally distributed with the variance 2 / inputs, for relu (He et al., 2015)."""
    return _scaled_normal(stream, shape, _he(shape))


INITIALISERS: dict[str, Callable[..., Floats]] = {
    "zeros": _zeros,
    "ones": _ones,
    "constant": _constant,
    "full": _constant,
    "normal": _normal,
    "uniform": _plain_uniform,
    "glorot_uniform": _glorot_uniform,
    "glorot_normal": _glorot_normal,
    "he_uniform": _he_uniform,
    "he_normal": _he_normal,
    "orthogonal": _orthogonal,
}
"""Initialisers by name: each gives the elements in row-major order, from numbers after the shape."""


def initial(name: str, type: TensorType, text: str, seed: int, stacked: int) -> NDArray[np.generic]:
    """The initial array of weight `name`, in NumPy's dtype for its element type.

    `text` is a call such as `normal(0.02)`; `stacked` leading axes count copies, initialised one by one
    from one stream. Raises ModelError for a text that is not an initialiser (D0510) and for numbers that
    the dtype cannot hold (D0552).
    """
    shape = tuple([size for size in type.shape if isinstance(size, int)])
    found = _read(text)
    if found is None:
        known = ", ".join(sorted(INITIALISERS))
        raise ModelError(
            f"{name} has the unknown initialiser {text[:80]}",
            code="D0510",
            help=f"there are {known}",
        )
    make, numbers = found
    stream = Stream(seed, name)
    copies, inner = math.prod(shape[:stacked]), shape[stacked:]
    parts = [make(stream, inner, *numbers) for _ in range(copies)]
    values = parts[0] if copies == 1 else np.concatenate([np.zeros(0), *parts])
    made = encode(values.reshape(shape), type.dtype)
    if type.dtype.is_float and _overflows(values, decode(made, type.dtype)):
        raise ModelError(
            f"{name} would begin with infinity: {text} gives {np.abs(values).max():.3g}, which"
            f" {type.dtype.name} does not hold",
            code="D0552",
            help="take smaller numbers, or a wider dtype",
        )
    return made


def _read(text: str) -> tuple[Callable[..., Floats], list[float]] | None:
    """The initialiser that a text calls, with its numbers; None if there is none with that many."""
    match = _CALL.fullmatch(text.replace(" ", ""))
    make = INITIALISERS.get(match[1]) if match else None
    if match is None or make is None:
        return None
    try:
        numbers = [float(part) for part in match[2].split(",") if part]
        signature(make).bind(None, (), *numbers)
    except (TypeError, ValueError):
        return None
    return make, numbers


def _overflows(values: Floats, made: NDArray[np.generic]) -> bool:
    """Whether there are infinite numbers that were finite in f64."""
    infinite = np.isinf(made).ravel()
    return bool(infinite.any() and (infinite & np.isfinite(values)).any())
