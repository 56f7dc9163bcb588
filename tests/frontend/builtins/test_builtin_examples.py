"""What `dlc doc` shows of each function of the language: its example gives what it says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
import pytest

import dlc
from dlc.frontend.builtins.registry import BUILTINS, SPECIALS
from tests.frontend.programs import Program, as_list
from tests.suites import every, together

Nested: TypeAlias = "float | list[Nested]"


@dataclass(frozen=True, slots=True)
class Shown:
    """An example: its results as numbers, or only their type where they are drawn."""

    name: str
    text: str
    result: str

    @property
    def is_type(self) -> bool:
        return re.match(r"\w+\[", self.result) is not None

    @property
    def values(self) -> list[Nested]:
        """The results that are written out."""
        text = self.result
        if text.startswith("("):
            return cast("list[Nested]", json.loads(f"[{text[1:-1]}]"))
        return [cast("Nested", json.loads(text))]

    @property
    def type(self) -> str:
        """The type of the entry point that gives the example."""
        if self.is_type:
            return self.result
        types = [_type(value) for value in self.values]
        return types[0] if len(types) == 1 else f"({', '.join(types)})"


def _type(value: Nested) -> str:
    array = np.asarray(value)
    dtype = {"b": "bool", "i": "i32", "f": "f32"}[array.dtype.kind]
    return f"{dtype}{list(array.shape)}" if array.shape else dtype


SHOWN = {
    function.name: Shown(function.name, function.example, function.result)
    for function in (*BUILTINS.values(), *SPECIALS.values())
    if function.example
}
BROUGHT = ("nonzero", "compress")
"""Functions whose results have a size that the call measures."""


def entry(shown: Shown) -> str:
    return f"export fn of_{shown.name}() -> {shown.type} = {shown.text}\n"


@pytest.fixture(scope="module")
def model() -> dlc.Model:
    """All examples in one compiled model."""
    texts = [entry(shown) for name, shown in SHOWN.items() if name not in BROUGHT]
    return dlc.compile(text="dlc 1\n" + "".join(texts))


def test_only_functions_that_read_files_have_no_example() -> None:
    assert {*BUILTINS, *SPECIALS} - set(SHOWN) == {"file", "npz"}


@together("name", every(4, [name for name in SHOWN if name not in BROUGHT]))
def test_an_example_gives_what_it_says(name: str, model: dlc.Model) -> None:
    shown = SHOWN[name]
    evaluated = Program("dlc 1\n" + entry(shown)).evaluated(f"of_{name}")
    compiled = as_list(model.entry_points[f"of_{name}"]())
    if shown.is_type:
        (found,) = compiled
        assert str(list(found.shape)) == shown.result[shown.result.index("[") :]
        np.testing.assert_allclose(found, as_list(tuple(evaluated))[0], rtol=1e-6)
        return
    for results in (as_list(tuple(evaluated)), compiled):
        for found, wanted in zip(results, shown.values, strict=True):
            np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-6, atol=1e-7)
