"""Small models of every kind, which are changed at random: texts, IR of each level, networks."""

from __future__ import annotations

import numpy as np
from onnx import helper

from dlc.driver.compile.compile import lower
from dlc.driver.compile.settings import Settings
from dlc.text.ir.printer import print_module
from tests import documents, example_models
from tests.importers.onnx.models import model_of

SETTINGS = Settings(2, "cpu:x86-64-v3")


def texts() -> list[str]:
    """The programs of the language's reference, and the small examples."""
    found = [block.text for block in documents.blocks("docs/language.md") if block.kind == "dlm"]
    found += [
        (example_models.FOLDER / f"{name}.dlm").read_text(encoding="utf-8")
        for name in ("poly", "product", "digits", "lenet", "softmax")
    ]
    return found


def dumps() -> list[str]:
    """Small models at every level."""
    found: list[str] = []
    for name in ("poly", "product", "softmax", "digits"):
        opened = example_models.opened(name)
        found.append(print_module(opened.module))
        for stage in ("graph", "kernel", "plan", "loop"):
            lower(opened, SETTINGS, stage)
            found.append(print_module(opened.module))
    return found


def networks() -> list[bytes]:
    """A small convolutional network, and operators on shapes."""
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return rng.normal(size=shape).astype(np.float32)

    convolution = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["g"], transB=1),
        helper.make_node("Softmax", ["g"], ["y"], axis=-1),
    ]
    shapes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "minus"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["z"]),
        helper.make_node("Slice", ["z", "zero", "two", "one"], ["y"]),
    ]
    weights = {"w": numbers(3, 2, 3, 3), "b": numbers(3), "v": numbers(4, 12)}
    whole = {
        name: np.array([value], np.int64)
        for name, value in {"zero": 0, "one": 1, "two": 2, "minus": -1}.items()
    }
    models = [
        model_of(convolution, {"x": numbers(1, 2, 4, 4)}, ["y"], weights),
        model_of(shapes, {"x": numbers(2, 3, 4)}, ["y"], whole, shapes={"x": ["B", 3, 4]}),
    ]
    return [model.SerializeToString() for model in models]
