"""Real networks, imported and compiled, against onnxruntime.

The light graphs come in the onnx package; the others are files of packages that tests do not install:
each is skipped unless the folder of its unpacked wheels is named by DLC_ONNX_MODELS.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto

from dlc.driver.compile import Opened, Settings, compile_opened
from dlc.importers.onnx import import_graph
from dlc.importers.onnx.reading import graph_of
from dlc.ir.passes import Context
from dlc.runtime.model import Model
from tests.conformance.seeded import seeded
from tests.importers.onnx_models import Array, expected

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
TOLERANCE = 1e-4
"""Of the largest result."""


def before_softmax(model: ModelProto) -> ModelProto:
    """The model without a softmax at its end, which would hide errors or blow them up."""
    last = model.graph.node[-1]
    if last.op_type == "Softmax":
        model.graph.output[0].name = last.input[0]
        model.graph.output[0].ClearField("type")
        del model.graph.node[-1]
    return model


def compiled(model: ModelProto, inputs: dict[str, Array]) -> list[Array]:
    """What our code computes, of the artifact's first entry point."""
    made = import_graph(graph_of(model, "network.onnx", Path()))
    texts = {"network.onnx": made.listing}
    opened = Opened(made.module, Context(), "network", texts, Path(), arrays=made.arrays)
    found = Model(compile_opened(opened, Settings()))
    (entry,) = found.entry_points.values()
    results = entry(*inputs.values())
    if isinstance(results, tuple):
        return [np.asarray(result) for result in cast("tuple[Array, ...]", results)]
    return [np.asarray(results)]


def feeds(model: ModelProto) -> dict[str, Array]:
    """Random inputs; sizes that are not numbers become 2."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    stream = np.random.default_rng(1)
    found: dict[str, Array] = {}
    for declared in session.get_inputs():
        shape = [size if isinstance(size, int) else 2 for size in declared.shape]
        if "int" in declared.type:
            found[declared.name] = stream.integers(0, 257, shape).astype(np.int32)
        else:
            found[declared.name] = stream.standard_normal(shape).astype(np.float32)
    return found


def agree(model: ModelProto) -> None:
    inputs = feeds(model)
    for got, wanted in zip(compiled(model, inputs), expected(model, inputs), strict=True):
        error = np.abs(got - wanted).max() / np.abs(wanted).max()
        assert error <= TOLERANCE
        assert np.argmax(got) == np.argmax(wanted)


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_a_light_graph_with_seeded_weights_agrees(path: Path) -> None:
    agree(before_softmax(seeded(ModelProto.FromString(path.read_bytes()))))


@pytest.mark.long
@pytest.mark.parametrize("name", ["centerface.onnx", "standard_v3_3/model.onnx"])
def test_a_trained_network_agrees(name: str) -> None:
    found = sorted(Path(os.environ.get("DLC_ONNX_MODELS", "/nowhere")).glob(f"**/{name}"))
    if not found:
        pytest.skip(f"no {name}: set DLC_ONNX_MODELS to a folder with the unpacked wheel")
    agree(before_softmax(ModelProto.FromString(found[0].read_bytes())))
