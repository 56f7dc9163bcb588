"""PyTorch on a GPU, for `benchmarks.gpu`; see `benchmarks.gpu.serve`.

    python -m benchmarks.gpu.contender_torch SPEC.json eager|compiled

`compiled` is torch.compile with `max-autotune`, which uses CUDA graphs. Adam and the heavy ball are
the fused ones. The networks are those of the training benchmark.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from benchmarks.gpu.serve import LAUNCHES, Array, Spec, answers, read_spec, serve, timed
from benchmarks.training.contender_torch import (
    NETWORKS,
    OPTIMIZERS,
    fill,
    moments,
    train_step,
    weights_of,
)
from benchmarks.training.networks_torch import Module
from benchmarks.training.networks_torch_sequences import LSTM, MiniLM

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


def layer_norm(x: Tensor) -> Tensor:
    return f.layer_norm(x, x.shape[-1:])


def column_sum(x: Tensor) -> Tensor:
    return x.sum(0)


def transpose(x: Tensor) -> Tensor:
    return x.t().contiguous()


def embedding(x: Tensor, ids: Tensor) -> Tensor:
    return f.embedding(ids, x)


def adam(x: Tensor, y: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    m = 0.9 * m + 0.1 * y
    v = torch.sqrt(0.999 * v**2 + 0.001 * y * y)
    return x - 0.001 * m / (v + 1e-6), m, v


KERNELS: dict[str, Callable[..., Tensor]] = {
    "scale": scale,
    "add": add,
    "gelu": f.gelu,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "row_sum": row_sum,
    "column_sum": column_sum,
    "transpose": transpose,
    "embedding": embedding,
    "adam": adam,
    "product": torch.matmul,
    "attention": f.scaled_dot_product_attention,
}

DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
CALLED: dict[str, Callable[..., Network]] = {"minilm": MiniLM}
"""Networks that are not trained here."""


class Rounded(Module):
    """A network whose weights are f32, and some of them rounded to bf16 for every call.

    `names` are those weights, as PyTorch calls them.
    """

    def __init__(self, network: Network, names: frozenset[str]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, **given: Tensor) -> Tensor:
        weights = self.network.named_parameters()
        rounded = {name: weight.bfloat16() for name, weight in weights if name in self.names}
        return torch.func.functional_call(self.network, rounded, kwargs=given)


def set_precision(precision: str) -> None:
    """Whether factors in f32 may be rounded to tf32, of products and of convolutions; sums are f32."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cudnn.benchmark = True


def compiled(function: Network, how: str) -> Network:
    return torch.compile(function, mode="max-autotune") if how == "compiled" else function


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def on_device(spec: Spec) -> list[Tensor]:
    """The arrays of the case; whole numbers as PyTorch wants its indices."""
    arrays = list(spec.arrays().values())
    dtype = getattr(torch, DTYPES[spec.dtype])
    found = [torch.from_numpy(array).to(spec.device) for array in arrays]
    found = [x.long() if x.dtype == torch.int32 else x for x in found]
    return [x.to(dtype) if spec.rounds(a) else x for x, a in zip(found, arrays, strict=True)]


def network_of(spec: Spec) -> Network:
    """The network with our weights, in f32, on the device."""
    network = {**NETWORKS, **CALLED}[spec.name](**spec.settings).to(
        memory_format=torch.channels_last
    )
    fill(network, spec.weights())
    for module in network.modules():
        if isinstance(module, LSTM):  # they are none of the parameters
            module.zeros = module.zeros.to(spec.device, getattr(torch, DTYPES[spec.dtype]))
    return network.to(spec.device)


def narrow_of(network: Network, spec: Spec) -> frozenset[str]:
    """What PyTorch calls the weights that are bf16 in calls."""
    ours = {id(weight.parameter): weight.name for weight in weights_of(network)}
    names = spec.narrow()
    return frozenset(name for name, p in network.named_parameters() if ours[id(p)] in names)


def rounded_for_good(network: Network, names: frozenset[str]) -> Network:
    """The network with these weights in bf16."""
    for name, parameter in network.named_parameters():
        if name in names:
            parameter.data = parameter.data.bfloat16()
    return network


def many(call: Callable[[], object], spec: Spec) -> Callable[[], float]:
    """Milliseconds of a launch, of several that are not waited for in between."""

    def by_processor() -> float:
        begin = time.perf_counter()
        for _ in range(LAUNCHES):
            call()
        return (time.perf_counter() - begin) * 1e3 / LAUNCHES

    def by_gpu() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(LAUNCHES):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / LAUNCHES

    return by_gpu if spec.device == "cuda" else by_processor


def convolution(spec: Spec, given: list[Tensor]) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """A convolution, and its arrays as PyTorch names their axes; channels stay last in memory."""
    x, w = given
    weights = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    stride, padding = spec.settings["stride"], spec.settings["padding"]

    def run(x: Tensor, w: Tensor) -> Tensor:
        return f.conv2d(x, w, None, stride, padding).permute(0, 2, 3, 1)

    return run, [x.permute(0, 3, 1, 2), weights]


def attention_gradient(how: str) -> Callable[..., Tensor]:
    """The gradients of attention, of which the forward pass is compiled, and so its backward pass."""
    forward = compiled(f.scaled_dot_product_attention, how)

    def run(q: Tensor, k: Tensor, v: Tensor, dy: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            return torch.autograd.grad(forward(q, k, v), (q, k, v), dy)

    return run


def called(spec: Spec, how: str) -> tuple[dict[str, Array], Callable[[], float], float]:
    """A kernel, a product, or a network."""
    begin = time.perf_counter()
    given = on_device(spec)
    match spec.name:
        case "convolution":
            function, given = convolution(spec, given)
            run = compiled(function, how)
        case "attention_gradient":
            run = attention_gradient(how)
            given = [*[x.requires_grad_() for x in given[:3]], given[3]]
        case _ if spec.is_network:
            network = network_of(spec).eval()
            run = compiled(rounded_for_good(network, narrow_of(network, spec)).scores, how)
        case _:
            run = compiled(KERNELS[spec.name], how)

    def call() -> Tensor:
        with torch.inference_mode():
            return run(*given)

    def waited() -> None:
        call()
        wait(spec.device)

    found = call()
    several = cast("tuple[Tensor, ...]", found if isinstance(found, tuple) else (found,))
    results = spec.compared([one.detach().float().cpu().numpy() for one in several])
    ready = time.perf_counter() - begin
    measure = timed(waited) if spec.kind == "inference" else many(call, spec)
    return results, measure, ready


def trained(spec: Spec, how: str) -> tuple[dict[str, Array], Callable[[], float], float]:
    """A step of training."""
    begin = time.perf_counter()
    batch = dict(zip(spec.arrays(), on_device(spec), strict=True))
    network = network_of(spec)
    moment, make = OPTIMIZERS[spec.optimizer]
    updates = make(network.parameters())
    narrow = narrow_of(network, spec)
    forward = compiled(Rounded(network, narrow) if narrow else network, how)

    def step() -> float:
        return train_step(forward, updates, batch).item()

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
    out, spec, how = answers(), read_spec(), sys.argv[2]
    set_precision(spec.precision)
    results, measure, ready = (trained if spec.kind == "training" else called)(spec, how)
    spec.write(results)
    serve(out, measure, {"ready_s": ready})


if __name__ == "__main__":
    main()
