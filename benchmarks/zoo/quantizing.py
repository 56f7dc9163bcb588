"""Networks of a folder in integers of 8 bits, as ONNX Runtime's own tool writes them.

    python quantizing.py FOLDER PATTERN

Makes two files of `NAME.script.onnx`: `NAME.qdq.onnx`, whose tensors are quantised by what the inputs at
three sizes make of them (`quantize_static`, nodes QuantizeLinear and DequantizeLinear), and
`NAME.dynamic.onnx`, which quantises anew at each call (`quantize_dynamic`). Runs in the peers' environment
and prints a line of JSON for each file, as `exporting.py` does. Files that are there already stay.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo.catalogue import Array
from benchmarks.zoo.contender import read
from benchmarks.zoo.exporting import first_words, keep

SOURCE = "script"
"""The exporter whose files are quantised."""
NETWORKS = (
    *("resnet18", "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x0_5", "efficientnet_b0"),
    *("unet", "yolo", "vision_transformer", "bert", "distilbert", "gpt2", "llama"),
    *("lstm_tagger", "gru_tagger", "mlp_mixer", "deep_speech"),
)
"""Of every family one or more: convolutions, attention, recurrent layers."""
PRODUCTS = ["Conv", "ConvTranspose", "Gemm", "MatMul"]
"""Operators that multiply by weights."""


def static(source: Path, made: Path, given: Sequence[dict[str, Array]]) -> None:
    """With scales that the inputs decide, at the operators that the tool quantises by default.

    It gives an infinite scale to the -3.4e38 of a mask; then only products are quantised.
    """
    tool: Any = importlib.import_module("onnxruntime.quantization")

    class Inputs(tool.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = iter(given)

        def get_next(self) -> dict[str, Array] | None:
            return next(self.left, None)

    for kinds in (None, PRODUCTS):
        tool.quantize_static(source, made, Inputs(), op_types_to_quantize=kinds)
        if has_finite_scales(made):
            return
    raise ValueError("the tool's scales are not finite")


def has_finite_scales(path: Path) -> bool:
    """Whether all numbers in floats that a file holds are finite."""
    onnx: Any = importlib.import_module("onnx")
    arrays = [onnx.numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer]
    return all(np.isfinite(each).all() for each in arrays if each.dtype.kind == "f")


def dynamic(source: Path, made: Path, given: Sequence[dict[str, Array]]) -> None:
    """With weights that are quantised, and tensors that are when they are multiplied by them."""
    tool: Any = importlib.import_module("onnxruntime.quantization")
    tool.quantize_dynamic(source, made, weight_type=tool.QuantType.QUInt8)


WAYS: dict[str, Callable[[Path, Path, Sequence[dict[str, Array]]], None]] = {
    "qdq": static,
    "dynamic": dynamic,
}


def main(folder: str, pattern: str) -> None:
    """Quantise what the pattern names and print a line for each."""
    logging.disable(logging.WARNING)
    for name in NETWORKS:
        for way in WAYS:
            if fnmatch(f"{name}.{way}", pattern):
                print(json.dumps(one(name, way, Path(folder))), flush=True)


def one(name: str, way: str, folder: Path) -> dict[str, str]:
    """Quantise one network in one way: its name, and the reason if there is no file."""
    told = {"name": f"{name}.{way}"}
    source, path = folder / f"{name}.{SOURCE}.onnx", folder / f"{name}.{way}.onnx"
    if path.exists():
        return told
    if not source.exists():
        return told | {"skipped": f"there is no {source.name}"}
    made = path.with_name(f"{path.stem}.part.onnx")
    try:
        given = [read(f"{folder / source.stem}.{k}.npz") for k in range(3)]
        WAYS[way](source, made, given)
        keep(made, path, given)
    except Exception as error:  # noqa: BLE001 - the tool raises whatever it likes
        return told | {"skipped": first_words(error)}
    finally:
        made.unlink(missing_ok=True)
    return told


if __name__ == "__main__":
    main(*sys.argv[1:])
