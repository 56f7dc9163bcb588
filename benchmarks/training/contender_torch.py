"""A training step of PyTorch, for `benchmarks.training`.

    python -m benchmarks.training.contender_torch HOW NETWORK SETTINGS OPTIMIZER BATCH.npz START.npz
        RESULTS.npz THREADS

HOW is `eager` or `compiled` (torch.compile). START has the weights to begin with under our names; RESULTS
get the losses of the first two steps and the first moment of each gradient after the first, under our names
and in our layout. Then it serves steps. Adam and the heavy ball are the fused ones, the fastest there are.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders.serve import serve
from benchmarks.training import networks_torch as pictures
from benchmarks.training import networks_torch_sequences as sequences

# PyTorch is not installed where types are checked.
torch: Any = importlib.import_module("torch")
nn: Any = torch.nn
Array: TypeAlias = NDArray[Any]
Module: TypeAlias = Any
Weights: TypeAlias = Any
Optimizer: TypeAlias = Any
Tensor: TypeAlias = Any

NETWORKS: dict[str, Callable[..., Any]] = {
    "mlp": pictures.MLP,
    "resnet18": pictures.ResNet18,
    "gpt": sequences.GPT,
    "lstm": sequences.Language,
    "ncf": sequences.NCF,
    "alexnet": pictures.AlexNet,
    "vgg19": pictures.VGG19,
    "resnet50": pictures.ResNet50,
    "mobilenet_v1": pictures.MobileNetV1,
    "mobilenet_v2": pictures.MobileNetV2,
    "gnmt": sequences.GNMT,
}


def adam(weights: Weights) -> Optimizer:
    return torch.optim.Adam(weights, 1e-3, fused=True)


def momentum(weights: Weights) -> Optimizer:
    return torch.optim.SGD(weights, 0.01, momentum=0.9, fused=True)


OPTIMIZERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "adam": ("exp_avg", adam),
    "momentum": ("momentum_buffer", momentum),
}
"""By our name: what PyTorch calls the first moment, and the optimizer."""

NORMS = (nn.BatchNorm2d, nn.LayerNorm)
GATES = [0, 1, 3, 2]
"""Our gates are in the order i, f, o, g, PyTorch's i, f, g, o; the exchange is its own inverse."""
METHODS = {"forwards": "forward", "backwards": "backward"}
"""Submodules whose names PyTorch has for methods."""


class Weight(NamedTuple):
    """A parameter, its name in our text, its number in a stack of ours, and the module it belongs to."""

    parameter: Any
    name: str
    number: int | None
    owner: Module


def weights_of(module: Module, path: str = "", number: int | None = None) -> Iterator[Weight]:
    """All parameters of a network."""
    first, second = ("scale", "shift") if isinstance(module, NORMS) else ("w", "b")
    names = {"weight": first, "bias": second}
    for name, parameter in module.named_parameters(recurse=False):
        yield Weight(parameter, f"{path}{names.get(name, name)}", number, module)
    for name, child in module.named_children():
        inside = f"{path}{METHODS.get(name, name)}."
        if isinstance(child, nn.ModuleList):
            for k, block in enumerate(child):
                yield from weights_of(block, inside, k)
        else:
            yield from weights_of(child, inside, number)


def _regated(array: Array) -> Array:
    """With the gates, one after the other in the first axis, in the other order."""
    gates = array.reshape(4, -1, *array.shape[1:])
    return gates[GATES].reshape(array.shape)


def to_torch(owner: Module, array: Array) -> Array:
    """A weight of ours, inputs before outputs, as PyTorch has it."""
    match owner:
        case nn.Linear() if array.ndim == 2:
            return array.T
        case nn.Conv2d() if array.ndim == 4:
            return array.transpose(3, 2, 0, 1)
        case sequences.LSTM():
            return _regated(array.T)
        case _:
            return array


def from_torch(owner: Module, array: Array) -> Array:
    """The inverse of `to_torch`."""
    match owner:
        case nn.Linear() if array.ndim == 2:
            return array.T
        case nn.Conv2d() if array.ndim == 4:
            return array.transpose(2, 3, 1, 0)
        case sequences.LSTM():
            return _regated(array).T
        case _:
            return array


def fill(network: Module, start: Mapping[str, Array]) -> None:
    """Give a network our weights."""
    with torch.no_grad():
        for parameter, name, number, owner in weights_of(network):
            array = start[f"weight:{name}"]
            ours = to_torch(owner, array if number is None else array[number])
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(ours)))


def moments(
    network: Module, state: Mapping[Any, Mapping[str, Any]], moment: str
) -> dict[str, Array]:
    """The first moment of each gradient, by our names, stacks as one array."""
    found: dict[str, list[Array]] = defaultdict(list)
    stacked: set[str] = set()
    for parameter, name, number, owner in weights_of(network):
        found[name].append(from_torch(owner, state[parameter][moment].numpy().copy()))
        if number is not None:
            stacked.add(name)
    return {
        f"moment:{name}": np.stack(arrays) if name in stacked else arrays[0]
        for name, arrays in found.items()
    }


def step_bytes(step: Callable[[], object]) -> int:
    """The most that PyTorch's allocator had given out during a step, beside what it had before."""
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    with tempfile.TemporaryDirectory() as made:
        path = Path(made, "trace.json")
        profile.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    changes.sort(key=lambda event: event["ts"])
    return max(accumulate(event["args"]["Bytes"] for event in changes), default=0)


def read_batch(file: str, part: int = 0, parts: int = 1) -> dict[str, Tensor]:
    """The arguments of a network's loss, or the part of a rank."""
    with np.load(file) as arrays:
        batch = {name: torch.from_numpy(np.split(arrays[name], parts)[part]) for name in arrays}
    return {name: x.long() if x.dtype == torch.int32 else x for name, x in batch.items()}


def make_network(name: str, settings: str, start: str) -> Module:
    """A network with our weights in the file `start`."""
    network = NETWORKS[name](**json.loads(settings)).to(memory_format=torch.channels_last)
    with np.load(start) as file:
        fill(network, file)
    return network


def train_step(
    forward: Callable[..., Tensor], updates: Optimizer, batch: Mapping[str, Tensor]
) -> Tensor:
    """A step of training, and the loss before it."""
    updates.zero_grad()
    loss = forward(**batch)
    loss.backward()
    updates.step()
    return loss


def main(
    how: str,
    name: str,
    settings: str,
    optimizer: str,
    given: str,
    start: str,
    results: str,
    threads: str,
) -> None:
    """Make a network and two steps, and serve more."""
    torch.set_num_threads(int(threads))
    batch = read_batch(given)
    begin = time.perf_counter()
    network = make_network(name, settings, start)
    moment, make = OPTIMIZERS[optimizer]
    updates = make(network.parameters())
    forward = torch.compile(network) if how == "compiled" else network

    def step() -> float:
        return train_step(forward, updates, batch).item()

    found: dict[str, Any] = {"loss": step()}
    facts = {"ready_s": time.perf_counter() - begin}
    found |= moments(network, updates.state, moment)
    found["second_loss"] = step()
    np.savez(results, allow_pickle=False, **found)
    step()
    updates.zero_grad()
    facts["step_bytes"] = step_bytes(step)
    serve(step, facts)


if __name__ == "__main__":
    main(*sys.argv[1:])
