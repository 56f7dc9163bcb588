"""Direct convolutions beside Winograd's form: 3 x 3 layers, gradients of kernels, and whole networks.

    python -m benchmarks convolutions [NAME]... [--rounds 20]

A name is a layer of VGG-19 or ResNet-50, the gradient of a kernel in a step of ResNet-18 with 32 pictures,
or a network of `benchmarks networks`; without one all layers and gradients and two networks are measured. A
line has the processor time of one thread, the fastest of some calls in turns, for `--conv direct` and
`--conv auto`; of a layer or gradient also the root mean square errors of both, against float64, by the
largest result.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.networks.files import network, network_names, random_inputs
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_model
from dlc.runtime.calling.results import Out

Floats = NDArray[np.float32]
Run = Callable[[], object]
CONVS = ("direct", "auto")


class Layer(NamedTuple):
    """A layer: height and width of its pictures, and its channels."""

    size: int
    channels: int
    outputs: int


LAYERS: Mapping[str, Layer] = {
    "vgg-224": Layer(224, 64, 64),
    "vgg-112": Layer(112, 128, 128),
    "vgg-56": Layer(56, 256, 256),
    "vgg-28": Layer(28, 512, 512),
    "vgg-14": Layer(14, 512, 512),
    "resnet-56": Layer(56, 64, 64),
    "resnet-28": Layer(28, 128, 128),
    "resnet-14": Layer(14, 256, 256),
    "resnet-7": Layer(7, 512, 512),
}
GRADIENTS: Mapping[str, Layer] = {
    "gradient-32": Layer(32, 64, 64),
    "gradient-16": Layer(16, 128, 128),
    "gradient-8": Layer(8, 256, 256),
    "gradient-4": Layer(4, 512, 512),
}
BATCH = 32
"""Pictures of a gradient."""
NETWORKS = ("vgg19", "resnet50")
TEXT = """dlc 1
module Layer {{
  param w: f32[3, 3, {channels}, {outputs}] = zeros()
  param b: f32[{outputs}] = zeros()
  export fn f(x: f32[1, {size}, {size}, {channels}]) -> f32[1, {size}, {size}, {outputs}] =
    relu(conv(x, w, padding=1) + b)
}}
"""
GRADIENT_TEXT = """dlc 1
fn y(x: f32[{batch}, {size}, {size}, {channels}], w: f32[3, 3, {channels}, {outputs}])
  -> f32[{batch}, {size}, {size}, {outputs}] = conv(x, w, padding=1)
export fn f(
  x: f32[{batch}, {size}, {size}, {channels}],
  w: f32[3, 3, {channels}, {outputs}],
  dy: f32[{batch}, {size}, {size}, {outputs}],
) -> f32[3, 3, {channels}, {outputs}] = vjp(y, wrt=w)(x, w, dy=dy)
"""


def layer_line(name: str, rounds: int) -> str:
    """What was measured of a layer."""
    layer = LAYERS[name]
    random = np.random.default_rng(0)
    w = random.standard_normal((3, 3, layer.channels, layer.outputs), np.float32)
    b = np.zeros(layer.outputs, np.float32)
    x = np.maximum(random.standard_normal((1, layer.size, layer.size, layer.channels)), 0)
    x = x.astype(np.float32)
    exact = _exact(x, w)
    requests = [
        CompileRequest(
            "layer.dlm",
            text=TEXT.format(**layer._asdict()),
            weights={"w": w, "b": b},
            settings=Settings(conv=conv),
        )
        for conv in CONVS
    ]
    runs = [_run(request, [x]) for request in requests]
    return _line(name, layer, 1, runs, exact, rounds)


def gradient_line(name: str, rounds: int) -> str:
    """What was measured of the gradient of a kernel."""
    layer = GRADIENTS[name]
    random = np.random.default_rng(0)
    pixels = BATCH, layer.size, layer.size
    x = np.maximum(random.standard_normal((*pixels, layer.channels), np.float32), 0)
    dy = random.standard_normal((*pixels, layer.outputs), np.float32)
    w = np.zeros((3, 3, layer.channels, layer.outputs), np.float32)
    text = GRADIENT_TEXT.format(batch=BATCH, **layer._asdict())
    requests = [
        CompileRequest("gradient.dlm", text=text, settings=Settings(conv=conv)) for conv in CONVS
    ]
    runs = [_run(request, [x, w, dy]) for request in requests]
    return _line(name, layer, BATCH, runs, _exact_gradient(x, dy), rounds)


def _line(
    name: str,
    layer: Layer,
    batch: int,
    runs: list[Run],
    exact: NDArray[np.float64],
    rounds: int,
) -> str:
    """Times and errors of both forms."""
    errors = [
        float(np.sqrt(((cast("Floats", run()) - exact) ** 2).mean()) / exact.max()) for run in runs
    ]
    work = 18 * batch * layer.size**2 * layer.channels * layer.outputs
    direct, form = fastest(runs, rounds)
    return (
        f"{name:14} {direct * 1e3:8.3f} {form * 1e3:8.3f} ms  {direct / form:5.2f}  "
        f"{work / direct / 1e9:4.0f} {work / form / 1e9:4.0f} GFLOP/s  "
        f"errors {errors[0]:.1e} {errors[1]:.1e}  {errors[1] / errors[0]:.2f}"
    )


def network_line(name: str, rounds: int) -> str:
    """What was measured of a network."""
    path = network(name)
    inputs = list(random_inputs(path).values())
    requests = [CompileRequest(str(path), settings=Settings(conv=conv)) for conv in CONVS]
    direct, form = fastest([_run(request, inputs) for request in requests], rounds)
    return f"{name:14} {direct * 1e3:8.2f} {form * 1e3:8.2f} ms  {direct / form:5.2f}"


def _run(request: CompileRequest, inputs: list[Floats]) -> Run:
    """Calls of the only entry point, which write into the same memory."""
    model, _ = make_model(request, 1)
    (entry,) = model.entry_points.values()
    out = cast("Out", entry(*inputs))
    return lambda: entry(*inputs, out=out)


def fastest(runs: list[Run], rounds: int) -> list[float]:
    """Seconds of processor time of the fastest call of each, in turns."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for number, run in enumerate(runs):
            begin = time.process_time()
            run()
            best[number] = min(best[number], time.process_time() - begin)
    return best


def _exact(x: Floats, w: Floats) -> NDArray[np.float64]:
    padded = np.pad(x.astype(np.float64), [(0, 0), (1, 1), (1, 1), (0, 0)])
    _, height, width, _ = x.shape
    total = np.zeros((1, height, width, w.shape[-1]))
    for h in range(3):
        for v in range(3):
            total += padded[:, h : h + height, v : v + width] @ w[h, v].astype(np.float64)
    return np.maximum(total, 0)


def _exact_gradient(x: Floats, dy: Floats) -> NDArray[np.float64]:
    padded = np.pad(x.astype(np.float64), [(0, 0), (1, 1), (1, 1), (0, 0)])
    _, height, width, channels = x.shape
    rows = dy.astype(np.float64).reshape(-1, dy.shape[-1])
    windows = [
        padded[:, h : h + height, v : v + width].reshape(-1, channels).T @ rows
        for h in range(3)
        for v in range(3)
    ]
    return np.reshape(windows, (3, 3, channels, -1))


def main() -> None:
    """Measure what the command line names, everything if it names nothing."""
    parser = argparse.ArgumentParser("python -m benchmarks convolutions")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[*LAYERS, *GRADIENTS, *network_names(), []]
    )
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    lines = dict.fromkeys(LAYERS, layer_line) | dict.fromkeys(GRADIENTS, gradient_line)
    for name in given.names or (*LAYERS, *GRADIENTS, *NETWORKS):
        print(lines.get(name, network_line)(name, given.rounds), flush=True)


if __name__ == "__main__":
    main()
