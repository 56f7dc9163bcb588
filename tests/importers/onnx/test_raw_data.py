"""Large tensors of a file are read where they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper

from dlc.errors import ArtifactError
from dlc.importers.onnx.raw_data import without_raw_data
from dlc.importers.onnx.reading import read_graph
from tests.importers.onnx.models import Array, model_of

LARGE: Array = np.arange(1 << 15, dtype=np.float32).reshape(1 << 7, 1 << 8)
SMALL: Array = np.arange(256, dtype=np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["a"]),
        helper.make_node("Add", ["a", "small"], ["y"]),
    ]
    x = np.ones((1, 128), np.float32)
    model = model_of(nodes, {"x": x}, ["y"], {"large": LARGE, "small": SMALL})
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_large_tensor_stays_in_the_file(file: Path) -> None:
    data = memoryview(file.read_bytes())
    short = without_raw_data(data, "net.onnx")
    assert len(short) < len(data) - LARGE.nbytes + 100
    large, small = ModelProto.FromString(bytes(short)).graph.initializer
    entries = {entry.key: entry.value for entry in large.external_data}
    start = int(entries["offset"])
    assert data[start : start + int(entries["length"])] == LARGE.tobytes()
    assert small.raw_data == SMALL.tobytes() or list(small.float_data) == list(SMALL)
    tensors = read_graph(file).tensors
    assert np.array_equal(tensors["large"].array, LARGE)
    assert np.array_equal(tensors["small"].array, SMALL)


def test_a_large_tensor_of_the_wrong_length_is_refused(file: Path) -> None:
    model = ModelProto.FromString(file.read_bytes())
    model.graph.initializer[0].raw_data += b"1234"
    file.write_bytes(model.SerializeToString())
    with pytest.raises(ArtifactError, match="large needs 131072 bytes"):
        read_graph(file)


@pytest.mark.parametrize("end", [1, 10, 5000, 131000])
def test_what_is_no_message_is_left_to_protobuf(file: Path, end: int) -> None:
    data = memoryview(file.read_bytes())[:-end]
    assert without_raw_data(data, "net.onnx") is data
