"""Random small networks: a loss in our language and for PyTorch, weights, batches, an optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

ACTIVATIONS = {
    "tanh": "torch.tanh({0})",
    "sigmoid": "torch.sigmoid({0})",
    "gelu": "f.gelu({0})",
    "silu": "f.silu({0})",
    "softplus": "f.softplus({0})",
    "elu": "f.elu({0})",
    "relu": "f.relu({0})",
    "leaky_relu": "f.leaky_relu({0})",
}
OPTIMIZERS = ("sgd", "momentum", "nesterov", "rmsprop", "adagrad", "adam", "adamw")
SCHEDULES = ("constant", "staircase", "slope", "cosine")
PEAKS = {"sgd": 0.1, "momentum": 0.05, "nesterov": 0.05}
"""Learning rates at which nothing runs away; of the others 0.01."""
CLASSES = 3
MOST_STEPS = 40
"""Steps of a training, at most: compiling takes as long as 300 of them."""


@dataclass(slots=True)
class Network:
    """A network that grows: its statements in both languages, and its weights."""

    random: Random
    stream: np.random.Generator
    weights: dict[str, Array] = field(default_factory=dict[str, Array])
    ours: list[str] = field(default_factory=list[str])
    theirs: list[str] = field(default_factory=list[str])
    count: int = 0

    def weight(self, *shape: int, about: float = 0.0) -> str:
        """A new weight; gives its name."""
        name = f"w{len(self.weights)}"
        scale = 1.0 / np.sqrt(max(shape[0], 1)) if len(shape) > 1 else 0.3
        numbers = about + scale * self.stream.standard_normal(shape)
        self.weights[name] = numbers.astype(np.float32)
        return name

    def let(self, ours: str, theirs: str) -> str:
        """Name a value; weights of PyTorch's are `w["name"]`."""
        self.count += 1
        name = f"h{self.count}"
        self.ours.append(f"let {name} = {ours}")
        for weight in self.weights:
            theirs = theirs.replace(f"<{weight}>", f'w["{weight}"]')
        self.theirs.append(f"{name} = {theirs}")
        return name


Layer: TypeAlias = Callable[[Network, str, int], tuple[str, int]]
"""Adds a layer behind a value with this number of features; gives the new value and its features."""


def linear(net: Network, x: str, width: int) -> tuple[str, int]:
    out = net.random.choice((2, 3, 5, 8))
    w, b = net.weight(width, out), net.weight(out)
    return net.let(f"{x} @ {w} + {b}", f"{x} @ <{w}> + <{b}>"), out


def activated(net: Network, x: str, width: int) -> tuple[str, int]:
    name = net.random.choice(sorted(ACTIVATIONS))
    return net.let(f"{name}({x})", ACTIVATIONS[name].format(x)), width


def residual(net: Network, x: str, width: int) -> tuple[str, int]:
    w = net.weight(width, width)
    return net.let(f"{x} + tanh({x} @ {w})", f"{x} + torch.tanh({x} @ <{w}>)"), width


def normalised(net: Network, x: str, width: int) -> tuple[str, int]:
    if width < 3:
        return linear(net, x, width)
    scale, shift = net.weight(width, about=1.0), net.weight(width)
    ours = f"layer_norm({x}, {scale}, {shift}, eps=0.01)"
    return net.let(ours, f"f.layer_norm({x}, ({width},), <{scale}>, <{shift}>, 0.01)"), width


def gated(net: Network, x: str, width: int) -> tuple[str, int]:
    one, two = net.weight(width, 4), net.weight(width, 4)
    ours = f"({x} @ {one}) * sigmoid({x} @ {two})"
    return net.let(ours, f"({x} @ <{one}>) * torch.sigmoid({x} @ <{two}>)"), 4


def convolved(net: Network, x: str, width: int) -> tuple[str, int]:
    """The features as one channel of a signal."""
    if width < 3:
        return linear(net, x, width)
    w = net.weight(2, 1, 2)
    ours = f"reshape(conv({x}[:, :, new], {w}), [_, {2 * (width - 1)}])"
    made = f"f.conv1d({x}[:, None, :], <{w}>.permute(2, 1, 0))"
    theirs = f"{made}.transpose(1, 2).reshape(-1, {2 * (width - 1)})"
    return net.let(ours, theirs), 2 * (width - 1)


def attended(net: Network, x: str, width: int) -> tuple[str, int]:
    """The examples of a batch look at each other."""
    q, v = net.weight(width, 3), net.weight(width, 3)
    ours = f"attention({x} @ {q}, {x} @ {q}, {x} @ {v})"
    theirs = f"torch.softmax(({x} @ <{q}>) @ ({x} @ <{q}>).T / 3 ** 0.5, -1) @ ({x} @ <{v}>)"
    return net.let(ours, theirs), 3


LAYERS: tuple[Layer, ...] = (
    *(linear, linear, activated, activated, residual, normalised, gated, convolved, attended),
)


@dataclass(frozen=True, slots=True)
class Training:
    """A text to train, the loss for PyTorch, and what both get."""

    text: str
    python: str
    weights: dict[str, Array]
    batches: dict[str, Array]
    """For each input of the loss one batch for each step."""
    facts: dict[str, object]
    """The optimizer, the schedule, and how many steps."""


def random_training(seed: int) -> Training:
    """The training of a seed."""
    random = Random(seed)
    net = Network(random, np.random.default_rng(seed))
    inner, rows, steps = (
        random.choice((2, 4, 5)),
        random.choice((1, 3, 6)),
        random.randint(3, MOST_STEPS),
    )
    batches: dict[str, Array] = {}
    if random.random() < 0.3:
        table = net.weight(7, inner)
        batches["x"] = net.stream.integers(0, 7, (steps, rows), np.int32)
        declared, x = "x: i32[B]", net.let(f"{table}[x]", f"<{table}>[x]")
    else:
        batches["x"] = net.stream.standard_normal((steps, rows, inner)).astype(np.float32)
        declared, x = f"x: f32[B, {inner}]", "x"
    width = inner
    x, width = linear(net, x, width)
    for _ in range(random.randint(1, 4)):
        x, width = random.choice(LAYERS)(net, x, width)
    w = net.weight(width, CLASSES)
    x = net.let(f"{x} @ {w}", f"{x} @ <{w}>")
    if random.random() < 0.5:
        batches["y"] = net.stream.integers(0, CLASSES, (steps, rows), np.int32)
        target, ours, theirs = "i32[B]", f"mean(cross_entropy({x}, y))", f"f.cross_entropy({x}, y)"
    else:
        batches["y"] = net.stream.standard_normal((steps, rows, CLASSES)).astype(np.float32)
        target, ours, theirs = (
            f"f32[B, {CLASSES}]",
            f"mean(({x} - y) ** 2)",
            f"(({x} - y) ** 2).mean()",
        )
    facts = _optimizer(random, steps)
    lines = [
        "dlc 1",
        "dim B = 1..8",
        "module Net {",
        *[
            f"  param {k}: f32[{', '.join(map(str, v.shape))}] = zeros()"
            for k, v in net.weights.items()
        ],
        f"  fn cost({declared}, y: {target}) {{",
        *[f"    {line}" for line in net.ours],
        f"    return {ours}",
        "  }",
        f"  export fn run({declared}, y: {target}) -> f32 = cost(x, y)",
        "}",
        "train Net {",
        '  data = npz("none.npz", x="x", y="y")',
        f"  loss({declared}, y: {target}) = cost(x, y)",
        f"  optimizer = {_written(facts)}",
        f"  batch = {rows}",
        "}",
    ]
    body = "\n".join(f"    {line}" for line in net.theirs)
    python = f"def loss(w, x, y):\n{body}\n    return {theirs}\n"
    return Training("\n".join(lines) + "\n", python, net.weights, batches, facts)


def _optimizer(random: Random, steps: int) -> dict[str, Any]:
    kind = random.choice(OPTIMIZERS)
    schedule = {
        "kind": random.choice(SCHEDULES),
        "peak": PEAKS.get(kind, 0.01),
        "warmup": random.choice((0, 0, 2)),
        "factor": 0.5,
        "every": 2,
    }
    return {
        "kind": kind,
        "steps": steps,
        "weight_decay": random.choice((0.0, 0.0, 0.01)),
        "clip_norm": random.choice((0, 0, 0.5)),
        "clip_value": random.choice((0, 0, 0.1)),
        "schedule": schedule,
    }


def _written(facts: dict[str, Any]) -> str:
    """The optimizer in our language."""
    schedule = facts["schedule"]
    warmup = f", warmup={schedule['warmup']}" if schedule["warmup"] else ""
    if schedule["kind"] == "staircase":
        lr = f"staircase(start={schedule['peak']}, every=2, factor=0.5{warmup})"
    else:
        lr = f"{schedule['kind']}(peak={schedule['peak']}{warmup})"
    more = "".join(f", {key}={facts[key]}" for key in ("clip_norm", "clip_value") if facts[key])
    return f"{facts['kind']}(lr={lr}, weight_decay={facts['weight_decay']}{more})"
