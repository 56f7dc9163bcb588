"""Faces on a photograph: a network that came as ONNX, compiled, run, saved and loaded again.

    python examples/face_detector.py [PHOTOGRAPH] [-o faces.png]

The model is `centerface/detector.dlm`; this script reads the picture, draws what was found and says how
long everything took. It needs Pillow.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

import dlc

FOLDER = Path(__file__).parent / "centerface"
GRID = 32
"""The network takes pictures whose sides are multiples of this."""
REPEATS = 5


class Faces(NamedTuple):
    """What was found: boxes [n, 4] (left, top, right, bottom), scores [n], points [n, 5, 2] (x, y)."""

    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    points: NDArray[np.float32]


def pixels(picture: Image.Image) -> NDArray[np.uint8]:
    """The picture as u8[height, width, 3], with black at the right and below up to the grid."""
    found = np.asarray(picture.convert("RGB"))
    height, width = found.shape[:2]
    return np.pad(found, ((0, -height % GRID), (0, -width % GRID), (0, 0)))


def detect(model: dlc.Model, picture: NDArray[np.uint8]) -> tuple[Faces, float]:
    """The faces, and the milliseconds of the fastest of a few calls."""
    entry = model.entry_points["detect"]
    found = Faces(*cast("tuple[NDArray[np.float32], ...]", entry(picture)))
    times: list[float] = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        entry(picture)
        times.append(time.perf_counter() - start)
    return found, min(times) * 1e3


def draw(picture: Image.Image, faces: Faces) -> Image.Image:
    """The picture with a frame around each face and a dot on each point."""
    drawn = picture.convert("RGB")
    pen = ImageDraw.Draw(drawn)
    for box, points in zip(faces.boxes.tolist(), faces.points.tolist(), strict=True):
        pen.rectangle(box, outline=(80, 255, 80), width=3)
        for x, y in points:
            pen.ellipse((x - 2, y - 2, x + 2, y + 2), fill=(255, 60, 60))
    return drawn


def report(faces: Faces, milliseconds: float) -> None:
    """One line for each face, and how long finding them took."""
    for box, score in zip(faces.boxes.tolist(), faces.scores.tolist(), strict=True):
        left, top, right, bottom = (f"{edge:.1f}" for edge in box)
        print(f"a face from ({left}, {top}) to ({right}, {bottom}), {score:.0%} sure")
    print(f"{len(faces.scores)} found in {milliseconds:.0f} ms")


def run(photograph: Path, out: Path) -> None:
    """Everything, from the text of the model to the picture with the faces."""
    picture = Image.open(photograph)
    image = pixels(picture)
    start = time.perf_counter()
    model = dlc.compile(FOLDER / "detector.dlm")
    print(f"{model.parameters:,} parameters, compiled in {time.perf_counter() - start:.1f} s")
    faces, milliseconds = detect(model, image)
    report(faces, milliseconds)
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(picture, faces).save(out)
    print(f"drawn in {out}")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "detector.dlc"
        model.save(path)
        start = time.perf_counter()
        again = dlc.load(path)
        taken = (time.perf_counter() - start) * 1e3
        print(f"saved as {path.stat().st_size:,} bytes; loaded again in {taken:.0f} ms")
        report(*detect(again, image))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Find faces on a photograph.")
    parser.add_argument("photograph", nargs="?", type=Path, default=FOLDER / "astronaut.png")
    parser.add_argument("-o", "--out", type=Path, default=Path("out") / "faces.png")
    given = parser.parse_args()
    run(cast("Path", given.photograph), cast("Path", given.out))


if __name__ == "__main__":
    main()
