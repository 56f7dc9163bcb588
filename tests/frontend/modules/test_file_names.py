"""Weights of files from elsewhere, through `names`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import DlcError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from tests.frontend.programs import Program, as_list

Floats = NDArray[np.float32]

TEXT = """dlc 1
import nn (Linear)

names {
  "embeddings.weight" = emb
  "encoder.{i}.dense.weight" = blocks[i].down.w.T
  "encoder.{i}.dense.bias" = blocks[i].down.b
  "heads.{n}.weight" = heads[n].w.T
  "heads.1.bias" = heads[1].b
}

module Block(D) {
  use down = Linear(D, D)
  fn call(x: f32[.., D]) -> f32[.., D] = tanh(down(x))
}
module Net(V = 5, D = 3, L = 2) from "net.safetensors" {
  param emb: f32[V, D] = normal(0.02)
  use blocks = L * Block(D)
  use heads = [Linear(D, 2, bias=false), Linear(D, 4)]

  export fn f(ids: i32[6]) -> (a: f32[6, 2], b: f32[6, 4]) {
    let h = scan block in blocks with h = emb[ids] { next h = block(h) }
    return (a = heads[0](h), b = heads[1](h))
  }
}
"""
IDS = np.array([4, 0, 3, 1, 2, 2], np.int32)


def foreign() -> dict[str, Floats]:
    """Weights under the names of another program, matrices transposed."""
    random = np.random.default_rng(0)
    shapes = {
        "embeddings.weight": (5, 3),
        "encoder.0.dense.weight": (3, 3),
        "encoder.0.dense.bias": (3,),
        "encoder.1.dense.weight": (3, 3),
        "encoder.1.dense.bias": (3,),
        "heads.0.weight": (2, 3),
        "heads.1.weight": (4, 3),
        "heads.1.bias": (4,),
    }
    return {key: random.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}


def expected(w: dict[str, Floats]) -> tuple[Floats, Floats]:
    h = w["embeddings.weight"][IDS]
    for k in range(2):
        h = np.tanh(h @ w[f"encoder.{k}.dense.weight"].T + w[f"encoder.{k}.dense.bias"])
    return h @ w["heads.0.weight"].T, h @ w["heads.1.weight"].T + w["heads.1.bias"]


def own_names(w: dict[str, Floats]) -> dict[str, Floats]:
    """The same weights under the model's paths."""
    return {
        "emb": w["embeddings.weight"],
        "blocks.down.w": np.stack([w[f"encoder.{k}.dense.weight"].T for k in range(2)]),
        "blocks.down.b": np.stack([w[f"encoder.{k}.dense.bias"] for k in range(2)]),
        "heads.0.w": w["heads.0.weight"].T.copy(),
        "heads.1.w": w["heads.1.weight"].T.copy(),
        "heads.1.b": w["heads.1.bias"],
    }


def save(path: Path, arrays: dict[str, Floats]) -> Path:
    safetensors.write(path, {name: Tensor(array) for name, array in arrays.items()})
    return path


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.dlm"
    path.write_text(TEXT)
    return path


def test_a_file_from_elsewhere_gives_the_weights_of_lists_and_stacks(net: Path) -> None:
    save(net.with_name("net.safetensors"), foreign())
    for found, wanted in zip(Program(path=net).run("f", IDS), expected(foreign()), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_file_named_on_the_command_line_is_read_alike(net: Path) -> None:
    elsewhere = save(net.with_name("other.safetensors"), foreign())
    own = save(net.with_name("own.safetensors"), own_names(foreign()))
    for weights in (str(elsewhere), str(own)):
        (first, _) = Program(path=net, weights=weights).run("f", IDS)
        np.testing.assert_allclose(first, expected(foreign())[0], rtol=1e-5)


def test_a_compiled_model_takes_weights_under_either_name(net: Path, tmp_path: Path) -> None:
    started = dlc.compile(net, weights="init:3")
    path = tmp_path / "net.dlc"
    started.save(path)
    model = dlc.load(path)
    elsewhere = save(tmp_path / "other.safetensors", foreign())
    for given in (elsewhere, foreign(), own_names(foreign())):
        (first, _) = as_list(model.with_weights(given).f(IDS))
        np.testing.assert_allclose(first, expected(foreign())[0], rtol=1e-5)
    assert set(model.weights) == set(own_names(foreign()))


def test_names_do_not_change_how_weights_are_initialised(net: Path) -> None:
    named = dlc.compile(net, weights="init:3").weights
    plain = TEXT[: TEXT.index("names {")] + TEXT[TEXT.index("module Block") :]
    unnamed = dlc.compile(text=plain, weights="init:3").weights
    for name, array in unnamed.items():
        np.testing.assert_array_equal(np.asarray(named[name]), np.asarray(array))


def test_the_first_missing_block_is_named(net: Path) -> None:
    arrays = foreign()
    del arrays["encoder.1.dense.weight"]
    save(net.with_name("net.safetensors"), arrays)
    with pytest.raises(DlcError, match=r"there is no array encoder\.1\.dense\.weight") as caught:
        dlc.compile(net)
    (said,) = caught.value.diagnostics
    assert said.code == "D0504"
    assert said.place is not None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('"a" = embb', "Net has no weight or submodule embb"),
        ('"a" = blocks', "this is a module, not a weight"),
        ('"a" = blocks.down.w', "a stack is walked by a number that the key has in braces"),
        ('"a" = blocks[0].down.w', "a stack is walked by a number that the key has in braces"),
        ('"a.{i}" = blocks[j].down.w', "a stack is walked by a number that the key has in braces"),
        ('"a.{i}" = emb', "{i} of the key counts nothing"),
        ('"a" = heads[2].w', "there are 2 layers, numbered from 0"),
        ('"a" = heads[1].b.T', "heads.1.b is f32[4], which has no transpose"),
        ('"a" = 3', "this names no weight"),
        ('"a" = emb "b" = emb', "emb has two names in weight files"),
        ('"a" = heads[1].b "{i}" = heads[i].b', "heads.1.b has two names in weight files"),
    ],
)
def test_names_of_what_is_no_weight_are_refused(entry: str, message: str) -> None:
    text = TEXT[: TEXT.index('"embeddings')] + entry + TEXT[TEXT.index("\n}\n\nmodule Block") :]
    with pytest.raises(DlcError) as caught:
        dlc.compile(text=text, weights="init:0")
    (said,) = caught.value.diagnostics
    assert (said.code, said.message) == ("D0224", message)
    assert said.place is not None and said.place.line == 5


def test_a_names_block_in_a_module_speaks_of_its_members(tmp_path: Path) -> None:
    text = """dlc 1
module Scale(D) {
  names { "gamma" = by }
  param by: f32[D] = ones()
  fn call(x: f32[.., D]) -> f32[.., D] = by * x
}
module Net() {
  use inner = Scale(3)
  export fn f(x: f32[3]) -> f32[3] = inner(x)
}
"""
    path = save(tmp_path / "w.npz.safetensors", {"gamma": np.array([1, 2, 3], np.float32)})
    found = Program(text=text, weights=str(path)).result("f", np.ones(3, np.float32))
    np.testing.assert_array_equal(found, [1, 2, 3])


SCALES = """dlc 1
{outside}
module Scale(D) {{
  names {{ "gamma" = by }}
  param by: f32[D] = ones()
  fn call(x: f32[.., D]) -> f32[.., D] = by * x
}}
module Net() {{
  use a = Scale(3)
  {inside}
  export fn f(x: f32[3]) -> f32[3] = a(x)
}}
"""


@pytest.mark.parametrize(
    ("outside", "inside", "line", "message"),
    [
        ('names { "g" = a.by }', "", 2, "a.by has two names in weight files"),
        ("", 'names { "g" = a.by }', 4, "a.by has two names in weight files"),
        ("", "use b = Scale(3)", 4, "`gamma` names the weights a.by and b.by of two instances"),
        ("", "use b = [Scale(3)]", 4, "`gamma` names the weights a.by and b.0.by of two instances"),
    ],
)
def test_a_weight_is_named_once_and_a_name_of_one_entry_is_one_weight(
    outside: str, inside: str, line: int, message: str
) -> None:
    text = SCALES.format(outside=outside, inside=inside)
    with pytest.raises(DlcError) as caught:
        dlc.compile(text=text, weights="init:0")
    (said,) = caught.value.diagnostics
    assert (said.code, said.message) == ("D0224", message)
    assert said.place is not None and said.place.line == line


def test_entries_of_their_own_may_share_a_name(tmp_path: Path) -> None:
    text = """dlc 1
names { "gamma" = v  "gamma" = w }
module Net() {
  param v: f32[3] = ones()
  param w: f32[3] = ones()
  export fn f(x: f32[3]) -> f32[3] = v * w * x
}
"""
    path = save(tmp_path / "w.npz.safetensors", {"gamma": np.array([1, 2, 3], np.float32)})
    found = Program(text=text, weights=str(path)).result("f", np.ones(3, np.float32))
    np.testing.assert_array_equal(found, [1, 4, 9])


# Several weights in one array ---------------------------------------------------------------------

SPLIT = """dlc 1
import nn (Linear)
module Heads(D, K) {
  use q = Linear(D, D)
  use k = Linear(D, K)
  use v = Linear(D, K)
  fn call(x: f32[.., D]) -> f32[.., K] = k(q(x)) * v(x)
}
module Net(K = 4, L = 2) {
  use blocks = L * Heads(4, K)
  use last = [Heads(4, 4), Heads(4, K)]
  names {
    "h.{i}.qkv.weight" = (blocks[i].q.w.T, blocks[i].k.w.T, blocks[i].v.w.T)
    "h.{i}.qkv.bias" = (blocks[i].q.b, blocks[i].k.b, blocks[i].v.b)
    "last.{n}.weight" = (last[n].q.w, last[n].k.w, last[n].v.w)
  }
  export fn f(x: f32[3, 4]) -> f32[3, K] {
    let h = scan block in blocks with h = x { next h = h + sum(block(h)) }
    return last[1](last[0](h))
  }
}
"""


def side_by_side(k: int) -> dict[str, Floats]:
    """Weights of `SPLIT` in the arrays of a file: rows in the stack, columns in the list."""
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {}
    for n in range(2):
        shapes |= {f"h.{n}.qkv.weight": (4 + 2 * k, 4), f"h.{n}.qkv.bias": (4 + 2 * k,)}
    shapes |= {"last.0.weight": (4, 12), "last.1.weight": (4, 4 + 2 * k)}
    for n, size in ((0, 4), (1, k)):
        shapes |= {f"last.{n}.q.b": (4,), f"last.{n}.k.b": (size,), f"last.{n}.v.b": (size,)}
    return {key: random.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}


def apart(arrays: dict[str, Floats], k: int) -> dict[str, Floats]:
    """The same weights by the paths of the model."""
    own = {
        name: array for name, array in arrays.items() if name.startswith("last") and ".b" in name
    }
    ends = {"q": (0, 4), "k": (4, 4 + k), "v": (4 + k, 4 + 2 * k)}
    for name, (first, last) in ends.items():
        rows = slice(first, last)
        own[f"blocks.{name}.w"] = np.stack([arrays[f"h.{n}.qkv.weight"][rows].T for n in range(2)])
        own[f"blocks.{name}.b"] = np.stack([arrays[f"h.{n}.qkv.bias"][rows] for n in range(2)])
        own[f"last.1.{name}.w"] = arrays["last.1.weight"][:, rows].copy()
    for name, array in zip("qkv", np.split(arrays["last.0.weight"], 3, axis=1), strict=True):
        own[f"last.0.{name}.w"] = array.copy()
    return own


@pytest.mark.parametrize("k", [4, 2], ids=["of one size", "of two sizes"])
def test_an_array_of_several_weights_is_split(k: int, tmp_path: Path) -> None:
    arrays = side_by_side(k)
    path = save(tmp_path / "net.safetensors", arrays)
    np.savez(tmp_path / "net.npz", allow_pickle=False, **arrays)
    index = tmp_path / "net.safetensors.index.json"
    where = {name: f"{number % 2}.safetensors" for number, name in enumerate(arrays)}
    for shard in set(where.values()):
        save(tmp_path / shard, {name: arrays[name] for name in arrays if where[name] == shard})
    index.write_text(json.dumps({"weight_map": where}))
    text = tmp_path / "net.dlm"
    text.write_text(SPLIT)
    for given in (path, index, tmp_path / "net.npz", arrays):
        model = dlc.compile(text, weights=given, settings={"K": k})
        for name, array in apart(arrays, k).items():
            np.testing.assert_array_equal(np.asarray(model.weights[name]), array, name)
    model.save(tmp_path / "net.dlc")
    compiled = dlc.load(tmp_path / "net.dlc").with_weights(path)
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(compiled.f(x), model.with_weights(apart(arrays, k)).f(x))


def test_a_part_of_an_array_is_widened_and_rounded_as_a_whole_one(tmp_path: Path) -> None:
    arrays = side_by_side(2)
    halves = {name: array.astype(np.float16) for name, array in arrays.items()}
    doubles = {name: array.astype(np.float64) for name, array in arrays.items()}
    for stored, prefix in ((halves, ""), (doubles, "narrow:")):
        path = tmp_path / "net.safetensors"
        safetensors.write(path, {name: Tensor(array) for name, array in stored.items()})
        model = dlc.compile(text=SPLIT, weights=f"{prefix}{path}", settings={"K": 2})
        wanted = apart({n: a.astype(np.float32) for n, a in stored.items()}, 2)
        for name, array in wanted.items():
            np.testing.assert_array_equal(np.asarray(model.weights[name]), array, name)


@pytest.mark.parametrize(
    ("k", "name", "shape", "message", "help"),
    [
        (2, "h.0.qkv.weight", (9, 4), "is f32[9, 4], where the model has f32[8, 4]", "all of them"),
        (2, "h.1.qkv.weight", (4, 8), "is f32[4, 8], where the model has f32[8, 4]", "transposed"),
        (2, "last.1.weight", (8, 4), "where the model has f32[4, 8]", "(.., last.1.q.w.T, ..)"),
        (4, "h.0.qkv.weight", (4, 4), "where the model has f32[12, 4] or f32[4, 12]", "in order"),
    ],
)
def test_an_array_that_does_not_hold_the_weights_is_refused(
    k: int, name: str, shape: tuple[int, ...], message: str, help: str, tmp_path: Path
) -> None:
    arrays = {**side_by_side(k), name: np.zeros(shape, np.float32)}
    path = save(tmp_path / "net.safetensors", arrays)
    for given in (path, arrays):
        with pytest.raises(DlcError) as caught:
            dlc.compile(text=SPLIT, weights=given, settings={"K": k})
        (said,) = caught.value.diagnostics
        assert (said.code, message in said.message) == ("D0505", True), said
        assert said.help is not None and help in said.help
        assert said.place is not None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('"a" = (emb, heads[1].b)', "[5, 3] and [4] do not lie side by side in one array"),
        ('"a" = (emb, heads[1].w)', "[5, 3] and [3, 4] do not lie side by side in one array"),
        ('"a" = (emb, emb)', "emb has two names in weight files"),
        ('"a" = (emb, embb)', "Net has no weight or submodule embb"),
        ('"a" = (x = emb, y = emb)', "the weights in an array have no names here"),
        ('"a.{i}" = (heads[i].w, blocks[i].down.w)', "only 1 of the 2 weights lie in a.2"),
        ('"a.{i}" = (heads[i].w, emb)', "{i} of the key counts nothing"),
        ('"{n}.{i}" = (heads[i].w, heads[n].w)', "{n} of the key counts nothing"),
    ],
)
def test_weights_that_cannot_lie_in_one_array_are_refused(entry: str, message: str) -> None:
    text = TEXT[: TEXT.index('"embeddings')] + entry + TEXT[TEXT.index("\n}\n\nmodule Block") :]
    with pytest.raises(DlcError) as caught:
        dlc.compile(text=text, weights="init:0", settings={"L": 3})
    (said,) = caught.value.diagnostics
    assert said.code == "D0224" and said.message.startswith(message), said
    assert said.place is not None and said.place.line == 5


def test_a_stack_lies_at_one_place_in_the_arrays_of_its_blocks() -> None:
    entry = '"a.{i}" = (heads[i].w, blocks[i].down.w)'
    text = TEXT[: TEXT.index('"embeddings')] + entry + TEXT[TEXT.index("\n}\n\nmodule Block") :]
    with pytest.raises(DlcError, match=r"D0224.*blocks\.down\.w lies at several places"):
        dlc.compile(text=text, weights="init:0")


# Tensors of files as values -----------------------------------------------------------------------
