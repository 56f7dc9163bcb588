"""Decoding with a cache: milliseconds of a token and of a prompt, ours and PyTorch's, in f32 and bf16.

    python -m benchmarks decoding [--threads 1] [--rounds 5] [--json FILE]

The model is `examples/llama.dlm`, 55 million parameters, one text. Contenders run in processes of
their own and take turns; the logits of their first calls must agree before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

import dlc
from benchmarks.contenders.environment import TRAINING, python_with
from benchmarks.contenders.turns import Process, take_turns
from benchmarks.decoding.case import MODEL, SETTINGS

ROOMS = (512, 16384)
"""Tokens that the cache has room for."""
TOLERANCES = {"f32": 1e-4, "bf16": 5e-2}
"""How far logits may be apart, of the largest: the networks round in other places."""


class Contender(NamedTuple):
    """Who decodes, in which dtype, with room for how many tokens, and how many tokens a call has."""

    peer: str
    dtype: str
    room: int
    tokens: int

    @property
    def name(self) -> str:
        """For tables."""
        what = "a token" if self.tokens else "a prompt of 128"
        return f"{self.peer} {self.dtype}, {what}, room for {self.room:,}"

    def command(self, torch: str, arguments: Sequence[str]) -> list[str]:
        """How it is started."""
        python = torch if self.peer == "torch" else sys.executable
        own = [self.dtype, str(self.room), str(self.tokens)]
        return [python, "-m", f"benchmarks.decoding.contender_{self.peer}", *own, *arguments]


def contenders() -> list[Contender]:
    """Each dtype: a token of ours with little and much room, PyTorch's, and a prompt of both."""
    return [
        Contender(peer, dtype, room, tokens)
        for dtype in TOLERANCES
        for peer, room, tokens in (
            *[("dlc", room, 1) for room in ROOMS],
            ("torch", ROOMS[0], 1),
            ("dlc", ROOMS[0], 0),
            ("torch", ROOMS[0], 0),
        )
    ]


def check(folder: Path, which: Sequence[Contender]) -> None:
    """End the program where the logits of two contenders do not agree."""
    for tokens in (0, 1):
        alike = [k for k, each in enumerate(which) if each.tokens == tokens]
        first = np.load(folder / f"{alike[0]}.npy")
        for k in alike[1:]:
            apart = np.abs(np.load(folder / f"{k}.npy") - first).max() / np.abs(first).max()
            if not apart <= TOLERANCES[which[k].dtype]:
                sys.exit(f"the logits of {which[k].name} are {apart:.1e} apart")


def measured(threads: int, rounds: int) -> dict[Contender, list[float]]:
    """The milliseconds of calls of each contender."""
    which, torch = contenders(), python_with("training", *TRAINING)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        model = dlc.compile(MODEL, weights="init:0", settings=SETTINGS)
        arrays = {key: np.asarray(w) for key, w in model.weights.items()}
        np.savez(folder / "weights.npz", allow_pickle=False, **arrays)
        running: list[Process] = []
        for number, each in enumerate(which):
            arguments = [str(folder / "weights.npz"), str(folder / f"{number}.npy"), str(threads)]
            command = each.command(torch, arguments)
            settings = {"OMP_NUM_THREADS": str(threads)}
            running.append(stack.enter_context(Process(each.name, command, settings)))
        check(folder, which)
        take_turns(running, rounds)
        return {each: process.times for each, process in zip(which, running, strict=True)}


def ratios(best: Mapping[Contender, float]) -> dict[str, float]:
    """What is compared: capacities, dtypes, and the peers."""
    found: dict[str, float] = {}
    for dtype in TOLERANCES:
        small, large = (best[Contender("dlc", dtype, room, 1)] for room in ROOMS)
        found[f"{dtype}: room for {ROOMS[1]:,} / {ROOMS[0]}"] = large / small
        for tokens, what in ((1, "token"), (0, "prompt")):
            ours, theirs = (best[Contender(p, dtype, ROOMS[0], tokens)] for p in ("dlc", "torch"))
            found[f"{dtype}: {what}, torch / dlc"] = theirs / ours
    wide, narrow = (best[Contender("dlc", dtype, ROOMS[0], 1)] for dtype in TOLERANCES)
    return {**found, "token, f32 / bf16": wide / narrow}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    times = measured(options.threads, options.rounds)
    best = {each: min(spent) for each, spent in times.items()}
    for each, spent in times.items():
        print(f"{each.name:42} {best[each]:8.2f} ms best, {median(spent):8.2f} median")
    compared = ratios(best)
    for what, ratio in compared.items():
        print(f"{what:42} {ratio:8.2f}")
    if options.json is not None:
        rows = {each.name: {"best": best[each], "median": median(t)} for each, t in times.items()}
        options.json.write_text(json.dumps({"ms": rows, "ratios": compared}, indent=1))


if __name__ == "__main__":
    main()
