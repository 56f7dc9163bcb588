"""Kernels, products, convolutions and attention of the benchmark on a GPU, in the shapes of networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.gpu.case import Array, GpuCase, Precision

DRAWN_ROWS = 1024
"""Rows that are drawn and repeated, at most."""
LIMITS: Mapping[Precision, float] = {"f32": 1e-5, "tf32": 2e-3, "f16": 2e-3, "bf16": 1e-2}
Shapes = Mapping[str, tuple[int, ...]]


def _dtype(precision: Precision) -> str:
    return "f32" if precision == "tf32" else precision


def _typed(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _header(precision: Precision, shapes: Shapes) -> str:
    """Parameters of a function."""
    dtype = _dtype(precision)
    return ", ".join(
        f"{name}: {_typed('i32' if name == 'ids' else dtype, shape)}"
        for name, shape in shapes.items()
    )


def _drawn_rows(rows: int) -> int:
    """As many of some rows as are drawn: a divisor of them."""
    return max(k for k in range(1, min(rows, DRAWN_ROWS) + 1) if rows % k == 0)


def _drawn(shapes: Shapes, size: float, most: int = 1) -> Callable[[], Mapping[str, Array]]:
    """Normal numbers times `size`, and indices below `most`."""

    def draw() -> Mapping[str, Array]:
        random = np.random.default_rng(1)
        found: dict[str, Array] = {}
        for name, (rows, *rest) in shapes.items():
            shape = (_drawn_rows(rows), *rest)
            if name == "ids":
                found[name] = random.integers(0, most, shape, np.int32)
            else:
                found[name] = random.standard_normal(shape, np.float32) * np.float32(size)
        return found

    return draw


def _repeats(shapes: Shapes) -> dict[str, int]:
    return {name: rows // _drawn_rows(rows) for name, (rows, *_) in shapes.items()}


# Kernels ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A function of arrays of rows: its body, what they are called, and the shapes of what it gives."""

    body: str
    reads: str = "x"
    gives: tuple[str, ...] = ("[R, C]",)


KERNELS = {
    "scale": _Kernel("x * 2 + 1"),
    "add": _Kernel("x + y", "xy"),
    "gelu": _Kernel("gelu(x)"),
    "softmax": _Kernel("softmax(x, axis=-1)"),
    "layer_norm": _Kernel("layer_norm(x)"),
    "row_sum": _Kernel("sum(x, axis=-1)", gives=("[R]",)),
    "column_sum": _Kernel("sum(x, axis=0)", gives=("[C]",)),
    "transpose": _Kernel("transpose(x)", gives=("[C, R]",)),
    "embedding": _Kernel("x[ids]", "xi"),
    "adam": _Kernel(
        "(x - 0.001 * (0.9 * m + 0.1 * y) / (sqrt(0.999 * v ** 2 + 0.001 * y * y) + 1e-6), "
        "0.9 * m + 0.1 * y, sqrt(0.999 * v ** 2 + 0.001 * y * y))",
        "xymv",
        ("[R, C]", "[R, C]", "[R, C]"),
    ),
}
"""`adam` keeps the root of the second moment, so that any number is one."""
ROWS, COLUMNS = 1 << 16, 1 << 10


def kernels(precision: Precision, *, quick: bool) -> list[GpuCase]:
    """Element-wise and row kernels; there is nothing to multiply, so tf32 is not a case of its own."""
    if precision == "tf32":
        return []
    rows, columns = (8, 40) if quick else (ROWS, COLUMNS)
    return [_kernel(name, kernel, precision, rows, columns) for name, kernel in KERNELS.items()]


def _kernel(name: str, kernel: _Kernel, precision: Precision, rows: int, columns: int) -> GpuCase:
    shapes = {
        {"i": "ids"}.get(letter, letter): (rows,) if letter == "i" else (rows, columns)
        for letter in kernel.reads
    }
    dtype, bytes_each = _dtype(precision), 4 if precision == "f32" else 2
    gives = [each.replace("R", str(rows)).replace("C", str(columns)) for each in kernel.gives]
    types = ", ".join(f"{dtype}{shape}" for shape in gives)
    elements = sum(int(np.prod([int(n) for n in shape[1:-1].split(",")])) for shape in gives)
    read = sum(int(np.prod(shape)) for name, shape in shapes.items() if name != "ids")
    return GpuCase(
        "kernels",
        name,
        precision,
        f"dlc 1\nexport fn f({_header(precision, shapes)}) -> "
        f"{types if len(gives) == 1 else f'({types})'} = {kernel.body}\n",
        "f",
        _drawn(shapes, 1, rows),
        LIMITS[precision],
        bytes_each * (read + elements) + (4 * rows if "ids" in shapes else 0),
        _repeats(shapes),
    )


# Products -----------------------------------------------------------------------------------------

SQUARES = (512, 1024, 2048, 4096, 8192, 16384)
LARGEST = 30000
"""The square matrices of the classic comparison, in f32."""
LAYERS = {
    "gpt_qkv": (8192, 768, 2304),
    "gpt_up": (8192, 768, 3072),
    "gpt_down": (8192, 3072, 768),
    "gpt_logits": (8192, 768, 50304),
    "resnet_narrow": (32 * 56 * 56, 256, 64),
    "resnet_wide": (32 * 14 * 14, 256, 1024),
    "resnet_last": (32 * 7 * 7, 2048, 512),
    "resnet_head": (32, 2048, 1000),
}
"""Rows, sums and columns of layers: of GPT-2 at 8 texts of 1024 tokens, of ResNet-50 at 32 pictures."""


def products(precision: Precision, *, quick: bool) -> list[GpuCase]:
    """Products of two matrices: square ones, and those of layers."""
    if quick:
        return [_product("product_48", precision, 48, 48, 48)]
    squares = [*SQUARES, *([LARGEST] if precision == "f32" else [])]
    return [
        *[_product(f"product_{size}", precision, size, size, size) for size in squares],
        *[_product(name, precision, *sizes) for name, sizes in LAYERS.items()],
    ]


def _product(name: str, precision: Precision, m: int, k: int, n: int) -> GpuCase:
    shapes = {"x": (m, k), "y": (k, n)}
    result = _typed(_dtype(precision), (m, n))
    return GpuCase(
        "products",
        name,
        precision,
        f"dlc 1\nexport fn f({_header(precision, shapes)}) -> {result} = x @ y\n",
        "f",
        _drawn(shapes, k**-0.25),  # results are about 1, whatever is summed
        LIMITS[precision],
        2.0 * m * k * n,
        _repeats(shapes),
        function="product",
    )


# Convolutions -------------------------------------------------------------------------------------

CONVOLUTIONS = {
    "stem_7x7": (224, 3, 64, 7, 2),
    "conv2_3x3": (56, 64, 64, 3, 1),
    "conv2_1x1": (56, 64, 256, 1, 1),
    "conv3_down": (56, 128, 128, 3, 2),
    "conv3_3x3": (28, 128, 128, 3, 1),
    "conv4_3x3": (14, 256, 256, 3, 1),
    "conv4_1x1": (14, 256, 1024, 1, 1),
    "conv5_3x3": (7, 512, 512, 3, 1),
}
"""Those of ResNet-50: width of the picture, channels in and out, width of the window, stride."""
PICTURES = 32


def convolutions(precision: Precision, *, quick: bool) -> list[GpuCase]:
    """Convolutions of pictures with channels last."""
    if quick:
        return [_convolution("conv_3x3", precision, (2, 6, 4, 8, 3, 2))]
    return [
        _convolution(name, precision, (PICTURES, *sizes)) for name, sizes in CONVOLUTIONS.items()
    ]


def _convolution(
    name: str, precision: Precision, sizes: tuple[int, int, int, int, int, int]
) -> GpuCase:
    pictures, width, channels, outputs, window, stride = sizes
    padding = window // 2
    out = (width + 2 * padding - window) // stride + 1
    result = _typed(_dtype(precision), (pictures, out, out, outputs))
    shapes = {
        "x": (pictures, width, width, channels),
        "w": (window, window, channels, outputs),
    }
    sums = window * window * channels
    return GpuCase(
        "convolutions",
        name,
        precision,
        f"dlc 1\nexport fn f({_header(precision, shapes)}) -> {result} = "
        f"conv(x, w, stride={stride}, padding={padding})\n",
        "f",
        _drawn(shapes, sums**-0.25),
        LIMITS[precision],
        2.0 * pictures * out * out * outputs * sums,
        _repeats(shapes),
        {"stride": stride, "padding": padding},
        function="convolution",
    )


# Attention ----------------------------------------------------------------------------------------

TOKENS = (1024, 4096, 16384)
ALL_TOKENS = 16384
"""Of all texts together, as in the tables of FlashAttention."""
WIDTHS = (64, 128)
ALL_FEATURES = 2048
"""Of all heads together, likewise."""


def attention(precision: Precision, *, quick: bool) -> list[GpuCase]:
    """Attention of heads, and its gradients."""
    if quick:
        shapes = [(1, 2, 8, 16)]
    else:
        shapes = [
            (ALL_TOKENS // tokens, ALL_FEATURES // width, tokens, width)
            for width in WIDTHS
            for tokens in TOKENS
        ]
    return [make(precision, shape) for shape in shapes for make in (_attention, _gradient)]


BODY = "attention(q, k, v)"


def _attention(precision: Precision, shape: tuple[int, int, int, int]) -> GpuCase:
    shapes = dict.fromkeys("qkv", shape)
    result = _typed(_dtype(precision), shape)
    text = f"dlc 1\nexport fn f({_header(precision, shapes)}) -> {result} = {BODY}\n"
    return _of_attention("attention", precision, shapes, text, 4)


def _gradient(precision: Precision, shape: tuple[int, int, int, int]) -> GpuCase:
    shapes = dict.fromkeys(["q", "k", "v", "dy"], shape)
    result = _typed(_dtype(precision), shape)
    text = (
        f"dlc 1\nfn attend({_header(precision, dict.fromkeys('qkv', shape))}) = {BODY}\n"
        f"export fn f({_header(precision, shapes)}) -> ({', '.join([result] * 3)}) = "
        "vjp(attend, wrt=(q, k, v))(q, k, v, dy=dy)\n"
    )
    # The forward pass, which is computed first, and two and a half times as much.
    return _of_attention("attention_gradient", precision, shapes, text, 14)


def _of_attention(
    function: str, precision: Precision, shapes: Shapes, text: str, operations: int
) -> GpuCase:
    texts, heads, tokens, width = next(iter(shapes.values()))
    return GpuCase(
        "attention",
        f"{function}_{tokens}x{width}",
        precision,
        text,
        "f",
        _drawn({name: (1, *shape[1:]) for name, shape in shapes.items()}, 1),
        2 * LIMITS[precision],
        float(operations) * texts * heads * tokens**2 * width,
        dict.fromkeys(shapes, texts),
        function=function,
    )
