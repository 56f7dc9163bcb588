"""Random networks with random optimizers and schedules, some steps each, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import dlc
from benchmarks.contenders.environment import TORCH
from benchmarks.fuzz.cases import Kind, Outcome
from benchmarks.fuzz.closeness import epsilon, judge
from benchmarks.fuzz.network import Training, random_training
from benchmarks.fuzz.peer import NoAnswer, Peer

Array: TypeAlias = NDArray[Any]

PEER = Peer("contender_steps.py", "torch", TORCH)
NORMALISED = ("rmsprop", "adagrad", "adam", "adamw")
"""Optimizers whose steps have the same size for small gradients as for large ones."""
EPS = epsilon(np.dtype(np.float32))


def start() -> Callable[[int], Outcome]:
    """What tries one training."""
    PEER.start()
    return lambda seed: check(seed, PEER)


def check(seed: int, peer: Peer) -> Outcome:
    """Compare losses and weights of each step with PyTorch's."""
    case, random = random_training(seed), Random(~seed)
    level, matmul = random.randrange(4), random.choice(("blas", "generated"))
    found = trained(case, level, matmul)

    @cache
    def theirs(dtype: str, shake: int) -> Sequence[Sequence[Array]]:
        return peer.ask(case.python, case.weights, case.batches, case.facts, dtype, shake, EPS)

    def exact(step: int) -> Callable[[int], Sequence[Array]]:
        return lambda shake: theirs("float64", shake)[step]

    try:
        own = theirs("float32", 0)
        before: Sequence[Array] = [np.zeros(()), *case.weights.values()]
        for step, (ours, other) in enumerate(zip(found, own, strict=True)):
            steps = before if case.facts["kind"] in NORMALISED else ()
            outcome = judge(ours, other, exact(step), EPS, steps)
            if outcome.verdict == "wrong":
                what = f"-O{level} --matmul {matmul}, step {step}: {outcome.what}\n{case.text}"
                return Outcome("wrong", what)
            if outcome.verdict == "unstable":
                return Outcome("unstable", outcome.what, step)
            before = [np.zeros(()), *exact(step)(0)[1:]]
    except NoAnswer as error:
        return Outcome("no peer", str(error).split("\n")[0])
    return Outcome("agreed", "", len(found))


def trained(case: Training, level: int, matmul: str) -> list[list[Array]]:
    """For each step the loss before it and all weights behind it."""
    trainer = dlc.trainer(
        text=case.text, weights=case.weights, level=level, matmul=matmul, threads=1
    )
    steps = len(case.batches["x"])
    trainer.total_steps = steps
    found: list[list[Array]] = []
    for step in range(steps):
        batch: dict[str, object] = {name: array[step] for name, array in case.batches.items()}
        loss = trainer.step(**batch)
        weights = trainer.trained()
        found.append([np.asarray(loss, np.float32), *[np.array(weights[k]) for k in case.weights]])
    return found


KIND = Kind("random networks and optimizers against PyTorch", start)
