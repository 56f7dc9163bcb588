"""`dlc ops` and `dlc doc`: everything that a model can name has a line and a true page."""

from __future__ import annotations

import json
import re
from typing import cast

import numpy as np
import pytest

import dlc
from dlc.driver.reference import Page, documentation, keywords, list_entries
from dlc.driver.reference.example_graph import operations_of
from dlc.driver.reference.library import TEXTS, example_of
from dlc.driver.source.open import open_model, open_training
from dlc.errors import UsageError
from dlc.frontend.builtins.registry import BUILTINS, SPECIALS
from dlc.frontend.sources.imports import library_names, library_source
from dlc.ir.core import OPS
from dlc.ir.passes import PASSES
from dlc.ir.types import LANGUAGE_DTYPES
from dlc.text.model import words
from tests.frontend.programs import Program
from tests.suites import together

OWN = {name for name, kind in OPS.items() if kind.__module__.startswith("dlc.")}
"""Operations that are not those of other packages, or of other tests."""
ENTRIES = [entry for entry in list_entries() if entry.name in OWN or entry.name not in OPS]
NAMES = {entry.name for entry in ENTRIES}
GROUPS = ("library", "dialects")
"""Pages that show what belongs to them instead of an example."""


def of_group(*groups: str) -> list[str]:
    return [entry.name for entry in ENTRIES if entry.group.startswith(groups)]


@together("name", sorted(NAMES))
def test_every_page_has_a_signature_an_example_and_a_derivative(name: str) -> None:
    page = documentation(name)
    assert page.name == name
    assert page.signature
    assert page.summary.strip()
    if page.group in GROUPS:
        assert page.members
        assert all(entry.name.startswith(f"{name}.") for entry in page.members)
        return
    assert page.derivative
    # What a file gives is not written in a line.
    assert page.example or name in ("file", "npz"), f"no text of showcase.py leads to {name}"
    assert page.signature.split("\n")[0] in page.text
    assert json.loads(json.dumps(page.data()))["derivative"] == page.derivative


def test_every_name_of_the_compiler_is_listed() -> None:
    assert set(BUILTINS) | set(SPECIALS) < NAMES
    assert NAMES > OWN
    assert {
        name for name, known in PASSES.items() if known.function.__module__[:4] == "dlc."
    } < NAMES
    assert {dtype.name for dtype in LANGUAGE_DTYPES} < NAMES
    assert {f"nn.{name}" for name in library_names()} < NAMES


@together(
    "word", sorted(words.OPENERS | words.TRAIN_WORDS | words.EXPRESSION_WORDS | words.NEVER_NAMES)
)
def test_every_keyword_has_a_page(word: str) -> None:
    page = documentation(word)
    assert page.group == "language: keywords"
    assert word in f"{page.signature} {page.summary} {page.example}"


@together("name", [page.name for page in keywords.pages()])
def test_the_example_of_a_keyword_is_a_right_text(name: str) -> None:
    text = documentation(name).example
    assert name in text
    opened = (
        open_training("m.dlm", text=text) if name == "train" else open_model("m.dlm", text=text)
    )
    assert opened.remarks == ()


@pytest.mark.parametrize("name", of_group("language: operators", "language: constants"))
def test_the_example_of_a_sign_gives_what_it_says(name: str) -> None:
    check_call(documentation(name))


@pytest.mark.parametrize("name", [dtype.name for dtype in LANGUAGE_DTYPES])
def test_the_example_of_a_dtype_gives_what_it_says(name: str) -> None:
    check_call(documentation(name))


def check_call(page: Page, items: str = "") -> None:
    """The example is an expression; what it gives is a literal and a type."""
    value, _, type = page.gives.partition(": ")
    text = f"dlc 1\n{items}export fn example() -> {type} = {page.example}\n"
    (found,) = Program(text).evaluated("example")
    if type.startswith("bf16"):
        found = (found.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(
        np.asarray(found, np.float64), np.asarray(json.loads(value), np.float64), rtol=1e-6
    )


@together("name", of_group("library: "))
def test_the_example_of_the_library_gives_what_it_says(name: str) -> None:
    page = documentation(name)
    group, _, short = name.partition(".")
    layer, on, takes = page.example.partition(" on ")
    if on:
        names = sorted(library_names() & set(re.findall(r"\w+", layer)))
        types = re.findall(r"\w+\[.*?\]", takes)
        given = [f"x{k}: {type}" for k, type in enumerate(types)]
        text = (
            f"dlc 1\nimport {group} ({', '.join(names)})\nmodule Root() {{\n  use layer = {layer}\n"
            f"  export fn example({', '.join(given)}) -> {page.gives} =\n"
            f"    layer({', '.join(f'x{k}' for k in range(len(types)))})\n}}\n"
        )
        assert open_model("m.dlm", text=text).remarks == ()
    elif page.gives:
        whole = library_source(TEXTS[group]).text.removeprefix("dlc 1\n")
        check_call(page, f"import nn ({short})\n" if group == "nn" else whole)
    else:
        train = documentation("train").example
        text = train.replace("optimizer = adam(lr=1e-3)", page.example)
        assert text != train
        assert open_training("m.dlm", text=text).remarks == ()


def test_an_example_stands_at_the_end_of_a_documentation() -> None:
    shown = example_of("The mean.\nExample: `mean([1.0, 3.0])` -> 2.0: f32")
    assert shown is not None
    assert (shown.text, shown.takes, shown.gives) == ("mean([1.0, 3.0])", "", "2.0: f32")
    assert example_of("An example of nothing.") is None
    assert set(TEXTS) < NAMES


def test_a_layer_is_shown_with_its_text() -> None:
    page = documentation("Linear")
    assert page == documentation("nn.Linear")
    assert page.text.startswith("Linear(inputs, outputs, bias = true, F: dtype = f32)\n")
    assert "Linear(3, 4) on f32[2, 3]  gives  f32[2, 4]" in page.text
    assert "import nn (Linear)" in page.text
    assert "fn call(x: F[.., inputs]) -> F[.., outputs] = linear(x, w" in page.source


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nn.Conv2", "nn.Conv2d"),
        ("array.conv", "array.convolution"),
        ("matmull", "matmul"),
        ("sofmax", "softmax"),
        ("whle", "while"),
        ("f23", "f32"),
        ("lower_to_loop", "lower_to_loops"),
    ],
)
def test_a_name_that_is_not_there_is_told_its_neighbours(name: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        documentation(name)
    assert meant in str(caught.value.diagnostics[0].help)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("matmul", "@"), ("then", "if"), ("yield", "scan"), ("<=", "==")],
)
def test_other_words_for_a_thing_show_its_page(name: str, shown: str) -> None:
    assert documentation(name).name == shown


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
        ("flow.scan", ("derivative: through its regions, step by step in reverse",)),
        ("kernel.gemm", ("derivative: none: derivatives are taken at graph level",)),
    ],
)
def test_a_page_has_types_operations_and_the_derivative(name: str, lines: tuple[str, ...]) -> None:
    page = [line.strip() for line in documentation(name).text.split("\n")]
    assert [line for line in page if line][-len(lines) :] == list(lines)


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


def test_the_list_is_narrowed_by_a_word() -> None:
    found = [entry.name for entry in list_entries("convolution")]
    assert "nn.Conv2d" in found
    assert "array.convolution" in found
    assert "softmax" not in found
    assert cast("list[object]", list_entries("no such word")) == []


def test_what_atan2_takes_is_called_as_its_page_says() -> None:
    page = documentation("atan2")
    assert page.signature == "atan2(y: any, x: any)"
    assert page.summary.startswith("The angle of the point (x, y)")
    model = dlc.compile(text="dlc 1\nexport fn f(a: f32, b: f32) -> f32 = atan2(x=b, y=a)")
    assert np.asarray(model["f"](1, 0)) == np.float32(np.pi / 2)
