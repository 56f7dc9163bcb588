"""Measures networks of the zoo by `dlc.from_torch`, each in a process of its own.

    python -m benchmarks.torch_suite.measuring PATTERN PARTS SECONDS LIMIT

Runs in an environment that has PyTorch, the packages of the networks, and dlc. What all share is imported
once; a child is forked for each network and part, ended after LIMIT seconds, and tells in one line of JSON
what became of it. None is begun after SECONDS.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, cast

import dlc
from benchmarks.zoo import catalogue, networks
from benchmarks.zoo.catalogue import CATALOGUE, MIDDLE, Flat, Model, Network, Tensor, tensors
from benchmarks.zoo.exporting import ended, first_words

if TYPE_CHECKING:
    from dlc.importers.torch.dynamic import Dynamic

torch = catalogue.torch

TOLERANCE = 1e-4
"""Of the largest element of a result; integers and truth values must be equal."""
GRADIENT_TOLERANCE = 1e-5
"""Of the largest element of the gradient by one parameter, in f32."""
EXACT_TOLERANCE = 1e-7
"""The same in f64, which decides where f32 is farther apart. It is no smaller because PyTorch multiplies
by the 1/6 of f32 in its f64, too (hardsigmoid)."""
SMALLEST = 1e-3
"""The least that the largest element of a result counts as."""
SMALLEST_GRADIENT = 1e-4
"""The least that the largest element of a gradient counts as, of the largest of all parameters: the
derivative by a bias before a norm is 0, and rounding is all that is left of it."""
EXPORT_REFUSED = "D0717"


@dataclass(frozen=True, slots=True)
class Found:
    """What became of one part of a network: `right`, `wrong`, `refused`, `not exported` or `failed`."""

    verdict: str
    error: float | None = None
    why: str = ""


def static(net: Network) -> Found:
    """The sizes of the example."""
    compiled = dlc.from_torch(plain(net), given(net, MIDDLE))
    return compared(net.module, compiled, [given(net, MIDDLE)])


def dynamic(net: Network) -> Found:
    """Sizes that each call chooses, at three of them."""
    axes = [each.axes for each in net.inputs.values()]
    chosen = cast("Dynamic", [axes] if isinstance(net.module, Flat) else axes)
    compiled = dlc.from_torch(plain(net), given(net, MIDDLE), dynamic=chosen)
    return compared(net.module, compiled, [given(net, which) for which in (MIDDLE, 0, 2)])


def gradients(net: Network) -> Found:
    """The derivatives of a random sum of all results by all parameters and by inputs that are floats.

    Batch norms are in training mode. Where f32 is too far from PyTorch's, f64 decides.
    """
    for part in plain(net).modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.train()
    if not runs(net):  # pictures of one element have no variance
        return Found("no network")
    error = gradient_error(plain(net), given(net, MIDDLE))
    if error <= GRADIENT_TOLERANCE:
        return Found("right", error)
    exact = gradient_error(doubled(plain(net)), [doubled(each) for each in given(net, MIDDLE)])
    verdict = "right" if exact <= EXACT_TOLERANCE else "wrong"
    return Found(verdict, error, f"{exact:.1e} in f64")


PARTS: dict[str, Callable[[Network], Found]] = {
    "static": static,
    "dynamic": dynamic,
    "gradients": gradients,
}


def plain(net: Network) -> Model:
    """The module of a network."""
    return net.module


def given(net: Network, which: int) -> tuple[Tensor, ...]:
    """The inputs as tensors."""
    return tuple([torch.from_numpy(each) for each in net.given(which).values()])


def doubled(value: Model) -> Model:
    """A module or a tensor of floats in f64; other tensors as they are."""
    floats = not isinstance(value, torch.Tensor) or value.is_floating_point()
    return value.double() if floats else value


def compared(module: Model, compiled: Model, calls: Sequence[tuple[Tensor, ...]]) -> Found:
    """The largest difference of results, relative to the largest element of the one that it is in."""
    error = 0.0
    with torch.no_grad():
        for call in calls:
            ours, theirs = ([*tensors(each(*call))] for each in (compiled, module))
            shapes = [[(each.shape, each.dtype) for each in side] for side in (ours, theirs)]
            if shapes[0] != shapes[1]:
                return Found("wrong", why=f"{shapes[0]} instead of {shapes[1]}")
            for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                if not other.is_floating_point() and not torch.equal(one, other):
                    return Found("wrong", why=f"the integers of result {place}")
                error = max(error, difference(one, other, SMALLEST))
    return Found("right" if error <= TOLERANCE else "wrong", error)


def difference(one: Tensor, other: Tensor, smallest: float) -> float:
    """The largest difference of two tensors, relative to the largest finite element of the other."""
    one, other = one.detach().double(), other.detach().double()
    same = (one == other) | (one.isnan() & other.isnan())
    apart = torch.where(same, 0.0, (one - other).abs()).nan_to_num(nan=torch.inf)
    if not apart.numel():
        return 0.0
    largest = float(other[other.isfinite()].abs().amax()) if other.isfinite().any() else 0.0
    return float(apart.amax()) / max(largest, smallest)


def gradient_error(module: Model, inputs: Sequence[Tensor]) -> float:
    """The largest difference of a gradient from PyTorch's, relative to its largest element."""
    inputs = [each.requires_grad_(each.is_floating_point()) for each in inputs]
    states = [(each, each.clone()) for each in module.buffers()]
    compiled = dlc.from_torch(module, tuple(inputs), gradients=True)
    wanted = [*inputs, *module.parameters()]
    wanted = [each for each in wanted if each.requires_grad]
    ours = gradients_by(compiled, inputs, wanted)
    for state, before in states:
        state.copy_(before)
    theirs = gradients_by(module, inputs, wanted)
    largest = max(float(each.abs().max()) for each in theirs if each.numel())
    smallest = max(SMALLEST_GRADIENT * largest, sys.float_info.min)
    pairs = zip(ours, theirs, strict=True)
    return max(difference(one, other, smallest) for one, other in pairs)


def gradients_by(call: Model, inputs: Sequence[Tensor], wanted: Sequence[Tensor]) -> list[Tensor]:
    """The derivatives of a sum of the results with random factors; zeros where there is none."""
    stream = torch.Generator().manual_seed(0)
    results = [each for each in tensors(call(*inputs)) if each.is_floating_point()]
    factors = [torch.randn(each.shape, generator=stream).to(each.dtype) for each in results]
    ends = [k for k, each in enumerate(results) if each.requires_grad]
    found = torch.autograd.grad(
        [results[k] for k in ends], wanted, [factors[k] for k in ends], allow_unused=True
    )
    pairs = zip(found, wanted, strict=True)
    return [torch.zeros_like(one) if made is None else made for made, one in pairs]


def main(pattern: str, parts: str, seconds: str, limit: str) -> None:
    """Measure what the pattern names and print a line for each part of each network."""
    for module in pkgutil.iter_modules(networks.__path__):
        importlib.import_module(f"{networks.__name__}.{module.name}")
    torch.set_num_threads(1)
    end = time.monotonic() + float(seconds)
    for name in CATALOGUE:
        for part in parts.split(","):
            if fnmatch(name, pattern) and time.monotonic() < end:
                print(json.dumps(one(name, part, float(limit))), flush=True)


def one(name: str, part: str, limit: float) -> dict[str, object]:
    """Measure in a child process."""
    reading, writing = os.pipe()
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, json.dumps(attempt(name, part)).encode())
        os._exit(0)
    os.close(writing)
    done = ended(child, limit)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode(errors="replace")
    missing: dict[str, object] = {
        "verdict": "failed",
        "why": "ended the process" if done else f"took {limit:g} s",
    }
    found: dict[str, object] = json.loads(told) if told else missing
    return {"name": name, "part": part, **found, "seconds": round(time.monotonic() - begin, 1)}


def attempt(name: str, part: str) -> dict[str, object]:
    """What became of it, whatever it raised."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    warnings.simplefilter("ignore")
    try:
        torch.manual_seed(zlib.crc32(name.encode()))
        net = made(name)
        found = Found("no network") if net is None else PARTS[part](net)
    except dlc.Unsupported as error:
        exporter = any(each.code == EXPORT_REFUSED for each in error.diagnostics)
        found = Found("not exported" if exporter else "refused", why=first_words(error))
    except BaseException as error:  # noqa: BLE001 - whatever stops it is told
        found = Found("failed", why=first_words(error))
    return {"verdict": found.verdict, "error": found.error, "why": found.why}


def made(name: str) -> Network | None:
    """A network that runs, or None: packages drop networks, and refuse what they used to take."""
    try:
        net = CATALOGUE[name]()
    except Exception:  # noqa: BLE001 - a network raises whatever it likes
        return None
    plain(net).eval()
    return net if runs(net) else None


def runs(net: Network) -> bool:
    """Whether PyTorch itself runs a network, in the mode that its parts are in."""
    try:
        with torch.no_grad():
            plain(net)(*given(net, MIDDLE))
    except Exception:  # noqa: BLE001 - a network raises whatever it likes
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
