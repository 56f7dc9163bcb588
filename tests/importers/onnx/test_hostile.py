"""Files of a few hundred bytes that ask for much: little memory, little time, and an error with a place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper, numpy_helper

from dlc.errors import DlcError, ModelError
from tests.importers.onnx.models import Array, evaluated, expected, imported, model_of

X = np.ones((3, 4), np.float32)
CHILD = """
import json, resource, sys
from dlc.errors import DlcError
from dlc.export.model_text import write_model
from dlc.importers.onnx import read_onnx
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
for line in sys.stdin:
    try:
        write_model(read_onnx(line.removesuffix("\\n")), "net", "net.safetensors", "")
        answer = ["", ""]
    except DlcError as error:
        answer = [error.diagnostics[0].code, error.diagnostics[0].message]
    print(json.dumps(answer), flush=True)
"""
Said = tuple[str, str]
"""The code and the message of an import; empty if it works."""


Import: TypeAlias = Callable[[Sequence[ModelProto], Path], list[Said]]


@pytest.fixture(scope="module")
def said() -> Iterator[Import]:
    """Says what the import says of each model, in one process with little memory and time."""
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        to, answers = child.stdin, child.stdout

        def ask(models: Sequence[ModelProto], folder: Path) -> list[Said]:
            found: list[Said] = []
            for number, model in enumerate(models):
                path = folder / f"{number}.onnx"
                path.write_bytes(model.SerializeToString())
                print(path, file=to, flush=True)
                answer = answers.readline()
                assert answer, f"the process has ended, with {child.wait()}"
                code, message = json.loads(answer)
                found.append((code, message))
            return found

        yield ask


def network(
    nodes: Sequence[NodeProto], tensors: Mapping[str, Array], **options: object
) -> ModelProto:
    return model_of(nodes, {"x": X}, ["y"], tensors, **options)  # pyright: ignore[reportArgumentType]


def many(exponent: int, dtype: type[np.generic] = np.int64) -> tuple[NodeProto, dict[str, Array]]:
    """The node that makes 2**exponent ones, and the tensor that says how many."""
    one = numpy_helper.from_array(np.ones(1, dtype))
    node = helper.make_node("ConstantOfShape", ["count"], ["many"], value=one)
    return node, {"count": np.asarray([1 << exponent], np.int64)}


READERS = {
    "Reshape": ["x", "many"],
    "Expand": ["x", "many"],
    "Tile": ["x", "many"],
    "Pad": ["x", "many"],
    "Slice": ["x", "many", "many"],
    "TopK": ["x", "many"],
    "CumSum": ["x", "many"],
    "ReduceSum": ["x", "many"],
    "Squeeze": ["x", "many"],
    "Unsqueeze": ["x", "many"],
    "Split": ["x", "many"],
    "ConstantOfShape": ["many"],
}


def test_a_list_that_is_as_long_as_the_file_says_is_no_shape(said: Import, tmp_path: Path) -> None:
    models: list[ModelProto] = []
    for kind, names in READERS.items():
        for exponent in (30, 40):
            maker, tensors = many(exponent)
            reader = helper.make_node(kind, names, ["y"], name="reader")
            models.append(network([maker, reader], tensors))
    maker, tensors = many(33, np.float32)
    models.append(network([maker, helper.make_node("Resize", ["x", "", "many"], ["y"])], tensors))
    for code, message in said(models, tmp_path):
        assert code == "D0521"
        assert re.match(r".*: \w+ takes a few numbers as its input \d, found \d{10}", message)


def test_sizes_are_not_listed_without_end(said: Import, tmp_path: Path) -> None:
    models: list[ModelProto] = []
    for kind in ("Add", "Concat", "Gather"):
        for exponent in (30, 40):
            maker, tensors = many(exponent)
            listing = helper.make_node(kind, ["size", "many"], ["listed"])
            if kind == "Concat":
                listing.attribute.append(helper.make_attribute("axis", 0))
            nodes = [
                maker,
                helper.make_node("Shape", ["x"], ["shape"]),
                helper.make_node("Gather", ["shape", "first"], ["size"]),
                listing,
                helper.make_node("Reshape", ["x", "listed"], ["y"]),
            ]
            tensors["first"] = np.zeros(1, np.int64)
            models.append(network(nodes, tensors, shapes={"x": ["N", 4]}))
    nodes = [helper.make_node("Shape", ["x"], ["s0"])]
    nodes += [helper.make_node("Concat", [f"s{k}"] * 2, [f"s{k + 1}"], axis=0) for k in range(34)]
    nodes.append(helper.make_node("Reshape", ["x", "s34"], ["y"]))
    models.append(network(nodes, {}, shapes={"x": ["N", 4]}))
    for code, message in said(models, tmp_path):
        assert (code, "Reshape decides a shape by its input 1" in message) == ("D0711", True)


def test_numbers_that_a_file_only_counts_are_not_written_out(said: Import, tmp_path: Path) -> None:
    models: list[ModelProto] = []
    for exponent in (30, 40):
        ends = {"a": np.asarray(0), "b": np.asarray(1 << exponent), "one": np.asarray(1)}
        models.append(network([helper.make_node("Range", ["a", "b", "one"], ["y"])], ends))
        maker, tensors = many(exponent, np.bool_)
        models.append(network([maker, helper.make_node("Not", ["many"], ["y"])], tensors))
        around = helper.make_node("LRN", ["p"], ["y"], size=(1 << exponent) - 1)
        models.append(network([around], {"p": np.ones((1, 1, 2, 2), np.float32)}))
        maker, tensors = many(exponent, np.float32)
        models.append(
            network([maker, helper.make_node("MatMul", ["many", "many"], ["y"])], tensors)
        )
    assert {*said(models, tmp_path)} == {("", "")}


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_numbers_that_count_nothing_are_refused(number: float) -> None:
    tensors = {
        "zero": np.asarray(0, np.float32),
        "one": np.asarray(1, np.float32),
        "number": np.asarray(number, np.float32),
        "pair": np.asarray([0, 1], np.float32),
        "index": np.asarray([1]),
    }
    for kind, names in (
        ("Range", ["zero", "number", "one"]),
        ("OneHot", ["index", "number", "pair"]),
    ):
        model = network([helper.make_node(kind, names, ["y"], name="counts")], tensors)
        with pytest.raises(ModelError, match=f"counts: {kind}"):
            imported(model)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_a_long_range_is_what_a_short_one_is(dtype: type[np.generic]) -> None:
    ends = {
        "a": np.asarray(-3, dtype),
        "b": np.asarray(30001, dtype),
        "by": np.asarray(2 if np.issubdtype(dtype, np.integer) else 0.25, dtype),
    }
    model = network([helper.make_node("Range", ["a", "b", "by"], ["y"])], ends)
    (found,), (wanted,) = evaluated(imported(model), {"x": X}), expected(model, {"x": X})
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(found, wanted)


GROWING = {
    "squares": [("Mul", ["s{0}", "s{0}"], "s{1}")],
    "nested": [("Div", ["s{0}", "much"], "d{0}"), ("Add", ["d{0}", "two"], "s{1}")],
    "shared": [
        ("Div", ["s{0}", "three"], "d{0}"),
        ("Div", ["s{0}", "two"], "e{0}"),
        ("Mul", ["d{0}", "e{0}"], "s{1}"),
    ],
}


def test_a_size_that_grows_without_end_names_the_node(said: Import, tmp_path: Path) -> None:
    models: list[ModelProto] = []
    for steps in GROWING.values():
        nodes = [helper.make_node("Shape", ["x"], ["s0"])]
        for k in range(400):
            for kind, names, made in steps:
                read = [name.format(k) for name in names]
                nodes.append(helper.make_node(kind, read, [made.format(k, k + 1)]))
        nodes.append(helper.make_node("Reshape", ["x", "s400"], ["y"]))
        tensors = {"two": np.asarray([2]), "three": np.asarray([3]), "much": np.asarray([1 << 40])}
        models.append(network(nodes, tensors, shapes={"x": ["N", 4]}))
    axes = 24
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Add", ["s", "one"], ["more"]),
        helper.make_node("ReduceProd", ["more"], ["all"]),
        helper.make_node("Expand", ["one", "all"], ["y"]),
    ]
    names = [f"n{k}" for k in range(axes)]
    inputs = {"x": np.ones((1,) * axes, np.float32)}
    models.append(model_of(nodes, inputs, ["y"], {"one": np.asarray([1])}, shapes={"x": names}))
    for code, message in said(models, tmp_path):
        assert (code, message[:20]) == ("D0329", "the node that makes ")


@pytest.mark.parametrize("version", [2**31, 2**63 - 1, -1, -(2**63)])
def test_a_version_of_operators_that_no_number_of_onnx_holds_is_refused(version: int) -> None:
    model = network([helper.make_node("Mish", ["x"], ["y"])], {"x": np.ones(2, np.float32)})
    model.opset_import[0].version = version
    with pytest.raises(DlcError, match="version") as caught:
        imported(model)
    assert caught.value.diagnostics[0].code != "D0999"
