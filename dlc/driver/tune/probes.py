"""Models of one kernel each, from whose times the rows of the cost table are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LENGTH = 1 << 14
"""Elements of an array that the second-level cache keeps several times."""
LARGE = 1 << 26
"""Elements of an array that no cache keeps."""
CHAIN = 16
"""Multiplications and additions of a long formula."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A function of a model text, and how many units of a row a call does."""

    function: str
    inputs: Mapping[str, str]
    """Types by name: `f32[4, 8]`."""
    result: str
    """Its type."""
    units: float
    matmul: str = "generated"
    conv: str = "auto"

    @property
    def text(self) -> str:
        """The model."""
        arguments = ", ".join(f"{name}: {type}" for name, type in self.inputs.items())
        return f"dlc 1\nexport fn f({arguments}) -> {self.result} = {self.function}\n"

    def arrays(self) -> list[NDArray[np.generic]]:
        """Arguments for a call: floats of both signs, and indices that there are."""
        random = np.random.default_rng(0)
        arrays: list[NDArray[np.generic]] = []
        for type in self.inputs.values():
            dtype, _, sizes = type.partition("[")
            shape = tuple(int(size) for size in sizes.removesuffix("]").split(",") if size.strip())
            if dtype == "i64":
                arrays.append(random.integers(0, 256, shape, np.int64))
            else:
                arrays.append(np.asarray(random.standard_normal(shape, np.float32)))
        return arrays


def _vectors(function: str) -> Probe:
    """A formula of one vector; a unit is an element."""
    return Probe(function, {"x": f"f32[{LENGTH}]"}, f"f32[{LENGTH}]", LENGTH)


def _chained(steps: int) -> str:
    """A polynomial by Horner's rule: a multiplication and an addition in each step."""
    formula = "x"
    for _ in range(steps):
        formula = f"({formula}) * x + x"
    return formula


def _products(m: int, k: int, n: int, units: float, matmul: str = "generated") -> Probe:
    """A product of two matrices."""
    types = {"x": f"f32[{m}, {k}]", "y": f"f32[{k}, {n}]"}
    return Probe("x @ y", types, f"f32[{m}, {n}]", units, matmul)


def _attended(depth: int) -> Probe:
    """512 queries of 512 keys, heads of `depth` elements; a unit is a score."""
    types = dict.fromkeys("qkv", f"f32[512, {depth}]")
    return Probe("attention(q, k, v)", types, f"f32[512, {depth}]", 512 * 512)


def _winograd(channels: int) -> Probe:
    """A convolution in Winograd's form; a unit is a place of a transformed tile."""
    types = {"x": f"f32[1, 112, 112, {channels}]", "w": f"f32[3, 3, {channels}, {channels}]"}
    places = 28 * 28 * 36
    return Probe("conv(x, w, padding=1)", types, types["x"], places, conv="winograd")


def _added(elements: int) -> Probe:
    """A sum of two vectors; a unit is a byte that is read or written."""
    types = dict.fromkeys("xy", f"f32[{elements}]")
    return Probe("x + y", types, types["x"], 12 * elements)


def _depthwise(extent: int) -> Probe:
    """A depthwise convolution of a square picture; a unit is a product."""
    types = {"x": f"f32[1, {extent}, {extent}, 64]", "w": "f32[3, 3, 1, 64]"}
    products = extent * extent * 64 * 9
    return Probe("conv(x, w, padding=1, groups=64)", types, types["x"], products)


_READ = Probe("sum(x)", {"x": f"f32[{LARGE}]"}, "f32", 4 * LARGE)
EMPTY = Probe("x + 1", {"x": "f32"}, "f32", 1)
"""A call of next to nothing."""
NARROW = _winograd(16)
"""The probe of `winograd_element` with so few channels that the transforms are half of the work."""
SHORT = _vectors("x + x")
"""One operation for an element, with its load and its store."""
PROBES: Mapping[str, Probe] = {
    "operation": _vectors(_chained(CHAIN)),
    "load_byte": Probe("sum(x)", {"x": "f32[131072]"}, "f32", 4 * 131072),
    "division": _vectors("x / (x + 2) / (x + 3) / (x + 5) / (x + 7)"),
    "function": _vectors("exp(x)"),
    "product": _products(384, 512, 768, 384 * 512 * 768),
    "blas_product": _products(384, 512, 768, 384 * 512 * 768, "blas"),
    "blas_element": _products(512, 2, 512, 512 * 512, "blas"),
    "attention_product": _attended(128),
    "attention_exp": _attended(64),
    "depthwise_product": _depthwise(56),
    "winograd_element": _winograd(64),
    "copied_byte": Probe(
        "concat([x, y], axis=1)",
        {"x": "f32[256, 192]", "y": "f32[256, 320]"},
        "f32[256, 512]",
        4 * 256 * 512,
    ),
    "updated_element": Probe(
        "update(x, at=[i, ..], v)",
        {"x": "f32[256, 512]", "v": "f32[512]", "i": "i64"},
        "f32[256, 512]",
        256 * 512,
    ),
    "scattered_element": Probe(
        'update(x, at=[i], v, mode="add")',
        {"x": "f32[4096, 64]", "i": "i64[4096]", "v": "f32[4096, 64]"},
        "f32[4096, 64]",
        2 * 4096 * 64,
    ),
    "scanned_element": Probe("cumsum(x)", {"x": "f32[32, 4096]"}, "f32[32, 4096]", 32 * 4096),
    "sorted_element": Probe("sort(x)", {"x": "f32[32, 1024]"}, "f32[32, 1024]", 32 * 1024 * 7),
    "nonzero_element": Probe("nonzero(x > 0).1", {"x": f"f32[{LENGTH}]"}, "i64", LENGTH),
    "kernel_product": _products(384, 512, 768, 384 * 512 * 768),
    "kernel_depthwise": _depthwise(28),
    "near_byte": _added(1 << 15),
    "cached_byte": _added(1 << 20),
    "uncached_byte": _READ,
    "memory_byte": _READ,
}
"""The probe of each row that is measured by a kernel."""
