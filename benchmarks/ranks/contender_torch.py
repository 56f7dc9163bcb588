"""Training steps of PyTorch's DistributedDataParallel over Gloo, for `benchmarks.ranks`.

    python -m benchmarks.ranks.contender_torch NETWORK SETTINGS OPTIMIZER BATCH.npz START.npz RESULTS.npz
        THREADS RANKS [RANK FILE]

The first rank starts the others, which meet it by FILE. Each takes its part of the batch. RESULTS get the
losses of the first two steps, each the mean over the ranks.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ranks.serve import serve_ranks
from benchmarks.training.contender_torch import (
    OPTIMIZERS,
    Tensor,
    make_network,
    read_batch,
    train_step,
)

# PyTorch is not installed where types are checked.
torch: Any = importlib.import_module("torch")
distributed: Any = importlib.import_module("torch.distributed")


def share(number: int) -> int:
    """The number that the first rank passes, on all ranks; Gloo sleeps while it waits."""
    buffer = torch.tensor([number])
    distributed.broadcast(buffer, 0)
    return int(buffer.item())


def mean_over_ranks(loss: Tensor) -> float:
    total = loss.detach().clone()
    distributed.all_reduce(total)
    return total.item() / distributed.get_world_size()


def work(
    name: str,
    settings: str,
    optimizer: str,
    given: str,
    start: str,
    results: str,
    threads: str,
    rank: int,
    ranks: int,
) -> None:
    """Make a network and two steps, and serve more."""
    torch.set_num_threads(int(threads))
    batch = read_batch(given, rank, ranks)
    network = make_network(name, settings, start)
    together = torch.nn.parallel.DistributedDataParallel(network)
    updates = OPTIMIZERS[optimizer][1](network.parameters())

    def step() -> Tensor:
        return train_step(together, updates, batch)

    found = {"loss": mean_over_ranks(step()), "second_loss": mean_over_ranks(step())}
    if rank == 0:
        np.savez(results, allow_pickle=False, **found)
    serve_ranks(lambda: step().item(), {}, rank, share)


def main(*arguments: str) -> None:
    """Be one of the ranks; the first starts the others."""
    *given, threads, ranks = arguments[:8]
    with tempfile.TemporaryDirectory() as made:
        rank, file = (arguments[8:]) or ("0", str(Path(made, "meeting")))
        others = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, *arguments, str(other), file],
                stdin=subprocess.DEVNULL,
            )
            for other in (range(1, int(ranks)) if rank == "0" else ())
        ]
        distributed.init_process_group(
            "gloo", init_method=f"file://{file}", rank=int(rank), world_size=int(ranks)
        )
        name, settings, optimizer, batch, start, results = given
        work(name, settings, optimizer, batch, start, results, threads, int(rank), int(ranks))
        for other in others:
            other.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
