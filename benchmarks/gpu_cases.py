"""What is measured on a GPU: kernels, products, networks at batch 1 and their training steps.

A case is the same for every contender: arrays drawn from a seed, a precision, and what counts as equal.
Large inputs are drawn once and repeated along their first axis, so that files stay small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.training_cases import (
    OPTIMIZERS,
    QUICK_STEPS,
    QUICK_TABLE,
    STEPS,
    TABLE,
    path_of,
    with_optimizer,
)
from benchmarks.training_cases import Case as Step

Array: TypeAlias = NDArray[np.generic]
Kind = Literal["kernels", "products", "inference", "training"]
Precision = Literal["f32", "tf32", "bf16"]

KINDS: tuple[Kind, ...] = ("kernels", "products", "inference", "training")
PRECISIONS: tuple[Precision, ...] = ("f32", "tf32", "bf16")
NETWORKS = ("resnet50", "gpt", "lstm", "ncf", "mlp")
"""Those that are called and trained."""
DRAWN_ROWS = 1024
"""Rows that are drawn, compared, and repeated."""


@dataclass(frozen=True, slots=True)
class GpuCase:
    """One thing to measure in one precision, on the text of a model of ours.

    `amount` is the bytes that a kernel moves at least, or the operations of a product; `limit` is how far
    results may be from ours, by their norm. The gradients that are compared are those of weights whose
    names begin with `gradients`.
    """

    kind: Kind
    name: str
    precision: Precision
    text: str
    entry: str
    arrays: Callable[[], Mapping[str, Array]]
    limit: float
    amount: float = 0
    repeats: int = 1
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    optimizer: str = ""
    gradients: str = ""

    @property
    def title(self) -> str:
        return f"{self.name} {self.precision}"

    def spec(self) -> dict[str, object]:
        """What a contender is told, besides the arrays."""
        return {
            "kind": self.kind,
            "name": self.name,
            "precision": self.precision,
            "entry": self.entry,
            "repeats": self.repeats,
            "settings": dict(self.settings),
            "optimizer": self.optimizer,
        }


# Kernels ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A function of an array of rows: its body, how many arrays it reads, and what it gives."""

    body: str
    reads: int = 1
    gives: str = "[R, C]"
    module: str = ""


KERNELS = {
    "scale": _Kernel("x * 2 + 1"),
    "add": _Kernel("x + y", 2),
    "gelu": _Kernel("gelu(x)"),
    "softmax": _Kernel("softmax(x, axis=-1)"),
    "row_sum": _Kernel("sum(x, axis=-1)", gives="[R]"),
}
ROWS, COLUMNS = 1 << 16, 1 << 10


def kernels(precision: Precision, *, quick: bool) -> list[GpuCase]:
    """Element-wise and row kernels; there is nothing to multiply, so tf32 is no case of its own."""
    if precision == "tf32":
        return []
    rows, columns = (8, 40) if quick else (ROWS, COLUMNS)
    drawn = min(rows, DRAWN_ROWS)
    size = rows * columns * (4 if precision == "f32" else 2)
    found: list[GpuCase] = []
    for name, kernel in KERNELS.items():
        names = "xy"[: kernel.reads]
        typed = f"{precision}[{rows}, {columns}]"
        given = ", ".join(f"{each}: {typed}" for each in names)
        gives = kernel.gives.replace("R", str(rows)).replace("C", str(columns))
        written = size if "C" in kernel.gives else size // columns
        found.append(
            GpuCase(
                "kernels",
                name,
                precision,
                f"dlc 1\nexport fn f({given}) -> {precision}{gives} = {kernel.body}\n",
                "f",
                _drawn(dict.fromkeys(names, (drawn, columns))),
                1e-5 if precision == "f32" else 1e-2,
                kernel.reads * size + written,
                rows // drawn,
            )
        )
    return found


def _drawn(shapes: Mapping[str, tuple[int, ...]]) -> Callable[[], Mapping[str, Array]]:
    def draw() -> Mapping[str, Array]:
        random = np.random.default_rng(1)
        return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}

    return draw


# Products -----------------------------------------------------------------------------------------

SIZE = 4096
LIMITS: dict[Precision, float] = {"f32": 1e-5, "tf32": 2e-3, "bf16": 1e-2}


def products(precision: Precision, *, quick: bool) -> list[GpuCase]:
    """The product of two square matrices."""
    size = 48 if quick else SIZE
    dtype = "bf16" if precision == "bf16" else "f32"
    typed = f"{dtype}[{size}, {size}]"
    return [
        GpuCase(
            "products",
            f"product_{size}",
            precision,
            f"dlc 1\nexport fn f(x: {typed}, y: {typed}) -> {typed} = x @ y\n",
            "f",
            _drawn({"x": (size, size), "y": (size, size)}),
            LIMITS[precision],
            2.0 * size**3,
        )
    ]


# Networks -----------------------------------------------------------------------------------------

SCORES = {
    "mlp": "export fn scores(image: f32[B, 784]) -> f32[B, 10] = logits(image)",
    "resnet50": "export fn scores(image: u8[B, 224, 224, 3]) -> f32[B, classes] = logits(image)",
}
"""Entry points for networks that only tell the most likely class."""
ENTRIES = {
    "mlp": "scores",
    "resnet50": "scores",
    "minilm": "meaning",
    "gpt": "logits",
    "lstm": "logits",
    "ncf": "predict",
}
READS = {
    "mlp": "image",
    "resnet50": "image",
    "minilm": "ids",
    "gpt": "ids",
    "lstm": "ids",
    "ncf": "user item",
}
NETWORK_LIMITS: dict[Precision, float] = {"f32": 1e-3, "tf32": 3e-2, "bf16": 2.0**-4}
"""bf16 rounds each number by up to 2**-9 of it, at every layer: 32 such roundings are allowed. On a
processor results of these networks are up to 5 of them from those of PyTorch and JAX, and gradients up to
19, but for ResNet-50, of which PyTorch and JAX are as far apart (`benchmarks.gpu_agreement`)."""
LAST = {"resnet50": "head."}
"""Of which weights the gradients are compared in less than f32, where not of all. Fifty normalisations make
rounding larger than the gradients of the first ones, which differ as much from those of the same library in
f32: there the losses and the last layer show whether a step is right."""


def _sentence(words: int, known: int) -> Callable[[np.random.Generator], Mapping[str, Array]]:
    return lambda random: {"ids": random.integers(0, known, (1, words + 1), dtype=np.int32)}


CALLED = {"minilm": Step({}, "", _sentence(128, 30522), 128, "tokens")}
"""Networks that are only called, and the same so small that only the benchmark itself is tested."""
QUICK_CALLED = {
    "minilm": Step({"V": 50, "D": 24, "L": 1}, "", _sentence(5, 50), 5, "tokens"),
}


def _step(name: str, *, quick: bool) -> Step:
    small = {**QUICK_TABLE, **QUICK_STEPS, **QUICK_CALLED}
    return (small if quick else {**TABLE, **STEPS, **CALLED})[name]


def inference(precision: Precision, *, quick: bool) -> list[GpuCase]:
    """Networks on one example."""
    return [_inference(name, precision, quick=quick) for name in (*NETWORKS, *CALLED)]


def _inference(name: str, precision: Precision, *, quick: bool) -> GpuCase:
    step = _step(name, quick=quick)
    # Compiled for one example, as a peer compiles for the shapes that it sees.
    text = re.sub(r"(?m)^dim B = .*$", "dim B = 1..1", path_of(name).read_text("utf-8"))
    if name in SCORES:
        text = text.replace("\n  export fn ", f"\n  {SCORES[name]}\n\n  export fn ", 1)

    def draw() -> Mapping[str, Array]:
        batch = step.batch(np.random.default_rng(1))
        first = {key: batch[key][:1] for key in READS[name].split()}
        return {key: x[:, :-1] if key == "ids" else x for key, x in first.items()}

    return GpuCase(
        "inference",
        name,
        precision,
        text,
        ENTRIES[name],
        draw,
        NETWORK_LIMITS[precision],
        settings=step.settings,
    )


def training(precision: Precision, *, quick: bool) -> list[GpuCase]:
    """Steps of training, of the size that they have on a processor's benchmark too."""
    return [_training(name, precision, quick=quick) for name in NETWORKS]


def _training(name: str, precision: Precision, *, quick: bool) -> GpuCase:
    step = _step(name, quick=quick)
    return GpuCase(
        "training",
        name,
        precision,
        with_optimizer(path_of(name), OPTIMIZERS[step.optimizer]),
        "",
        lambda: step.batch(np.random.default_rng(1)),
        NETWORK_LIMITS[precision],
        settings=step.settings,
        optimizer=step.optimizer,
        gradients="" if precision == "f32" else LAST.get(name, ""),
    )


def cases(kind: Kind, precision: Precision, *, quick: bool = False) -> list[GpuCase]:
    """Those of a kind in a precision."""
    makers: Mapping[Kind, Callable[..., list[GpuCase]]] = {
        "kernels": kernels,
        "products": products,
        "inference": inference,
        "training": training,
    }
    return makers[kind](precision, quick=quick)
