"""Masked elements have no number: nothing computes with what lies under a mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import DlcError
from dlc.runtime.arrays.masked import has_masked
from dlc.runtime.model import Model
from dlc.runtime.training.trainer import Trainer

TEXT = """dlc 1
dim B = 1..8
module Net() {
  param w: f32[2, 2] = ones()
  export fn f(x: f32[B, 2]) -> f32[B, 2] = x @ w
  export fn add(inout y: f32[2], x: f32[2]) -> f32[2] {
    set y = y + x
    return x
  }
}
train Net {
  data = npz("never.npz", x="x")
  loss(x: f32[B, 2]) = mean(f(x))
  optimizer = sgd(lr=0.1)
  batch = 2
  epochs = 1
}
"""
PLAIN = np.array([[1, 2], [3, 4]], np.float32)
MASKED: NDArray[np.float32] = np.ma.array(PLAIN, mask=[[True, False], [False, False]])


@pytest.fixture(scope="module")
def model() -> Model:
    return dlc.compile(text=TEXT)


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return dlc.trainer(text=TEXT)


@pytest.mark.filterwarnings("ignore:.*masked element to nan")  # of NumPy, before the refusal
def test_a_masked_array_is_refused_wherever_arrays_are_taken(
    model: Model, trainer: Trainer
) -> None:
    places: dict[str, Callable[[], object]] = {
        "an argument": lambda: model.f(MASKED),
        "an argument that the call changes": lambda: model.add(MASKED[0], PLAIN[0]),
        "a list": lambda: model.add(np.zeros(2, np.float32), [np.ma.masked, np.ma.masked]),
        "a tensor": lambda: dlc.Tensor(MASKED),
        "a tensor of another dtype": lambda: dlc.Tensor(MASKED, "bf16"),
        "a weight": lambda: model.with_weights({"w": MASKED}),
        "a weight when compiling": lambda: dlc.compile(text=TEXT, weights={"w": MASKED}),
        "a weight that is trained": lambda: dlc.trainer(text=TEXT, weights={"w": MASKED}),
        "a batch": lambda: trainer.step(x=MASKED),
        "data": lambda: trainer.fit(data={"x": MASKED}),
        "a stream": lambda: trainer.fit(data=[{"x": MASKED}]),
        "examples": lambda: dlc.buckets([{"x": MASKED}], sizes=[2], batch=1, pad={"x": 0}),
    }
    for name, run in places.items():
        with pytest.raises(DlcError) as caught:
            run()
        assert "masked" in str(caught.value), (name, str(caught.value))


def test_an_array_whose_mask_hides_nothing_is_read(model: Model) -> None:
    whole = np.ma.array(PLAIN, mask=False)
    np.testing.assert_array_equal(model.f(whole), model.f(PLAIN))
    np.testing.assert_array_equal(model.with_weights({"w": whole}).weights["w"], PLAIN)


def test_a_tensor_is_a_weight() -> None:
    for weight in (dlc.Tensor(PLAIN), dlc.Tensor(PLAIN, "bf16"), dlc.Tensor(PLAIN.T.copy().T)):
        compiled = dlc.compile(text=TEXT, weights={"w": weight})
        np.testing.assert_array_equal(compiled.weights["w"], PLAIN)


def test_an_array_of_another_library_is_a_weight() -> None:
    class Exported:
        def __dlpack__(self, **how: object) -> object:
            return PLAIN.__dlpack__(**how)  # pyright: ignore[reportArgumentType]

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    given = cast("Mapping[str, dlc.Tensor]", {"w": Exported()})
    np.testing.assert_array_equal(dlc.compile(text=TEXT, weights=given).weights["w"], PLAIN)


def test_a_subclass_of_arrays_without_a_mask_hides_nothing() -> None:
    class Named(np.ndarray):
        mask = "a word"

    assert not has_masked(PLAIN.view(Named))
    assert not has_masked([MASKED])
    rows = np.ma.zeros(1, [("a", "i4"), ("b", "i4")])
    rows.mask = True
    assert not has_masked(rows)  # its dtype is refused
