"""The networks whose training is measured: their texts, their sizes, and a batch for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
OWN = ROOT / "benchmarks" / "models"
NETWORKS = ROOT / "examples" / "networks"
OPTIMIZERS = {"adam": "adam(lr=1e-3)", "momentum": "momentum(lr=0.01)"}

Array: TypeAlias = NDArray[np.generic]
Arrays: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Case:
    """A network with the parameters of its root module, its optimizer, and a batch.

    `count` is how many of `unit` (such as images) a step works on. `draws` says that a step draws random
    numbers, so that no two contenders agree about its loss.
    """

    settings: Mapping[str, int]
    optimizer: str
    batch: Callable[[np.random.Generator], Arrays]
    count: int
    unit: str
    draws: bool = False


def with_optimizer(path: Path, optimizer: str) -> str:
    """The text of a model with this optimizer in its `train` block."""
    changed, count = re.subn(
        r"(?m)^  optimizer = .*$", f"  optimizer = {optimizer}", path.read_text("utf-8")
    )
    assert count == 1, f"{path} has no optimizer in a line of its own"
    return changed


def path_of(network: str) -> Path:
    """Where the text of a network is."""
    own = OWN / f"{network}.dlm"
    return own if own.exists() else NETWORKS / f"{network}.dlm"


# Batches ------------------------------------------------------------------------------------------


def _flat(count: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda random: {
        "image": random.standard_normal((count, 784), np.float32),
        "label": random.integers(0, 10, count, dtype=np.int32),
    }


def _small_pictures(count: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda random: {
        "image": random.standard_normal((count, 32, 32, 3), np.float32),
        "label": random.integers(0, 10, count, dtype=np.int32),
    }


def _pictures(count: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda random: {
        "image": random.integers(0, 256, (count, 224, 224, 3), dtype=np.uint8),
        "label": random.integers(0, 10, count, dtype=np.int32),
    }


def _texts(count: int, tokens: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda random: {"ids": random.integers(0, 256, (count, tokens + 1), dtype=np.int32)}


def _sentences(count: int, words: int, known: int) -> Callable[[np.random.Generator], Arrays]:
    """Behind the ends of the shorter ones stand zeros."""

    def made(random: np.random.Generator, length: int) -> Array:
        found = random.integers(1, known, (count, length), dtype=np.int32)
        ends = random.integers(length // 2, length + 1, (count, 1))
        return np.where(np.arange(length) < ends, found, 0).astype(np.int32)

    return lambda random: {"source": made(random, words), "target": made(random, words + 1)}


def _ratings(count: int, users: int, items: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda random: {
        "user": random.integers(0, users, count, dtype=np.int32),
        "item": random.integers(0, items, count, dtype=np.int32),
        "liked": random.integers(0, 2, count).astype(np.float32),
    }


# Cases --------------------------------------------------------------------------------------------

STEPS = {
    "mlp": Case({}, "adam", _flat(128), 128, "images"),
    "resnet18": Case({}, "adam", _small_pictures(32), 32, "images"),
    "gpt": Case({}, "adam", _texts(8, 128), 8 * 128, "tokens"),
    "lstm": Case({}, "adam", _texts(32, 64), 32 * 64, "tokens"),
    "ncf": Case({}, "adam", _ratings(1024, 20000, 10000), 1024, "samples"),
}
"""The networks whose steps are compared."""

QUICK_STEPS = {
    "mlp": Case({"hidden": 32}, "adam", _flat(8), 8, "images"),
    "resnet18": Case({}, "adam", _small_pictures(2), 2, "images"),
    "gpt": Case({"L": 2, "D": 32}, "adam", _texts(2, 16), 2 * 16, "tokens"),
    "lstm": Case({"D": 32}, "adam", _texts(4, 8), 4 * 8, "tokens"),
    "ncf": Case({"users": 200, "items": 100}, "adam", _ratings(32, 200, 100), 32, "samples"),
}
"""The same, so small that only the benchmark itself is tested."""

TABLE = {
    "alexnet": Case({}, "momentum", _pictures(16), 16, "images", draws=True),
    "vgg19": Case({}, "momentum", _pictures(4), 4, "images", draws=True),
    "resnet50": Case({}, "momentum", _pictures(8), 8, "images"),
    "mobilenet_v1": Case({}, "momentum", _pictures(8), 8, "images"),
    "mobilenet_v2": Case({}, "momentum", _pictures(8), 8, "images", draws=True),
    "gnmt": Case({"D": 512}, "adam", _sentences(16, 24, 32000), 16 * 24, "tokens"),
    "ncf": STEPS["ncf"],
}
"""The networks of the classic table. GNMT has half its width."""

QUICK_TABLE = {
    "alexnet": Case({"classes": 10}, "momentum", _pictures(1), 1, "images", draws=True),
    "vgg19": Case({"classes": 10}, "momentum", _pictures(1), 1, "images", draws=True),
    "resnet50": Case({"classes": 10}, "momentum", _pictures(1), 1, "images"),
    "mobilenet_v1": Case({"classes": 10}, "momentum", _pictures(1), 1, "images"),
    "mobilenet_v2": Case({"classes": 10}, "momentum", _pictures(1), 1, "images", draws=True),
    "gnmt": Case({"V": 50, "D": 16, "L": 3}, "adam", _sentences(4, 6, 50), 4 * 6, "tokens"),
    "ncf": QUICK_STEPS["ncf"],
}
"""The same with the smallest batches."""
