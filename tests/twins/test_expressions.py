"""docs/from-pytorch.md: expressions of the language give what their counterparts in PyTorch give."""

from __future__ import annotations

import ast

import numpy as np

import dlc
from benchmarks.lines import table
from tests import documents
from tests.twins.expressions import PAGE, RECORDED, inputs, rows

TYPES = {"float32": "f32", "int32": "i32", "int64": "i64", "bool": "bool"}


def result_type(value: np.ndarray) -> str:
    return f"{TYPES[value.dtype.name]}[{', '.join(map(str, value.shape))}]".removesuffix("[]")


def test_expressions_give_what_those_of_pytorch_give() -> None:
    """All in one model; each entry point that is wrong is named by its row."""
    with np.load(RECORDED) as file:
        expected = dict(file)
    assert expected.keys() == {theirs for theirs, _ in rows()}, "run tests/twins/record.py"
    given = inputs()
    heads = ", ".join(f"{name}: {result_type(value)}" for name, value in given.items())
    entries = [
        f"export fn f{number}({heads}) -> {result_type(expected[theirs])} = {ours}"
        for number, (theirs, ours) in enumerate(rows())
    ]
    model = dlc.compile(text="\n".join(["dlc 1", *entries]))
    for number, (theirs, ours) in enumerate(rows()):
        found = np.asarray(model[f"f{number}"](**given))
        np.testing.assert_allclose(found, expected[theirs], rtol=1e-5, atol=1e-6, err_msg=ours)


def test_programs_of_pytorch_on_the_page_are_python() -> None:
    found = [
        block for block in documents.blocks("docs/from-pytorch.md") if block.title == "PyTorch"
    ]
    assert len(found) > 3
    for block in found:
        ast.parse(block.text)


def test_the_lines_on_the_page_are_counted() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), "python -m benchmarks lines"
