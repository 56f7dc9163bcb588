"""Values as they are written on a command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.driver.run.inputs import random_value, read_value, zeros
from dlc.errors import DlcError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Input

F32 = Input("x", "f32", ("2", "2"))


@pytest.mark.parametrize(
    ("text", "item", "values"),
    [
        ("3.5", Input("x", "f32"), 3.5),
        ("-2", Input("x", "i8"), -2),
        ("[[1,2],[3,4]]", F32, [[1, 2], [3, 4]]),
        ("[inf, -inf]", Input("x", "f64", ("2",)), [np.inf, -np.inf]),
        ("[true, false]", Input("x", "bool", ("2",)), [True, False]),
        ("text:ab", Input("x", "u8", ("T",)), [97, 98]),
        ("text:'ab'", Input("x", "u8", ("T",)), [97, 98]),
        ("text:'it's", Input("x", "u8", ("T",)), list(b"'it's")),
        ("text:''", Input("x", "u8", ("T",)), []),
        ("text:ab", Input("x", "u8", ("B", "T")), [[97, 98]]),
        ("1e3", Input("x", "bf16"), 1000),
        ("[.5, 1., +1, 2e-1,]", Input("x", "f32", ("4",)), np.array([0.5, 1, 1, 0.2], np.float32)),
    ],
)
def test_numbers_and_text_become_the_inputs_dtype(text: str, item: Input, values: object) -> None:
    found = read_value(text, item)
    assert Tensor(found).dtype == item.dtype
    np.testing.assert_array_equal(Tensor(found).values(), np.asarray(values))


@pytest.mark.parametrize(
    "text",
    ["", "[1, 2", "[1, [2]]", "1 2", "300", "apples", "__import__('os')", "[" * 100 + "]" * 100],
)
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(DlcError) as caught:
        read_value(text, Input("x", "i8", ("2",)))
    assert caught.value.diagnostics[0].code in ("D0907", "D0802", "D0805")


def test_an_array_is_found_by_the_inputs_name_or_because_it_is_alone(tmp_path: Path) -> None:
    one, two = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    np.savez(tmp_path / "both.npz", x=one, y=two)
    np.save(tmp_path / "other.npy", two)
    safetensors.write(tmp_path / "z.safetensors", {"z": Tensor(one)})
    for file, wanted in (("both.npz", one), ("other.npy", two), ("z.safetensors", one)):
        found = read_value(str(tmp_path / file), F32)
        np.testing.assert_array_equal(Tensor(found).values(), wanted)


def test_zeros_and_random_numbers_have_the_size_that_the_dims_say() -> None:
    item = Input("x", "f32", ("B", "2*B + 1"))
    assert zeros(item, {"B": 3}).shape == (3, 7)
    assert random_value(item, {"B": 3}, 0).shape == (3, 7)


def test_random_numbers_depend_on_seed_and_name() -> None:
    def drawn(name: str, seed: int) -> bytes:
        found = random_value(Input(name, "f32", ("8",)), {}, seed)
        return Tensor(found).bits.tobytes()

    assert drawn("x", 0) == drawn("x", 0)
    assert len({drawn("x", 0), drawn("x", 1), drawn("y", 0)}) == 3


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "u8", "i32", "bool"])
def test_random_numbers_drawn_in_pieces_are_those_drawn_at_once(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = Input("x", dtype, ("7", "3"))
    whole = Tensor(random_value(item, {}, 5)).bits
    monkeypatch.setattr("dlc.driver.run.inputs.PIECE", 4)
    pieces = Tensor(random_value(item, {}, 5)).bits
    assert pieces.shape == (7, 3)
    np.testing.assert_array_equal(pieces, whole)


@pytest.mark.parametrize(
    ("size", "wrong"), [("T - 5", "[-2], which is below 0"), ("T*2**62", "not known")]
)
def test_an_array_of_an_impossible_size_is_not_made(size: str, wrong: str) -> None:
    with pytest.raises(DlcError) as caught:
        zeros(Input("x", "f32", (size.replace("2**62", str(2**62)),)), {"T": 3})
    assert wrong in str(caught.value)
