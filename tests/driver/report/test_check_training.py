"""`dlc check` finds what would end a training: wrong `train` blocks, each with its code and a way out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver import CompileRequest, check_model
from dlc.driver.run.train import plan_training
from dlc.errors import Diagnostic, DlcError, UsageError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from tests.suites import every

HEAD = """\
dlc 1
import nn (Linear, Dropout)
dim B = 1..64
module same(lr = 0.1) {
  state m: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    set m = m + g
    return p
  }
}
module shrink(lr = 0.1) {
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] = p * (1 - lr)
}
module number(lr = 0.1) {
  fn update(p: f32[..], g: f32[..], step: i32) -> f32 = sum(p - lr * g)
}
module two(lr = 0.1) {
  fn update(p: f32[..], g: f32[..]) -> f32[..] = p - lr * g
}
dim N = 1..8
fn count(step: i32) -> i32 = step
fn scaled(step: i32, by: f32) -> f32 = by * f32(step)
module Line(width = 3) {
  param w: f32[3] = ones()
  use head = Linear(3, 1)
  use blocks = 2 * Linear(3, 3)
  state seen: f32[3] = zeros()
  fn call(x: f32[B, 3]) -> f32[B] = x @ w
  export fn predict(x: f32[B, 3]) -> f32[B] = call(x)
}
"""


DATA = 'npz("d.npz", x="x", y="y")'
LOSS = "mean((call(x) - y) ** 2)"
TAKES = "x: f32[B, 3], y: f32[B]"


def block(
    data: str = DATA,
    loss: str = LOSS,
    takes: str = TAKES,
    optimizer: str = "sgd()",
    more: str = "",
    head: str = "Line",
) -> str:
    return f"""\
train {head} {{
  data = {data}
  loss({takes}) = {loss}
  optimizer = {optimizer}
  {more}
}}
"""


WRONG = [
    ("no data file", "D0501", block(data='npz("gone.npz", x="x", y="y")')),
    ("absolute", "D0506", block(data='npz("/d.npz", x="x", y="y")')),
    ("outside", "D0506", block(data='npz("../d.npz", x="x", y="y")')),
    ("column", "D0541", block(data='npz("d.npz", x="x", y="z")')),
    ("missing name", "D0533", block(data='npz("d.npz", x="x")')),
    ("extra name", "D0533", block(data='npz("d.npz", x="x", y="y", q="i")')),
    ("f64", "D0542", block(data='npz("d.npz", x="x64", y="y")')),
    (
        "float as int",
        "D0542",
        block(takes="x: f32[B, 3], y: i32[B]", loss="mean((call(x) - f32(y)) ** 2)"),
    ),
    ("counts", "D0544", block(data='npz("d.npz", x="x", y="short")')),
    ("shape", "D0543", block(data='npz("d.npz", x="x5", y="y")')),
    ("rank", "D0543", block(data='npz("d.npz", x="y", y="y")')),
    ("empty", "D0544", block(data='npz("d.npz", x="e", y="e")')),
    ("scalar", "D0543", block(data='npz("d.npz", x="x", y="scalar")')),
    ("damaged", "D0503", block(data='npz("bad.npz", x="x", y="y")')),
    ("kind", "D0530", block(data='npx("d.npz", x="x", y="y")')),
    ("no call", "D0530", block(data='"d.npz"')),
    ("test 2", "D0540", block(data='npz("d.npz", x="x", y="y", test=2)')),
    ("test gone", "D0501", block(data='npz("d.npz", x="x", y="y", test="gone.npz")')),
    ("test tiny", "D0544", block(data='npz("d.npz", x="x", y="y", test=0.001)')),
    ("limit 0", "D0540", block(data='npz("d.npz", x="x", y="y", limit=0)')),
    ("option", "D0540", block(data='npz("d.npz", x="x", y="y", size=3)')),
    ("csv col", "D0545", block(data='csv("t.csv", x=columns(0, 3), y="b")')),
    ("csv name", "D0541", block(data='csv("t.csv", x=columns(0, 2), y="zz")')),
    ("csv number", "D0533", block(data='csv("t.csv", x=columns(0, 2), y=2)')),
    ("npz number", "D0533", block(data='npz("d.npz", x="x", y=2)')),
    ("empty path", "D0533", block(data='npz("", x="x", y="y")')),
    ("two paths", "D0533", block(data='npz("d.npz", "e.npz", x="x", y="y")')),
    ("no data folder", "D0501", block(data='npy("gone")')),
    ("csv text", "D0545", block(data='csv("t.csv", x=columns(0, 2), y="k")')),
    (
        "text short",
        "D0544",
        block(
            data='text("short.txt", x=window(65))',
            takes="x: u8[B, 65]",
            loss="mean(f32(x)) + sum(w)",
        ),
    ),
    (
        "pictures",
        "D0546",
        block(data='pictures("empty")', takes="image: u8[B, 3]", loss="mean(f32(image)) + sum(w)"),
    ),
    ("batch 100 of 1..16", "D0553", block(more="batch = 100")),
    ("default batch of 1..16", "D0553", block()),
    ("last batch of 16..64", "D0553", block(more="batch = 30")),
    (
        "batch fixed",
        "D0553",
        block(takes="x: f32[16, 3], y: f32[16]", loss="mean((x @ w - y) ** 2)"),
    ),
    (
        "batch fixed last",
        "D0553",
        block(takes="x: f32[16, 3], y: f32[16]", loss="mean((x @ w - y) ** 2)", more="batch = 16"),
    ),
    ("accumulate more than all", "D0553", block(more="batch = 4\n  accumulate = 1000")),
    ("batch 0", "D0534", block(more="batch = 0")),
    ("batch float", "D0534", block(more="batch = 2.5")),
    ("batch text", "D0534", block(more='batch = "8"')),
    ("batch twice", "D0530", block(more="batch = 8\n  batch = 9")),
    ("epochs -1", "D0534", block(more="epochs = -1")),
    ("seed", "D0534", block(more="seed = -1")),
    ("entry", "D0530", block(more="epoch = 3")),
    ("checkpoint text", "D0530", block(more='checkpoint = "a.safetensors"')),
    ("checkpoint folder", "D0502", block(more='checkpoint = file("gone/a.safetensors")')),
    ("checkpoint abs", "D0506", block(more='checkpoint = file("/a.safetensors")')),
    ("checkpoint ending", "D0534", block(more='checkpoint = file("a.dlc")')),
    ("checkpoint not safetensors", "D0534", block(more='checkpoint = file("d.npz")')),
    (
        "checkpoint over data",
        "D0534",
        block(
            data='safetensors("d.safetensors", x="x", y="y")',
            more='checkpoint = file("d.safetensors")',
        ),
    ),
    ("checkpoint every", "D0534", block(more='checkpoint = file("a.safetensors", every=0)')),
    ("checkpoint isdir", "D0534", block(more='checkpoint = file("empty")')),
    ("loss shape", "D0532", block(loss="(call(x) - y) ** 2")),
    ("loss int", "D0532", block(loss="3")),
    ("loss declared otherwise", "D0321", block().replace(") = mean", ") -> f32[B] = mean")),
    ("loss declared i32", "D0321", block().replace(") = mean", ") -> i32 = mean")),
    (
        "loss of parts declared as one",
        "D0321",
        block(loss="(loss = 1.0 * w[0], a = w[1])").replace(") = (l", ") -> f32 = (l"),
    ),
    ("loss no param", "D0531", block(loss="mean(y) + mean(x)")),
    ("loss untyped", "D0334", block(takes="x, y: f32[B]", loss="mean(y)")),
    ("loss unknown", "D0201", block(loss="mean(cal(x))")),
    ("loss none", "D0531", block().replace("  loss", "  # loss")),
    ("loss scalar input", "D0543", block(takes="x: f32[B, 3], y: f32", loss="mean(call(x)) * y")),
    ("input twice", "D0202", block(takes=f"x: f32[B, 3], {TAKES}")),
    ("input with a default", "D0533", block(takes=f"{TAKES} = 3")),
    ("metric input twice", "D0202", block(more="metric m(y: f32[B], y: f32[B]) = mean(y)")),
    ("metric default", "D0533", block(more="metric m(y: f32[B] = 1) = mean(y)")),
    ("data names twice", "D0208", block(data='npz("d.npz", x="x", x="x5", y="y")')),
    ("data option twice", "D0208", block(data='npz("d.npz", x="x", y="y", limit=9, limit=8)')),
    ("average twice", "D0208", block(more="average = ema(decay=0.9, decay=0.99)")),
    ("stop twice", "D0208", block(more="stop = early(loss, patience=3, patience=4)")),
    ("checkpoint twice", "D0208", block(more='checkpoint = file("a.dlc", every=1, every=2)')),
    ("loss type", "D0320", block(takes="x: f32[B, 4], y: f32[B]", loss="mean(call(x))")),
    (
        "input named weight",
        "D0537",
        block(data='npz("d.npz", w="x", y="y")', takes="w: f32[B, 3], y: f32[B]", loss="mean(y)"),
    ),
    ("metric type", "D0554", block(more="metric m(y: i32[B]) = mean(f32(y))")),
    ("metric shape", "D0532", block(more="metric m = call(x)")),
    ("metric data", "D0533", block(more="metric m(q: f32[B]) = mean(q)")),
    ("metric unknown", "D0201", block(more="metric m = mean(zz)")),
    ("metric twice", "D0530", block(more="metric m = loss\n  metric m = loss")),
    ("metric named as a weight", "D0537", block(more="metric w = loss")),
    ("metric named as an input", "D0537", block(more="metric x = loss")),
    ("metric named seed", "D0537", block(more="metric seed = loss")),
    ("metric named loss", "D0530", block(more="metric loss = 1.0")),
    ("optimizer", "D0535", block(optimizer="adma()")),
    ("optimizer option", "D0208", block(optimizer="adam(lrr=1)")),
    ("optimizer option twice", "D0208", block(optimizer="adam(lr=1, lr=2)")),
    ("optimizer value", "D0534", block(optimizer='adam(lr="a")')),
    ("optimizer that updates nothing", "D0535", block(optimizer="same()")),
    ("optimizer that ignores the gradient", "D0535", block(optimizer="shrink()")),
    ("optimizer none", "D0531", block().replace("  optimizer", "  # optimizer")),
    ("optimizer module", "D0535", block(optimizer="Line()")),
    ("lr schedule", "D0201", block(optimizer="adam(lr=cosin(peak=1))")),
    ("schedule args", "D0208", block(optimizer="adam(lr=cosine(top=1))")),
    ("schedule needs", "D0208", block(optimizer="adam(lr=cosine())")),
    ("staircase 0", "D0534", block(optimizer="adam(lr=staircase(start=0.1, every=0))")),
    ("cosine steps 0", "D0534", block(optimizer="adam(lr=cosine(peak=0.1, steps=0))")),
    ("warmup > steps", "D0534", block(optimizer="adam(lr=cosine(peak=0.1, steps=10, warmup=20))")),
    ("negative lr", "D0534", block(optimizer="sgd(lr=-1)")),
    ("clip 0", "D0534", block(optimizer="sgd(clip_norm=0)")),
    ("clip text", "D0534", block(optimizer='sgd(clip_norm="a")')),
    ("clip neg", "D0534", block(optimizer="sgd(clip_value=-1)")),
    ("beta 1", "D0534", block(optimizer="adam(beta1=1)")),
    ("freeze unknown", "D0550", block(more="freeze = hea")),
    ("freeze block", "D0550", block(more="freeze = blocks[0]")),
    ("freeze state", "D0550", block(more="freeze = seen")),
    ("freeze fn", "D0550", block(more="freeze = call")),
    ("freeze all", "D0550", block(more="freeze = (w, head, blocks)")),
    ("freeze used", "D0531", block(more="freeze = w")),
    ("eval weight", "D0550", block(more="eval = w")),
    (
        "group twice",
        "D0550",
        block(optimizer="sgd()\n  optimizer(head) = sgd()\n  optimizer(head) = adam()"),
    ),
    (
        "group frozen",
        "D0550",
        block(optimizer="sgd()\n  optimizer(head) = sgd()", more="freeze = head"),
    ),
    ("group rest", "D0531", block().replace("optimizer", "optimizer(w)")),
    ("module", "D0206", block(head="Lin")),
    ("module far", "D0206", block(head="Gone")),
    ("unnamed twice", "D0538", block() + block()),
    ("same name", "D0538", block(head="a for Line") + block(head="a for Line")),
    ("named unnamed", "D0538", block(head="a for Line") + block()),
    (
        "input named loss",
        "D0537",
        block(
            data='npz("d.npz", loss="x", y="y")',
            takes="loss: f32[B, 3], y: f32[B]",
            loss="mean(call(loss))",
        ),
    ),
    (
        "input named seed",
        "D0537",
        block(
            data='npz("d.npz", seed="x", y="y")',
            takes="seed: f32[B, 3], y: f32[B]",
            loss="mean(call(seed))",
        ),
    ),
    ("loss of constants", "D0531", block(loss="stop_gradient(mean(call(x)))")),
    ("loss of an index", "D0531", block(loss="f32(argmax(w)) + mean(y)")),
    ("loss of integers", "D0531", block(loss="f32(i32(sum(call(x))))")),
    (
        "loss with a while",
        "D0406",
        block(loss="mean(while sum(w) > 0 with z = x { next z = z - w })"),
    ),
    ("size of no input", "D0553", block(loss="mean(call(x)) + f32(N)")),
    ("two batches", "D0553", block(takes="x: f32[N, 3], y: f32[B]", loss="mean(x @ w) + mean(y)")),
    ("update gives a number", "D0535", block(optimizer="number()")),
    ("update takes two", "D0208", block(optimizer="two()")),
    ("schedule of i32", "D0535", block(optimizer="sgd(lr=count)")),
    ("schedule of two", "D0208", block(optimizer="sgd(lr=scaled)")),
    ("lr of a weight", "D0327", block(optimizer="sgd(lr=w)")),
    ("lr nan", "D0534", block(optimizer="sgd(lr=nan)")),
    ("test of another shape", "D0543", block(data='npz("d.npz", x="x", y="y", test="other.npz")')),
    ("text as numbers", "D0507", block(data='npz("d.npz", x="x", y="words")')),
    ("csv short row", "D0545", block(data='csv("short.csv", x=columns(0, 3), y="d")')),
    (
        "stop on the weight",
        "D0534",
        block(
            loss="(loss = mean(call(x)), weight = 3.0)",
            more='stop = early(weight, mode="min", patience=3)',
        ),
    ),
    ("part twice", "D0537", block(loss="(loss = mean(call(x)), a = 1.0, a = 2.0)")),
    ("precision", "D0534", block(more="precision = f64")),
    ("plateau that raises", "D0534", block(more="rate = plateau(loss, factor=2)")),
    ("optimizer of a state", "D0550", block(optimizer="sgd()\n  optimizer(seen) = sgd()")),
    ("total_steps", "D0536", block(more="metric m = 1 / total_steps")),
    ("update in metric", "D0201", block(more="metric m = step")),
]
HELPLESS = {"D0201", "D0320", "D0321"}
"""Codes of the language in general: an unknown name that is like no other, two types that differ."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data of many kinds, some of it broken."""
    path = tmp_path_factory.mktemp("train")
    floats = np.random.default_rng(0).normal(size=(40, 5))
    arrays: dict[str, NDArray[np.generic]] = {
        "x": floats[:, :3].astype(np.float32),
        "y": np.zeros(40, np.float32),
        "i": np.zeros(40, np.int32),
        "x64": floats[:, :3],
        "x5": floats.astype(np.float32),
        "short": np.zeros(39, np.float32),
        "e": np.zeros((0, 3), np.float32),
        "scalar": np.array(1, np.float32),
        "words": np.array(["a"] * 40),
    }
    np.savez(path / "d.npz", allow_pickle=False, **arrays)
    safetensors.write(path / "d.safetensors", {n: Tensor(arrays[n], "f32") for n in ("x", "y")})
    (path / "t.csv").write_text("a,b,k\n1,2,u\n3,4,v\n")
    (path / "short.csv").write_text("a,b,c,d\n1,2,3,4\n1,2,3\n")
    np.savez(path / "other.npz", allow_pickle=False, x=arrays["x5"], y=arrays["y"])
    (path / "bad.npz").write_bytes(b"nonsense")
    (path / "short.txt").write_text("abc")
    (path / "empty").mkdir()
    return path


def found(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> list[Diagnostic]:
    """What `dlc check` says about a text; nothing is compiled, so nothing runs."""
    monkeypatch.setattr("dlc.driver.run.train.compile_model", None)
    path = folder / "model.dlm"
    path.write_text(text)
    try:
        return list(check_model(CompileRequest(str(path))).warnings)
    except DlcError as error:
        return list(error.diagnostics)


def test_a_right_block_is_right(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not found(folder, HEAD + block(), monkeypatch)
    typed = block().replace(") = mean", ") -> f32 = mean")
    assert not found(folder, HEAD + typed, monkeypatch)
    parts = block(loss="(loss = 1.0 * w[0], a = w[1])")
    typed = parts.replace(") = (l", ") -> (loss: f32, a: f32) = (l")
    assert not found(folder, HEAD + typed, monkeypatch)


@pytest.mark.parametrize(
    ("case", "code", "text"), every(2, [pytest.param(*w, id=w[0]) for w in WRONG])
)
def test_a_wrong_block_is_found_with_its_place_and_a_way_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, case: str, code: str, text: str
) -> None:
    _, _, bounds = case.partition(" of ")
    head = HEAD.replace("1..64", bounds) if ".." in bounds else HEAD
    told = found(folder, head + text, monkeypatch)[0]
    assert told.code == code
    assert told.severity == ("warning" if case.startswith("optimizer that") else "error")
    assert told.place is not None
    assert told.place.file == "model.dlm"
    assert told.place.line > HEAD.count("\n")
    assert told.help or code in HELPLESS


def test_data_that_is_not_there_ends_a_check_as_it_would_end_the_training(folder: Path) -> None:
    path = folder / "model.dlm"
    read = block(data='text("empty", x=window(3))', takes="x: u8[B, 3]", loss="mean(f32(x) @ w)")
    path.write_text(HEAD + read)
    with pytest.raises(DlcError, match=r"D0501.*is a folder"):
        check_model(CompileRequest(str(path)))
    path.write_text(HEAD + read.replace('"empty"', '"gone.txt"'))
    with pytest.raises(UsageError, match=r"(?s)D0501.*leave the path out of the text"):
        check_model(CompileRequest(str(path)))


@pytest.mark.parametrize("data", ['  data = npz(x="x", y="y", test=0.2)\n', ""])
def test_data_that_is_given_later_is_told_and_checked_where_it_is_named(
    folder: Path, data: str
) -> None:
    path = folder / "model.dlm"
    path.write_text(HEAD + block().replace(f"  data = {DATA}\n", data))
    (row,) = check_model(CompileRequest(str(path))).trainings
    assert "is given its data: dlc train --data FILE" in row.head
    assert row.data()["data"] is None
    (row,) = check_model(CompileRequest(str(path)), str(folder / "d.npz")).trainings
    assert "is given its data" not in row.head
    for name, code in (("gone.npz", "D0501"), ("bad.npz", "D0503"), ("short.txt", "D0")):
        with pytest.raises(DlcError, match=code):
            check_model(CompileRequest(str(path)), str(folder / name))
    with pytest.raises(UsageError, match=r"(?s)D0501.*give a file, arrays or batches"):
        plan_training(CompileRequest(str(path))).data()


def test_a_file_that_is_given_is_checked_in_place_of_that_of_the_text(folder: Path) -> None:
    path = folder / "model.dlm"
    path.write_text(HEAD + block(data='npz("gone.npz", x="x", y="y")'))
    (row,) = check_model(CompileRequest(str(path)), str(folder / "d.npz")).trainings
    assert row.data()["data"] == str(folder / "d.npz")


def test_an_entry_point_without_a_derivative_ends_a_check_as_it_ends_a_compilation(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.dlm"
    path.write_text(
        "dlc 1\nfn f(a: f32) -> f32 = while a > 1 with x = a { next x = x / 2 }\n"
        "export fn g(a: f32) -> f32 = grad(f)(a)\n"
    )
    with pytest.raises(DlcError, match=r"(?s)D0406.*model\.dlm:2:23.*limit 100"):
        check_model(CompileRequest(str(path)))


def test_a_block_that_is_not_there_is_told(folder: Path) -> None:
    path = folder / "model.dlm"
    path.write_text(HEAD + block(head="one for Line"))
    assert [row.block for row in check_model(CompileRequest(str(path), block="one")).trainings] == [
        "one"
    ]
    with pytest.raises(DlcError, match="has no train block two"):
        check_model(CompileRequest(str(path), block="two"))


def test_what_is_trained_is_told_with_its_numbers(folder: Path) -> None:
    path = folder / "model.dlm"
    path.write_text(
        HEAD + block(loss="mean((call(x) + head(x)[:, 0] - y) ** 2)", more="freeze = head")
    )
    (row,) = check_model(CompileRequest(str(path))).trainings
    assert row.head.splitlines() == [
        "train Line",
        "    trains 3 parameters: w",
        "    freezes 4 parameters: head.w, head.b",
        "    does not use 24 parameters: blocks.w, blocks.b",
    ]
    assert row.data()["frozen"] == {"parameters": 4, "weights": ["head.w", "head.b"]}
