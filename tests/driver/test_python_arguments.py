"""What is wrong about a call from Python is said in the words of Python, with the name of the argument."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.python_arguments import bounds_of, settings_of
from dlc.frontend.elaboration.values import Items
from tests.suites import together

TEXT = "dlc 1\ndim B = 1..64\nexport fn f(x: f32[B]) -> f32[B] = 2 * x\n"
MODULES = """\
dlc 1
module A(n, rate = 0.5, sizes = [1, 2]) {
  param w: f32[n] = ones()
  export fn f(x: f32[n]) -> f32[n] = x * w * rate + f32(sizes[1])
}
module B(n) { export fn g(x: f32[n]) -> f32[n] = x }
"""
compile: Callable[..., dlc.Model] = dlc.compile
trainer: Callable[..., dlc.Trainer] = dlc.trainer
load: Callable[..., dlc.Model] = dlc.load
F32 = NDArray[np.float32]


@pytest.fixture(scope="module")
def model() -> dlc.Model:
    return dlc.compile(text=MODULES, module="A", settings={"n": 2})


@together(
    ("call", "said"),
    [
        (lambda: compile(5), "the path of a model is a str or a pathlib.Path, found 5"),
        (lambda: compile(b"a.dlm"), "the path of a model is a str"),
        (lambda: compile(text=5), "text is the text of a model, found 5"),
        (lambda: compile(text=TEXT, module=5), "module is the name of a module, found 5"),
        (lambda: compile(text=TEXT, weights=5), "weights is a str or a pathlib.Path, found 5"),
        (lambda: compile(text=TEXT, weights={"w": 5}), "the weight w is an array, found 5"),
        (lambda: compile(text=TEXT, weights={5: np.ones(1)}), "a name in weights is a str"),
        (lambda: compile(text=TEXT, settings=5), "settings is a mapping of names to values"),
        (lambda: compile(text=TEXT, settings={5: 5}), "a name in settings is a str, found 5"),
        (lambda: compile(text=TEXT, settings={"n": {}}), "n is set to a number, a text or a list"),
        (lambda: compile(text=TEXT, level="2"), "level is a whole number, found '2'"),
        (lambda: compile(text=TEXT, level=4), "level=4 is out of range"),
        (lambda: compile(text=TEXT, target=5), "target is what to compile for"),
        (lambda: compile(text=TEXT, matmul="gpu"), 'use matmul="blas", "generated" or "auto"'),
        (lambda: compile(text=TEXT, conv="fft"), 'use conv="direct", "winograd" or "auto"'),
        (
            lambda: compile(text=TEXT, matmul_precision="tf32"),
            'leave matmul_precision out, or compile for a GPU: target="cuda"',
        ),
        (lambda: compile(text=TEXT, places={"x": "1"}), 'write places={"x": "cpu:1"}'),
        (lambda: compile(text=TEXT, disable="cse"), 'disable is a list of names, such as ["cse"]'),
        (lambda: compile(text=TEXT, disable=5), "disable is a list of names"),
        (lambda: compile(text=TEXT, disable=[5]), "a name in disable is a str, found 5"),
        (lambda: compile(text=TEXT, dims=5), "dims is a mapping of names to bounds"),
        (lambda: compile(text=TEXT, dims={"B": "2"}), "the bounds of B is (low, high), found '2'"),
        (lambda: compile(text=TEXT, dims={"B": (1.5, 2)}), "the lowest B is a whole number"),
        (lambda: compile(text=TEXT, dims={"B": (0, 2)}), 'dims={"B": (0, 2)} is not inside 1..64'),
        (lambda: compile(text=TEXT, max_memory="1GiB"), "max_memory is a whole number"),
        (lambda: compile(text=MODULES), 'say which one is meant: module="A"'),
        (lambda: compile(text=MODULES, module="A"), 'give it: settings={"n": ...}'),
        (lambda: trainer(text=5), "text is the text of a model"),
        (lambda: trainer(text=TEXT, n={}), "n is set to a number"),
        (lambda: load(None), "from the path of its file, found None"),
        (lambda: load(5), "from the path of its file, found 5"),
        (lambda: dlc.Tensor([[1], [1, 2]]), "the values are not an array"),
        (
            lambda: dlc.Tensor(np.ones((2, 3))) @ dlc.Tensor(np.ones((2, 3))),
            "np.matmul of f64[2, 3] and f64[2, 3]",
        ),
    ],
)
def test_what_is_wrong_about_an_argument_is_said(call: Callable[[], object], said: str) -> None:
    with pytest.raises(dlc.DlcError) as caught:
        call()
    assert said in str(caught.value)
    assert "--" not in str(caught.value).replace(" -->", "")


def test_settings_may_be_numbers_of_numpy_lists_and_ranges() -> None:
    found = settings_of(
        {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True), "d": "relu", "e": 2}
    )
    assert found == {"a": 3, "b": 0.5, "c": True, "d": "relu", "e": 2}
    assert [type(value) for value in found.values()] == [int, float, bool, str, int]
    for numbers in ([1, 2], (1, 2), range(1, 3), np.array([1, 2])):
        (items,) = settings_of({"sizes": numbers}).values()
        assert isinstance(items, Items)
        assert items.items == (1, 2)
    nested = settings_of({"m": np.ones((2, 2))})["m"]
    assert isinstance(nested, Items)
    assert nested.size == 4


def test_a_setting_of_numpy_is_as_good_as_any() -> None:
    given = {"n": np.int64(2), "rate": np.float32(2), "sizes": range(3, 5)}
    found = compile(text=MODULES, module="A", settings=given).f(np.ones(2, np.float32))
    assert cast("F32", found).tolist() == [6, 6]


def test_bounds_are_a_size_two_or_a_range() -> None:
    given = {"A": 8, "B": (1, np.int64(64)), "C": range(1, 65)}
    assert bounds_of(cast("Mapping[str, int]", given)) == {"A": (8, 8), "B": (1, 64), "C": (1, 64)}


def test_an_entry_point_that_a_model_hides_is_called_by_its_name() -> None:
    text = "dlc 1\nexport fn save(x: f32) -> f32 = x + 1\nexport fn f(x: f32) -> f32 = x\n"
    model = dlc.compile(text=text)
    assert float(cast("F32", model["save"](1.0))) == 2
    assert model["f"] is model.f
    assert list(model) == ["save", "f"]
    with pytest.raises(dlc.UsageError, match=r"(?s)no entry point 'sav'.*did you mean save\?"):
        model["sav"]


def test_initial_values_are_for_the_text(model: dlc.Model) -> None:
    with pytest.raises(dlc.UsageError, match=r'dlc.compile\(path, weights="init:4"\)'):
        model.with_weights("init:4")


def test_a_model_that_was_pickled_gives_the_same(model: dlc.Model) -> None:
    again = cast("dlc.Model", pickle.loads(pickle.dumps(model)))
    x = np.arange(2, dtype=np.float32)
    assert cast("F32", again.f(x)).tolist() == cast("F32", model.f(x)).tolist()
    assert again.threads == model.threads


@pytest.mark.parametrize("dtype", ["bf16", "f16", "i8", "bool"])
def test_a_tensor_that_was_pickled_is_the_same(dtype: str) -> None:
    tensor = dlc.Tensor([[1, 0], [1, 1]], dtype)
    again = cast("dlc.Tensor", pickle.loads(pickle.dumps(tensor)))
    assert (again.dtype, again.tolist()) == (dtype, tensor.tolist())
    assert cast("dlc.Tensor", again == tensor).tolist() == [[True, True], [True, True]]


def test_an_error_that_was_pickled_says_the_same() -> None:
    with pytest.raises(dlc.ModelError) as caught:
        dlc.compile(text="dlc 1\nexport fn f(x: f32) -> f32 = y\n")
    again = cast("dlc.ModelError", pickle.loads(pickle.dumps(caught.value)))
    assert str(again) == str(caught.value)
    assert "export fn f(x: f32) -> f32 = y" in str(again)


def test_a_number_of_numpy_is_a_weight_without_axes() -> None:
    """As arithmetic with an array without axes gives it."""
    text = "dlc 1\nmodule M { param w: f32 = 1\nexport fn f(x: f32) -> f32 = w * x }\n"
    model = dlc.compile(text=text)
    number = np.multiply(np.asarray(model.weights["w"]), 3)
    assert compile(text=text, weights={"w": number}).f(2) == 6
