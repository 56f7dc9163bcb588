"""Whatever names a model gives, they hide nothing of Python's: each is still there, and can be used."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from keyword import kwlist
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver.run.calls import CallRequest, call
from dlc.runtime.artifact.manifest import Dim, Entry, Input, Output
from dlc.runtime.artifact.spelling import python_name
from dlc.runtime.calling.results import Results
from dlc.runtime.model import Model
from tests.runtime import building

ONE = np.ones(4, np.float32)
TAKEN = [
    "self",
    "out",
    "out_",
    "out__",
    "arena",
    "arena_",
    "args",
    "named",
    "cls",
    "class",
    "class_",
]


def add_entry(
    draft: building.Draft, name: str, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    """An entry point whose results are all the sum of its first and its last input."""
    made = building.Assembler(inputs=len(inputs))
    for number in range(len(outputs)):
        made.wave("add", 4, made.output(number), made.input(0), made.input(len(inputs) - 1))
    made.end()
    entry = Entry(
        name,
        tuple([Input(each, "f32", ("4",)) for each in inputs]),
        tuple([Output(each, "f32", ("4",)) for each in outputs]),
    )
    draft.entry(entry, draft.program(name, made))


def model_of(name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Model:
    draft = building.Draft()
    add_entry(draft, name, inputs, outputs)
    return Model(draft.artifact())


def numbers(found: object) -> list[float]:
    return cast("NDArray[np.float32]", found).tolist()


def test_entry_points_hide_nothing_of_a_model() -> None:
    own = {
        *dir(Model),
        *vars(model_of("f", ["x"], [""])),
        "__signature__",
        "__array__",
        "__wrapped__",
    }
    names = sorted({*own, "plain", "_private"} - {"f"})
    draft = building.Draft()
    for name in names:
        add_entry(draft, name, ["x"], [""])
    with Model(draft.artifact(), threads=1) as model:
        assert model.threads == 1
        assert repr(model).startswith("Model model.dlm")
        assert list(model) == names
        assert set(vars(model)) - {"plain"} <= own
        assert len(model.with_weights({}).entry_points) == len(names)
        model.cancel()
        for name in names:
            assert numbers(model[name](ONE)) == [2, 2, 2, 2]
        assert numbers(model.plain(ONE)) == [2, 2, 2, 2]


@pytest.mark.parametrize("first", TAKEN)
def test_inputs_of_any_name_are_passed_by_name(first: str) -> None:
    names = [first, *[name for name in TAKEN if name != first]]
    model = model_of("f", names, [""])
    given = {python_name(name): ONE * number for number, name in enumerate(names)}
    assert len(given) == len(names)
    last = float(len(names) - 1)
    assert numbers(model.f(**given)) == [last] * 4
    assert numbers(model(**given)) == [last] * 4
    traced, _ = model.f.trace(**given)
    assert numbers(traced) == [last] * 4
    request = CallRequest("m.dlc", inputs={name: str([k] * 4) for k, name in enumerate(names)})
    (found,) = call(model, request).named.values()
    assert found.tolist() == [last] * 4


def test_no_two_names_are_the_same_in_python() -> None:
    names = [
        f"{word}{'_' * count}" for word in (*kwlist, "out", "arena", "x") for count in range(4)
    ]
    assert len({python_name(name) for name in names}) == len(names)


@pytest.mark.parametrize("dim", ["out", "arena", "self", "args"])
def test_sizes_of_any_name_are_given_by_name(dim: str) -> None:
    draft = building.Draft()
    made = building.Assembler(inputs=1)
    made.wave("add", 4, made.output(0), made.input(0), made.input(0))
    made.end()
    entry = Entry(
        "f", (Input("x", "f32", ("4",)),), (Output("", "f32", ("4",)),), (Dim(dim, 1, 8),)
    )
    draft.entry(entry, draft.program("f", made))
    model = Model(draft.artifact())
    given: dict[str, object] = {python_name(dim): 3}
    assert numbers(model.f(ONE, **given)) == [2, 2, 2, 2]  # pyright: ignore[reportArgumentType]
    assert python_name(dim) in inspect.signature(model.f).parameters
    assert model.f.working_memory(**{dim: 3}) == 0
    request = CallRequest("m.dlc", inputs={"x": "[1, 1, 1, 1]"}, dims={dim: 3})
    (found,) = call(model, request).named.values()
    assert found.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize(
    "names",
    [
        ["ﬁ", "fi"],
        ["count", "index"],
        ["_make", "_fields"],
        ["class", "x"],
        ["a.b", "c"],
        ["self", "cls"],
    ],
)
def test_results_of_any_names_are_handed_over(names: list[str]) -> None:
    model = model_of("f", ["x"], names)
    found = cast("tuple[object, ...]", model.f(ONE))
    assert [numbers(each) for each in found] == [[2, 2, 2, 2]] * 2
    assert Results(model.f.entry).packed([1, 2]) == (1, 2)
    assert len(model.f(ONE, out={name: np.zeros(4, np.float32) for name in names})) == 2  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["a.b", "x y", "1", "ﬁ", "self", "out"])
def test_any_input_leaves_a_signature(name: str) -> None:
    model = model_of("f", [name], [""])
    assert isinstance(inspect.signature(model.f), inspect.Signature)
    assert numbers(model.f(**{python_name(name): ONE})) == [2, 2, 2, 2]
