"""Sizes that an ONNX file takes to be equal: solved for its inputs, bounded, or checked at each call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper

from dlc.cli import main
from dlc.cli.app import VERBS
from dlc.driver.api import compile
from dlc.driver.source.importing import import_model
from dlc.errors import CallError, ModelError
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.model import Model
from tests.importers.onnx.models import Array, expected, model_of

X = np.arange(12, dtype=np.float32).reshape(3, 4)

ONNX_VERBS: dict[str, list[str]] = {
    **{verb: [] for verb in ("check", "diff", "gradcheck", "inspect", "memory", "probe", "scale")},
    **{verb: [] for verb in ("show", "stubs", "why")},
    "bench": ["--seconds", "0"],
    "compile": ["-o", "{}/net.dlc"],
    "import": ["-o", "{}/net.dlm"],
    "profile": ["--rounds", "1"],
    "run": ["--random-inputs", "1"],
}
"""Every verb that reads an ONNX file, with what it takes beside."""


def picture(height: int, width: int = 4) -> Array:
    return np.random.default_rng(height).standard_normal((1, 1, height, width)).astype(np.float32)


def halved(times: int) -> list[NodeProto]:
    """`times` convolutions of stride 2, then as many doublings, each added to what it halved."""
    nodes = [
        helper.make_node(
            "MaxPool",
            [f"h{k}"],
            [f"h{k + 1}"],
            kernel_shape=[2, 2],
            strides=[2, 1],
            pads=[0, 0, 0, 1],
        )
        for k in range(times)
    ]
    for k in reversed(range(times)):
        below = f"h{times}" if k == times - 1 else f"u{k + 1}"
        nodes.append(helper.make_node("Resize", [below, "", "scales"], [f"d{k}"], mode="nearest"))
        nodes.append(helper.make_node("Add", [f"h{k}", f"d{k}"], [f"u{k}"]))
    return nodes


def pyramid(times: int = 2) -> ModelProto:
    scales = {"scales": np.asarray([1, 1, 2, 1], np.float32)}
    shapes = {"h0": ["B", 1, "H", 4]}
    return model_of(halved(times), {"h0": picture(8)}, ["u0"], scales, shapes=shapes)


def opened(model: ModelProto, folder: Path) -> Model:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return compile(path)


def result(model: Model, *inputs: Array) -> Array:
    """The only result of the only entry point."""
    return np.asarray(model["run"](*inputs))[0]


def heads(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    assert main(["check", str(path)]) == 0
    out, err = capsys.readouterr()
    return out, err


def test_a_size_that_is_halved_and_doubled_is_a_multiple(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = pyramid()
    model = opened(net, tmp_path)
    for height in (4, 8, 12):
        x = picture(height)
        np.testing.assert_allclose(result(model, x), expected(net, {"h0": x})[0], 1e-6)
    with pytest.raises(CallError, match=r"h0 is f32\[1, 1, 6, 4\]: its size 6 is 4\*H for no H"):
        model["run"](picture(6))
    out, err = heads(tmp_path / "net.onnx", capsys)
    assert "run(h0: f32[B, 1, 4*H, 4])" in out
    assert "note[D0522]: H is a multiple of 4, 4*H" in err


def test_what_no_single_size_says_is_checked_at_each_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rounded up, three of four sizes can be halved and doubled and lose nothing."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["h"], kernel_shape=[1, 1], strides=[2, 1]),
        helper.make_node("MaxPool", ["h"], ["q"], kernel_shape=[1, 1], strides=[2, 1]),
        helper.make_node("Resize", ["q", "", "scales"], ["d"], mode="nearest"),
        helper.make_node("Add", ["h", "d"], ["y"]),
    ]
    scales = {"scales": np.asarray([1, 1, 2, 1], np.float32)}
    net = model_of(nodes, {"x": picture(8)}, ["y"], scales, shapes={"x": ["B", 1, "H", 4]})
    model = opened(net, tmp_path)
    for height in (3, 4, 7, 8):
        x = picture(height)
        np.testing.assert_array_equal(result(model, x), expected(net, {"x": x})[0])
    for height in (1, 2, 5, 6):
        with pytest.raises(CallError, match="where H is") as caught:
            model["run"](picture(height))
        assert caught.value.diagnostics[0].code == "D0804"
        assert "net.onnx:" in str(caught.value)
        nearest = {1: 3, 2: 3, 5: 4, 6: 7}[height]
        assert f"= help: it is possible where H is {nearest}" in str(caught.value)
    out, _ = heads(tmp_path / "net.onnx", capsys)
    assert "    if 2*((H - 1)//4) + 2 == (H - 1)//2 + 1\n" in out
    text = import_model(tmp_path / "net.onnx", tmp_path / "net.dlm").text
    again = compile(text)
    np.testing.assert_array_equal(result(again, x), expected(net, {"x": x})[0])
    with pytest.raises(CallError, match="where H is 5"):
        again["run"](picture(5))


@pytest.mark.parametrize(
    ("shapes", "head"),
    [
        ({"x": ["A", 4], "y": ["B", 4]}, "x: f32[A, 4], y: f32[A, 4]"),
        ({"x": ["A", "B"], "y": [3, "C"]}, "x: f32[3, B], y: f32[3, B]"),
        ({"x": ["A", "B"], "y": [1, "B"]}, "x: f32[A, B], y: f32[1, B]"),
    ],
)
def test_sizes_of_two_inputs_that_are_added_are_one(
    shapes: dict[str, Sequence[int | str]],
    head: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    y = X[:1] if shapes["y"][0] == 1 else X
    net = model_of(
        [helper.make_node("Add", ["x", "y"], ["z"])], {"x": X, "y": y}, ["z"], shapes=shapes
    )
    np.testing.assert_array_equal(result(opened(net, tmp_path), X, y), X + y)
    assert f"run({head})" in heads(tmp_path / "net.onnx", capsys)[0]


def test_a_table_bounds_how_many_rows_are_taken_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Slice", ["table", "zero", "n"], ["cut"]),
        helper.make_node("Add", ["x", "cut"], ["y"]),
    ]
    tensors = {"table": np.arange(16, dtype=np.float32), "zero": np.asarray([0])}
    net = model_of(nodes, {"x": X}, ["y"], tensors, shapes={"x": ["B", "S"]})
    model = opened(net, tmp_path)
    np.testing.assert_array_equal(result(model, X), X + np.arange(4))
    with pytest.raises(CallError, match=r"S is 17 in x, outside its bounds 1\.\.16"):
        model["run"](np.ones((1, 17), np.float32))
    assert "note[D0522]: S is 16 at most" in heads(tmp_path / "net.onnx", capsys)[1]


def test_a_refused_call_looks_for_a_possible_size_when_its_message_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sizes, each rounded up, that must be equal: searching takes longer than all the rest."""
    nodes = [
        helper.make_node("MaxPool", [name], [f"h{name}"], kernel_shape=[1, 1], strides=[2, 1])
        for name in "xz"
    ]
    nodes.append(helper.make_node("Add", ["hx", "hz"], ["y"]))
    shapes = {"x": [1, 1, "H", 4], "z": [1, 1, "W", 4]}
    net = model_of(nodes, {"x": picture(8), "z": picture(7)}, ["y"], shapes=shapes)
    model, asked = opened(net, tmp_path), list[object]()

    def nearest(*about: object) -> str:
        asked.append(about)
        return "it is possible where H is 4"

    monkeypatch.setattr(DimBinder, "_nearest", nearest)
    with pytest.raises(CallError):
        model["run"](picture(8), picture(3))
    with pytest.raises(CallError) as caught:
        model["run"](picture(8), picture(3))
    assert not asked
    assert "= help: it is possible where H is 4" in str(caught.value)
    assert len(asked) == 1


def test_the_row_of_a_table_for_the_last_place_bounds_the_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`x + w[S - 1:S]`: it does not say that S is 1, but that w has a row S - 1."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Sub", ["n", "one"], ["last"]),
        helper.make_node("Slice", ["w", "last", "n", "zero"], ["row"]),
        helper.make_node("Add", ["x", "row"], ["sum"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Expand", ["row", "shape"], ["rows"]),
        helper.make_node("Mul", ["sum", "rows"], ["y"]),
    ]
    tensors = {
        "w": np.arange(64, dtype=np.float32).reshape(16, 4),
        "one": np.asarray([1]),
        "zero": np.asarray([0]),
    }
    stream = np.random.default_rng(1)
    many = [stream.random((2, length, 4), np.float32) for length in (1, 2, 15, 16)]
    net = model_of(nodes, {"x": many[0]}, ["y"], tensors, shapes={"x": ["B", "S", 4]})
    model = opened(net, tmp_path)
    for x in many:
        (wanted,) = expected(net, {"x": x})
        np.testing.assert_array_equal(np.asarray(model["run"](x))[0], wanted)
    with pytest.raises(CallError, match=r"S is 17 in x, outside its bounds 1\.\.16"):
        model["run"](np.ones((1, 17, 4), np.float32))
    assert "note[D0522]: S is 16 at most" in heads(tmp_path / "net.onnx", capsys)[1]


def test_a_reshape_says_that_a_part_of_a_table_has_as_many_rows_as_a_text(tmp_path: Path) -> None:
    """`tile(table[:S, :T], 4)` as `[4, S, -1]`: 4 rows of 16 at most are S, and not the columns."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Shape", ["x"], ["st"]),
        helper.make_node("Slice", ["table", "zeros", "st"], ["cut"]),
        helper.make_node("Tile", ["cut", "repeats"], ["tiled"]),
        helper.make_node("Concat", ["four", "s", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["tiled", "shape"], ["y"]),
    ]
    tensors = {
        "table": np.arange(128, dtype=np.float32).reshape(16, 8),
        "zeros": np.asarray([0, 0]),
        "repeats": np.asarray([4, 1]),
        "four": np.asarray([4]),
        "rest": np.asarray([-1]),
    }
    net = model_of(nodes, {"x": X}, ["y"], tensors, shapes={"x": ["S", "T"]})
    model = opened(net, tmp_path)
    for sizes in ((3, 5), (16, 2), (4, 8)):
        x = np.zeros(sizes, np.float32)
        np.testing.assert_array_equal(result(model, x), expected(net, {"x": x})[0])
    with pytest.raises(CallError, match=r"S is 17 in x, outside its bounds 1\.\.16"):
        model["run"](np.zeros((17, 2), np.float32))


def test_a_window_bounds_the_size_that_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[7, 3], strides=[3, 1])
    net = model_of([node], {"x": picture(8)}, ["y"], shapes={"x": ["B", 1, "H", 4]})
    model = opened(net, tmp_path)
    for height in (7, 12):
        x = picture(height)
        np.testing.assert_array_equal(result(model, x), expected(net, {"x": x})[0])
    assert "note[D0522]: H is" in heads(tmp_path / "net.onnx", capsys)[1]
    assert main(["compile", str(tmp_path / "net.onnx"), "--dim", "H=1..9"]) == 1
    assert "error[D0715]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("factor", "least", "start"),
    [(1, 3, True), (-1, 3, True), (1, 3, False), (-1, 3, False)],
)
def test_an_index_made_of_sizes_counts_from_one_end_only(
    factor: int, least: int, start: bool, tmp_path: Path
) -> None:
    """`x[:, i:]` or `x[:, :i]` with `i = factor * (T - 2)`: at T = 1 it would count from the other end."""
    nodes = [
        helper.make_node("Shape", ["y"], ["n"]),
        helper.make_node("Sub", ["n", "two"], ["less"]),
        helper.make_node("Mul", ["less", "factor"], ["i"]),
        helper.make_node("Slice", ["x", *(["i", "end"] if start else ["zero", "i"]), "one"], ["z"]),
    ]
    numbers = {"two": 2, "factor": factor, "zero": 0, "one": 1, "end": 1 << 40}
    tensors = {name: np.asarray([value]) for name, value in numbers.items()}
    y = np.zeros(5, np.float32)
    shapes = {"x": ["B", "S"], "y": ["T"]}
    net = model_of(nodes, {"x": X, "y": y}, ["z"], tensors, shapes=shapes)
    model = opened(net, tmp_path)
    for length in range(1, 7):
        y = np.zeros(length, np.float32)
        if length < (2 if factor > 0 else least):
            with pytest.raises(CallError, match="D0804"):
                model["run"](X, y)
        else:
            wanted = expected(net, {"x": X, "y": y})[0]
            np.testing.assert_array_equal(result(model, X, y), wanted)


def test_an_index_of_two_sizes_is_checked_at_each_call_and_required_in_a_text(
    tmp_path: Path,
) -> None:
    """`x[:, :S - T]`: with more of y than x has columns it would count from the end."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=1, end=2),
        helper.make_node("Shape", ["y"], ["t"]),
        helper.make_node("Sub", ["s", "t"], ["i"]),
        helper.make_node("Slice", ["x", "zero", "i", "one"], ["z"]),
    ]
    tensors = {"zero": np.asarray([0]), "one": np.asarray([1])}
    y = np.zeros(3, np.float32)
    shapes = {"x": ["B", "S"], "y": ["T"]}
    net = model_of(nodes, {"x": X, "y": y}, ["z"], tensors, shapes=shapes)
    model = opened(net, tmp_path)
    for length in range(1, 5):
        y = np.zeros(length, np.float32)
        wanted = expected(net, {"x": X, "y": y})[0]
        np.testing.assert_array_equal(result(model, X, y), wanted)
    with pytest.raises(CallError, match=r"counts the index S - T from the start"):
        model["run"](X, np.zeros(5, np.float32))
    import_model(tmp_path / "net.onnx", tmp_path / "net.dlm")
    assert "require S - T >= 0, " in (tmp_path / "net.dlm").read_text()
    text = compile(tmp_path / "net.dlm")
    with pytest.raises(CallError, match=r"counts the index S - T from the start"):
        text["run"](X, np.zeros(5, np.float32))
    np.testing.assert_array_equal(result(text, X, y), result(model, X, y))


@pytest.mark.parametrize("minuend", [0, 1, 5, "S"])
@pytest.mark.parametrize("kind", ["Div", "Mod", "fmod"])
def test_division_of_sizes_below_0_rounds_as_numbers_do(
    minuend: int | str, kind: str, tmp_path: Path
) -> None:
    """`(minuend - 2*S) / 3` toward zero, its remainders with the sign of either number."""
    own = "n" if minuend == "S" else "minuend"
    divide = helper.make_node("Div" if kind == "Div" else "Mod", ["less", "three"], ["q"])
    if kind == "fmod":
        divide.attribute.append(helper.make_attribute("fmod", 1))
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Add", ["n", "n"], ["twice"]),
        helper.make_node("Sub", [own, "twice"], ["less"]),
        divide,
        helper.make_node("Add", ["q", "hundred"], ["length"]),
        helper.make_node("ConstantOfShape", ["length"], ["zeros"]),
        helper.make_node("Shape", ["zeros"], ["y"]),
    ]
    numbers = {"minuend": 0 if minuend == "S" else minuend, "three": 3, "hundred": 100}
    tensors = {name: np.asarray([value]) for name, value in numbers.items()}
    net = model_of(nodes, {"x": X}, ["y"], tensors, shapes={"x": ["B", "S"]})
    model = opened(net, tmp_path)
    (least,) = [dim.lower for dim in model.entry_points["run"].dims if dim.name == "S"]
    assert least <= 3
    for length in range(least, 12):
        x = np.zeros((1, length), np.float32)
        np.testing.assert_array_equal(result(model, x), expected(net, {"x": x})[0])


def test_sizes_that_surely_differ_are_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["xx"], axis=0),
        helper.make_node("Concat", ["xx", "row"], ["odd"], axis=0),
        helper.make_node("Add", ["xx", "odd"], ["y"]),
    ]
    row = {"row": np.ones((1, 4), np.float32)}
    net = model_of(nodes, {"x": X}, ["y"], row, shapes={"x": ["N", 4]})
    with pytest.raises(ModelError, match=r"combines axes of the sizes 2\*N and 2\*N \+ 1"):
        opened(net, tmp_path)


def test_every_verb_that_reads_a_file_of_onnx_takes_the_options_of_its_import(
    capsys: pytest.CaptureFixture[str],
) -> None:
    taken: dict[str, set[str]] = {"--dim": set(), "--fix": set(), "--shape": set()}
    for verb in VERBS:
        assert main([verb, "--help"]) == 0
        told = capsys.readouterr().out
        for option, verbs in taken.items():
            if option in told:
                verbs.add(verb)
    assert taken["--fix"] == taken["--shape"] == {*ONNX_VERBS} <= taken["--dim"]


def test_a_refusal_names_options_that_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slice that runs backwards from a place in the middle needs numbers."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Div", ["n", "two"], ["half"]),
        helper.make_node("Slice", ["x", "half", "zero", "one", "back"], ["y"]),
    ]
    tensors = {
        name: np.asarray([value])
        for name, value in {"two": 2, "zero": 0, "one": 1, "back": -1}.items()
    }
    net = model_of(nodes, {"x": X}, ["y"], tensors, shapes={"x": ["B", "S"]})
    path = tmp_path / "net.onnx"
    path.write_bytes(net.SerializeToString())
    for verb, further in ONNX_VERBS.items():
        command = [verb, str(path), *[each.format(tmp_path) for each in further]]
        assert main(command) == 4
        (told,) = re.findall(r"= help: (--dim .*) lets it in", capsys.readouterr().err)
        assert told == "--dim B=8 --dim S=8"
        # Only what ranks share must keep a size: they divide it.
        assert main([*command, *told.split()]) == (2 if verb == "scale" else 0)
        assert ("no batch of a named size" in capsys.readouterr().err) == (verb == "scale")
    found = compile(path, dims={"B": (3, 3), "S": (4, 4)})
    np.testing.assert_array_equal(result(found, X), expected(net, {"x": X})[0])


def test_the_interpreter_checks_a_call_as_compiled_code_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "net.dlm"
    text.write_text(
        "dlc 1\ndim H = 1..\n"
        "export fn f(x: f32[H]) -> f32[2, H // 2] {\n  return reshape(x, [2, H // 2])\n}\n"
    )
    for way in ([], ["--interpret"]):
        assert main(["run", str(text), *way, "--input", "x=[1,2,3,4]"]) == 0
        assert main(["run", str(text), *way, "--input", "x=[1,2,3]"]) != 0
        assert "f32[H] is reshaped to f32[2, H//2]: H is 3 and 2*(H//2) is 2" in (
            capsys.readouterr().err
        )
