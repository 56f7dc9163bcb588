"""What is measured on a GPU: kernels, products, networks at batch 1 and 32, and their training steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.gpu.case import Array, GpuCase, Kind, Precision
from benchmarks.gpu.shapes import attention, convolutions, kernels, products
from benchmarks.training.cases import (
    OPTIMIZERS,
    QUICK_STEPS,
    QUICK_TABLE,
    STEPS,
    TABLE,
    path_of,
    with_optimizer,
)
from benchmarks.training.cases import Case as Step

NETWORKS = ("resnet50", "gpt", "lstm", "ncf", "mlp")
"""Those that are called and trained."""
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
19, but for ResNet-50, of which PyTorch and JAX are as far apart (`benchmarks.gpu.agreement`)."""
LAST = {"resnet50": "head."}
"""Of which weights the gradients are compared, where not of all. Fifty normalisations amplify rounding:
in bf16 the gradients of the first layers differ as much from those of the same library in f32, and in f32
those of PyTorch and JAX were 2.7e-2 of the norm apart on one picture, of the last layer 2e-5. There the
losses and the last layer show whether a step is right."""


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


BATCHES = (1, 32)
"""Examples of a call."""


def inference(precision: Precision, *, quick: bool) -> list[GpuCase]:
    """Networks on one example, and on several."""
    names, batches = (*NETWORKS, *CALLED), BATCHES[:1] if quick else BATCHES
    if precision == "f16":
        return []
    return [_inference(name, precision, n, quick=quick) for n in batches for name in names]


def _inference(name: str, precision: Precision, batch: int, *, quick: bool) -> GpuCase:
    step = _step(name, quick=quick)
    # Compiled for this number of examples, as a peer compiles for the shapes that it sees.
    text = re.sub(
        r"(?m)^dim B = .*$", f"dim B = {batch}..{batch}", path_of(name).read_text("utf-8")
    )
    if name in SCORES:
        text = text.replace("\n  export fn ", f"\n  {SCORES[name]}\n\n  export fn ", 1)

    def draw() -> Mapping[str, Array]:
        drawn = step.batch(np.random.default_rng(1))
        first = {key: drawn[key][:1] if batch == 1 else drawn[key] for key in READS[name].split()}
        return {
            key: np.resize(x[:, :-1] if key == "ids" else x, (batch, *_example(key, x)))
            for key, x in first.items()
        }

    return GpuCase(
        "inference",
        name if batch == 1 else f"{name}_{batch}",
        precision,
        text,
        ENTRIES[name],
        draw,
        NETWORK_LIMITS[precision],
        settings=step.settings,
        function=name,
    )


def _example(name: str, array: Array) -> tuple[int, ...]:
    """The shape of one example: of a text the last token is only guessed."""
    return (array.shape[1] - 1, *array.shape[2:]) if name == "ids" else array.shape[1:]


def training(precision: Precision, *, quick: bool) -> list[GpuCase]:
    """Steps of training, of the size that they have on a processor's benchmark too."""
    if precision == "f16":
        return []
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
        gradients=LAST.get(name, ""),
    )


def cases(kind: Kind, precision: Precision, *, quick: bool = False) -> list[GpuCase]:
    """Those of a kind in a precision."""
    makers: Mapping[Kind, Callable[..., list[GpuCase]]] = {
        "kernels": kernels,
        "products": products,
        "convolutions": convolutions,
        "attention": attention,
        "inference": inference,
        "training": training,
    }
    return makers[kind](precision, quick=quick)
