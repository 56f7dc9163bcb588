"""`dlc ops` and `dlc doc`: everything that a model can name has a line and a page."""

from __future__ import annotations

import pytest

from dlc.driver.example_graph import operations_of
from dlc.driver.library import library_entries
from dlc.driver.reference import documentation, list_entries
from dlc.errors import UsageError
from dlc.frontend.builtins.registry import BUILTINS, SPECIALS


@pytest.mark.parametrize(
    "name", ["grad", "vjp", "value_and_grad", "stop_gradient", "chain", "softmax", "array.matmul"]
)
def test_functions_of_functions_and_operations_are_listed_and_have_pages(name: str) -> None:
    assert name in {entry.name for entry in list_entries()}
    assert name.rpartition(".")[2] in documentation(name)


def test_every_entry_says_what_it_is() -> None:
    assert [entry.name for entry in list_entries() if not entry.summary.strip()] == []


def test_every_entry_has_a_page_but_initialisers() -> None:
    for entry in list_entries():
        if entry.group != "language: initialisers":
            assert entry.signature in documentation(entry.name)


def test_the_library_has_its_layers_losses_and_optimizers() -> None:
    names = library_entries().keys()
    assert {"nn.Linear", "nn.Conv2d", "nn.ConvTranspose", "nn.LSTM", "nn.mse"} < names
    assert {"optimizers.adam", "optimizers.cosine"} < names


def test_a_layer_is_shown_with_its_text() -> None:
    page = documentation("Linear")
    assert page == documentation("nn.Linear")
    assert page.startswith("Linear(inputs, outputs, bias = true, F: dtype = f32)\n")
    assert "import nn (Linear)" in page
    assert "fn call(x: F[.., inputs]) -> F[.., outputs] = linear(x, w" in page


def test_a_name_that_is_not_there_is_told_its_neighbour() -> None:
    with pytest.raises(UsageError, match=r"did you mean nn\.Conv2d"):
        documentation("nn.Conv2")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "softmax",
            (
                "softmax([0.0, 0.0])  gives  [0.5, 0.5]: f32[2]",
                "in the IR: nn.softmax",
                "derivative: by a rule of its own",
            ),
        ),
        (
            "argmax",
            (
                "argmax([[1, 5, 3], [7, 2, 9]])  gives  [1, 2]: i32[2]",
                "in the IR: array.argmax",
                "derivative: none: its result is an index",
            ),
        ),
        (
            "normal",
            (
                "normal([2, 3])  gives  f32[2, 3]",
                "in the IR: rng.key, rng.fold, rng.normal",
                "derivative: not through rng.key (a seed is an integer), rng.fold (a key is made of "
                "integers), rng.normal (its operand is a key)",
            ),
        ),
    ],
)
def test_a_page_has_types_operations_and_the_derivative(name: str, lines: tuple[str, ...]) -> None:
    page = [line.strip() for line in documentation(name).split("\n")]
    assert [line for line in page if line][2:] == list(lines)


def test_only_functions_of_sizes_numbers_and_files_have_no_operations() -> None:
    silent = {
        function.name
        for function in (*BUILTINS.values(), *SPECIALS.values())
        if not operations_of(function)
    }
    assert silent == {
        *("zeros", "ones", "full", "size", "shape", "rank", "len", "ints", "dtype_of"),
        *("identity", "is_function", "dropout", "file", "npz", "nonzero", "compress"),
    }
