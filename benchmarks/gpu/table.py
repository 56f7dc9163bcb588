"""The page that `benchmarks.gpu` writes: a table for each kind, ours beside the peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Protocol


class Measured(Protocol):
    """What the page needs of an outcome."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def contender(self) -> str: ...
    @property
    def amount(self) -> float: ...
    @property
    def facts(self) -> Mapping[str, float]: ...
    @property
    def error(self) -> float: ...
    @property
    def missing(self) -> str: ...
    @property
    def best(self) -> float: ...
    @property
    def median(self) -> float: ...


CONTENDERS = ("dlc", "torch eager", "torch.compile", "jax")
TITLES = {
    "kernels": "Kernels, as share of the bandwidth of a copy on the device",
    "products": "Products of matrices, and in TFLOP/s",
    "convolutions": "Convolutions of 32 pictures, and in TFLOP/s",
    "attention": "Attention of 16,384 tokens and 2048 features, forward or also backward, and in TFLOP/s",
    "inference": "Networks on one example and on 32, from call to result, arrays on the device",
    "training": "Steps of training, arrays on the device",
}


def page(machine: Mapping[str, str], outcomes: Sequence[Measured]) -> str:
    """Everything that was measured, with when and on what."""
    lines = ["# Measured on a GPU", "", *[f"- {what}: {value}" for what, value in machine.items()]]
    lines += [
        "",
        "Milliseconds, the best of all calls and in brackets the median; contenders took turns. What is no "
        "network is the mean of 10 launches, by events of the GPU (JAX: by the processor's clock). f32 is "
        "multiplied exactly (TF32 off), tf32 rounds the factors of products and convolutions, and all "
        "contenders do the same. torch.compile is `max-autotune` with CUDA graphs.",
        "",
        "In bf16 are the weights of a network, all that its layers give, and what these receive of the "
        "gradient. Sums, normalisation with the weights of batch norms, and the loss are in f32, and so is "
        "what an optimizer keeps: weights before they are rounded, and the moments of their gradients.",
    ]
    for kind, group in groupby(outcomes, lambda one: one.kind):
        lines += ["", f"## {TITLES[kind]}", "", *_table(kind, list(group))]
    return "\n".join([*lines, ""])


def _table(kind: str, outcomes: Sequence[Measured]) -> list[str]:
    extra = {"kernels": ["dlc / copy"], "inference": ["there, back"]}
    columns = ["case", *CONTENDERS, *extra.get(kind, ["dlc / best"])]
    lines = [f"| {' | '.join(columns)} |", f"| :-- |{' --: |' * (len(columns) - 1)}"]
    cases = groupby(outcomes, lambda one: (one.name, one.precision))
    for (name, precision), group in cases:
        by_name = {one.contender: one for one in group}
        cells = [_cell(kind, by_name.get(contender)) for contender in CONTENDERS]
        lines.append(f"| {name} {precision} | {' | '.join(cells)} | {_last(kind, by_name)} |")
    return lines


def _cell(kind: str, one: Measured | None) -> str:
    if one is None:
        return "–"
    if one.missing:
        return one.missing
    times = f"{one.best:.4g} ({one.median:.4g})"
    counts = kind in ("products", "convolutions", "attention")
    return f"{times}, {one.amount / one.best / 1e9:.1f}" if counts else times


def _last(kind: str, by_name: Mapping[str, Measured]) -> str:
    """What ours is compared with."""
    ours = by_name["dlc"]
    if ours.missing:
        return "–"
    if kind == "kernels":
        rate = ours.amount / ours.best / 1e6
        return f"{rate / ours.facts['copy_gb_s']:.0%} of {ours.facts['copy_gb_s']:.0f} GB/s"
    if kind == "inference":
        return f"{ours.facts['upload_ms']:.3g}, {ours.facts['download_ms']:.3g}"
    peers = [one.best for one in by_name.values() if one is not ours and not one.missing]
    return f"{ours.best / min(peers):.2f}" if peers else "–"
