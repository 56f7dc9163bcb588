"""Files of models by name: the networks as ONNX, made the first time, and the texts of the examples."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper

from benchmarks.contenders.environment import cache_folder
from benchmarks.contenders.turns import ROOT
from benchmarks.networks.convolutional import CONV_NETWORKS
from benchmarks.zoo.making import python as exporters
from dlc.driver.compile.settings import Settings
from dlc.driver.memory.asked import models_of
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.source_model import SourceModel
from dlc.runtime.artifact.manifest import STEP
from tests.conformance.seeded import seeded

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
PARTS = {"residual"}
"""Texts of modules for others."""
BATCHES = {"resnet50_batch8": ("resnet50", 8)}
"""Light graphs with another number of pictures."""
EXPORTED = (
    *("vit_b16", "minilm", "minilm_batch8", "gpt_prefill", "lstm_2x512", "gru_256", "mlp", "ncf"),
    *("minilm_int8",),
)
"""The networks of `benchmarks.networks.sequences`, which this environment cannot import."""


def network_names() -> list[str]:
    """The networks there are."""
    light = [path.stem.removeprefix("light_") for path in LIGHT.glob("*.onnx")]
    return [*sorted([*light, *BATCHES, *CONV_NETWORKS]), *EXPORTED]


def network(name: str) -> Path:
    """The file of a network with seeded weights, without a softmax at the end: it would hide errors."""
    path = cache_folder() / "networks" / f"{name}.onnx"
    if not path.exists() and name in EXPORTED:
        path.parent.mkdir(parents=True, exist_ok=True)
        export(name, path)
    elif not path.exists():
        make = CONV_NETWORKS.get(name)
        model = make() if make is not None else _light(*BATCHES.get(name, (name, 1)))
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(model.SerializeToString())
        partial.replace(path)
    return path


def _light(name: str, batch: int) -> ModelProto:
    """A light graph for `batch` pictures."""
    model = seeded(ModelProto.FromString((LIGHT / f"light_{name}.onnx").read_bytes()))
    graph = model.graph
    last = graph.node[-1]
    if last.op_type == "Softmax":
        graph.output[0].name = last.input[0]
        graph.output[0].ClearField("type")
        del graph.node[-1]
    if batch > 1:
        held = {tensor.name for tensor in graph.initializer}
        (picture,) = [value for value in graph.input if value.name not in held]
        picture.type.tensor_type.shape.dim[0].dim_value = batch
        del graph.value_info[:]
        for tensor in graph.initializer:  # of the reshape before the dense layer
            if tensor.name.startswith("OC2_DUMMY"):
                _, *rest = numpy_helper.to_array(tensor)
                tensor.CopyFrom(numpy_helper.from_array(np.array([batch, *rest]), tensor.name))
    return model


def export(name: str, path: Path) -> None:
    """Let PyTorch write a network, and its inputs beside it."""
    with tempfile.TemporaryDirectory(dir=path.parent) as partial:
        command = [exporters(), "-m", "benchmarks.networks.sequences", name, partial]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        # The inputs first: the file of the network says that both are there.
        for made in (path.with_suffix(".npz"), path):
            Path(partial, made.name).replace(made)


def random_inputs(path: Path) -> dict[str, NDArray[Any]]:
    """Numbers for every input that is not a weight."""
    drawn = path.with_suffix(".npz")
    if drawn.exists():
        with np.load(drawn) as file:
            return {key: file[key] for key in file.files}
    graph = ModelProto.FromString(path.read_bytes()).graph
    held = {tensor.name for tensor in graph.initializer}
    stream = np.random.default_rng(1)
    return {
        value.name: stream.standard_normal(
            [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in graph.input
        if value.name not in held
    }


def models(names: Sequence[str]) -> list[str]:
    """All examples and light graphs, or those of these names; a light graph is `light_NAME`."""
    examples = [*ROOT.glob("examples/*.dlm"), *ROOT.glob("examples/networks/*.dlm")]
    found = sorted({path.stem for path in examples} - PARTS)
    found += [f"light_{name}" for name in network_names()]
    for name in names:
        if name not in found:
            sys.exit(f"no model is called {name!r}; there are {', '.join(found)}")
    return [*names] or found


def path_of(name: str) -> Path:
    """The file of one of `models`."""
    if name.startswith("light_"):
        return network(name.removeprefix("light_"))
    own = ROOT / "examples" / f"{name}.dlm"
    return own if own.exists() else ROOT / "examples" / "networks" / f"{name}.dlm"


def opened_models(name: str, settings: Settings) -> Iterator[tuple[SourceModel, CompileRequest]]:
    """One of `models` with its entry points, and as it trains by each of its `train` blocks."""
    request = CompileRequest(str(path_of(name)), settings=settings)
    for number, block in enumerate([row.name for row in request.open().blocks] or [""]):
        chosen = replace(request, block=block or None)
        for model in models_of(chosen, STEP if number else None):
            yield model, chosen
