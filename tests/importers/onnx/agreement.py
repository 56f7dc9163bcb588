"""How well compiled networks agree with onnxruntime: the networks there are, and what is compared.

The light graphs come in the onnx package and get seeded weights. Further networks, trained ones, are all
`.onnx` files below the folder that the environment variable DLC_ONNX_MODELS names; one that has test data
beside it (`test_data_set_0`) is given that, the others random numbers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, numpy_helper

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.source_model import SourceModel
from dlc.importers.onnx import import_graph
from dlc.importers.onnx.reading import graph_of
from dlc.ir.passes import Context
from dlc.runtime.model import Model
from tests.conformance.seeded import seeded
from tests.importers.onnx.models import Array, expected, results

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
FOLDER = "DLC_ONNX_MODELS"
TOLERANCE = 1e-4
"""Of the largest result."""
MATMULS = ("blas", "generated")
UNKNOWN_SIZE = 2
"""What a size that is not a number becomes."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network in a file; `is_light` for one that comes without weights."""

    name: str
    path: Path
    is_light: bool = False

    def model(self) -> ModelProto:
        """The model with weights, without a softmax at its end, which would hide errors or blow them up."""
        model = ModelProto.FromString(self.path.read_bytes())
        model = seeded(model) if self.is_light else model
        last = model.graph.node[-1]
        if last.op_type == "Softmax" and len(model.graph.output) == 1:
            model.graph.output[0].name = last.input[0]
            model.graph.output[0].ClearField("type")
            del model.graph.node[-1]
        return model

    def inputs(self, model: ModelProto) -> dict[str, Array]:
        """Arrays for its inputs, by their names."""
        files = sorted((self.path.parent / "test_data_set_0").glob("input_*.pb"))
        if not files:
            return random_inputs(model)
        held = {tensor.name for tensor in model.graph.initializer}
        names = [value.name for value in model.graph.input if value.name not in held]
        arrays = [numpy_helper.to_array(TensorProto.FromString(f.read_bytes())) for f in files]
        return dict(zip(names, arrays, strict=True))


@dataclass(frozen=True, slots=True)
class Agreement:
    """What came of a network: the largest error, relative to the largest result of onnxruntime."""

    error: float
    same_top: bool
    same_bits: bool
    """Whether one thread and two give the same bits."""
    seconds: float
    """For compiling."""

    @property
    def holds(self) -> bool:
        """Whether that is as it must be."""
        return self.error <= TOLERANCE and self.same_top and self.same_bits


def light_networks() -> tuple[Network, ...]:
    """The nine networks of the onnx package."""
    return tuple([Network(path.stem, path, True) for path in sorted(LIGHT.glob("*.onnx"))])


def trained_networks() -> tuple[Network, ...]:
    """The networks in the folder that the environment names; none without it."""
    folder = os.environ.get(FOLDER)
    paths = [] if folder is None else sorted(Path(folder).glob("**/*.onnx"))
    return tuple([Network(str(path.relative_to(folder or "")), path) for path in paths])


def random_inputs(model: ModelProto) -> dict[str, Array]:
    """Random inputs, the same each time."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # its threads would spin beside the other tests
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    stream = np.random.default_rng(1)
    found: dict[str, Array] = {}
    for declared in session.get_inputs():
        shape = [size if isinstance(size, int) else UNKNOWN_SIZE for size in declared.shape]
        match declared.type:
            case "tensor(float)":
                found[declared.name] = stream.standard_normal(shape).astype(np.float32)
            case "tensor(int32)":
                found[declared.name] = stream.integers(0, 257, shape, np.int32)
            case "tensor(int64)":
                found[declared.name] = stream.integers(0, 2, shape, np.int64)
            case "tensor(bool)":
                found[declared.name] = stream.integers(0, 2, shape).astype(np.bool_)
            case kind:
                raise ValueError(f"no random numbers for the input {declared.name}, {kind}")
    return found


def agreement(network: Network, matmul: str) -> Agreement:
    """Compile a network and compare it with onnxruntime."""
    proto = network.model()
    inputs = network.inputs(proto)
    wanted = expected(proto, inputs)
    start = time.perf_counter()
    made = import_graph(graph_of(proto, network.path.name, network.path.parent))
    texts = {network.path.name: made.listing}
    opened = SourceModel(made.module, Context(), network.name, texts, Path(), arrays=made.arrays)
    artifact = compile_model(opened, Settings(matmul=matmul))
    seconds = time.perf_counter() - start
    one, two = [
        results(Model(artifact, threads=threads), list(inputs.values())) for threads in (1, 2)
    ]
    return Agreement(
        max(_error(got, right) for got, right in zip(one, wanted, strict=True)),
        all(np.argmax(got) == np.argmax(right) for got, right in zip(one, wanted, strict=True)),
        all(x.tobytes() == y.tobytes() for x, y in zip(one, two, strict=True)),
        seconds,
    )


def _error(got: Array, wanted: Array) -> float:
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    if not wanted.size:
        return 0.0
    apart = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max()
    return float(apart / max(np.abs(wanted.astype(np.float64)).max(), 1e-30))


def all_agreements() -> Iterator[tuple[Network, str, Agreement]]:
    """Every network with each way to compute products."""
    for network in (*light_networks(), *trained_networks()):
        for matmul in MATMULS:
            yield network, matmul, agreement(network, matmul)
