"""PyTorch on a GPU, for `benchmarks.gpu`; see `benchmarks.gpu_serve`.

    python -m benchmarks.gpu_contender_torch SPEC.json eager|compiled

`compiled` is torch.compile with `max-autotune`, which uses CUDA graphs. Adam and the heavy ball are
the fused ones. The networks are those of the training benchmark.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from benchmarks.contender_training_torch import NETWORKS, OPTIMIZERS, fill, moments
from benchmarks.gpu_serve import LAUNCHES, Array, Spec, read_spec, serve, timed
from benchmarks.networks_torch import Module
from benchmarks.networks_torch_sequences import MiniLM

# PyTorch is not installed where types are checked.
torch: Any = importlib.import_module("torch")
f: Any = torch.nn.functional
Tensor: TypeAlias = Any
Network: TypeAlias = Any


def scale(x: Tensor) -> Tensor:
    return x * 2 + 1


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def softmax(x: Tensor) -> Tensor:
    return f.softmax(x, -1)


def row_sum(x: Tensor) -> Tensor:
    return x.sum(-1)


KERNELS: dict[str, Callable[..., Tensor]] = {
    "scale": scale,
    "add": add,
    "gelu": f.gelu,
    "softmax": softmax,
    "row_sum": row_sum,
}


CALLED: dict[str, Callable[..., Network]] = {"minilm": MiniLM}
"""Networks that are not trained here."""


class Scores(Module):
    """What a network gives for its inputs, without a loss."""

    def __init__(self, name: str, network: Network) -> None:
        super().__init__()
        self.name, self.network = name, network

    def forward(self, *given: Tensor) -> Tensor:
        return getattr(self, self.name)(self.network, *given)

    def mlp(self, n: Network, image: Tensor) -> Tensor:
        return n.net(image)

    def resnet50(self, n: Network, image: Tensor) -> Tensor:
        return n.logits((image.float() / 128 - 1).permute(0, 3, 1, 2))

    def gpt(self, n: Network, ids: Tensor) -> Tensor:
        x = f.embedding(ids, n.tokens) + n.positions[: ids.shape[1]]
        for block in n.blocks:
            x = block(x)
        return f.linear(n.last(x), n.tokens)

    def minilm(self, n: Network, ids: Tensor) -> Tensor:
        return n(ids)

    def lstm(self, n: Network, ids: Tensor) -> Tensor:
        return n.head(n.rnn2(n.rnn1(f.embedding(ids, n.tokens))))

    def ncf(self, n: Network, user: Tensor, item: Tensor) -> Tensor:
        product = n.user_factors(user) * n.item_factors(item)
        traits = torch.cat([n.user_traits(user), n.item_traits(item)], -1)
        return n.head(torch.cat([product, n.tower(traits)], -1)).flatten().sigmoid()


def set_precision(precision: str) -> None:
    """Whether factors in f32 may be rounded to tf32: of products and of convolutions alike."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def compiled(function: Network, how: str) -> Network:
    return torch.compile(function, mode="max-autotune") if how == "compiled" else function


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def on_device(spec: Spec) -> list[Tensor]:
    """The arrays of the case; whole numbers as PyTorch wants its indices."""
    found = [torch.from_numpy(array).to(spec.device) for array in spec.arrays().values()]
    found = [x.long() if x.dtype == torch.int32 else x for x in found]
    low = spec.precision == "bf16"
    return [x.bfloat16() if low and x.is_floating_point() else x for x in found]


def network_of(spec: Spec) -> Network:
    """The network with our weights, on the device."""
    network = {**NETWORKS, **CALLED}[spec.name](**spec.settings).to(
        memory_format=torch.channels_last
    )
    fill(network, spec.weights())
    for module in network.modules():
        if isinstance(getattr(module, "zeros", None), torch.Tensor):
            module.zeros = module.zeros.to(spec.device)  # it is none of the parameters
    return network.to(spec.device)


def many(call: Callable[[], object], spec: Spec) -> Callable[[], float]:
    """Milliseconds of a launch, of several that are not waited for in between."""

    def measure() -> float:
        begin = time.perf_counter()
        for _ in range(LAUNCHES):
            call()
        wait(spec.device)
        return (time.perf_counter() - begin) * 1e3 / LAUNCHES

    return measure


def called(spec: Spec, how: str) -> tuple[dict[str, Array], Callable[[], float], float]:
    """A kernel, a product, or a network."""
    begin = time.perf_counter()
    given = on_device(spec)
    match spec.kind:
        case "kernels":
            function = KERNELS[spec.name]
        case "products":
            function = torch.matmul
        case _:
            function = Scores(spec.name, network_of(spec).eval())
    run = compiled(function, how)

    def call() -> Tensor:
        with torch.inference_mode():
            return run(*given)

    def waited() -> None:
        call()
        wait(spec.device)

    found = call().float().cpu().numpy()
    ready = time.perf_counter() - begin
    measure = timed(waited) if spec.kind == "inference" else many(call, spec)
    return {"result": spec.compared(found)}, measure, ready


def trained(spec: Spec, how: str) -> tuple[dict[str, Array], Callable[[], float], float]:
    """A step of training."""
    begin = time.perf_counter()
    batch = dict(zip(spec.arrays(), on_device(spec), strict=True))
    network = network_of(spec)
    moment, make = OPTIMIZERS[spec.optimizer]
    updates = make(network.parameters())
    forward = compiled(network, how)

    def step() -> float:
        updates.zero_grad()
        loss = forward(**batch)
        loss.backward()
        updates.step()
        return loss.item()

    results: dict[str, Array] = {"loss": np.asarray(step())}
    ready = time.perf_counter() - begin
    here: Mapping[Any, Mapping[str, Any]] = {
        parameter: {moment: state[moment].cpu()} for parameter, state in updates.state.items()
    }
    results |= moments(network, here, moment)
    results["second_loss"] = np.asarray(step())
    return results, timed(step), ready


def main() -> None:
    """Make what is measured, write results, and serve."""
    spec, how = read_spec(), sys.argv[2]
    set_precision(spec.precision)
    results, measure, ready = (trained if spec.kind == "training" else called)(spec, how)
    spec.write(results)
    serve(measure, {"ready_s": ready})


if __name__ == "__main__":
    main()
