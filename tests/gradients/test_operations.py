"""The derivative of every operation, as machine code, against central differences in f64.

The examples are those of `tests.op_examples`; that their rules give these derivatives when they are
evaluated is said by `tests.test_every_op`. Many examples are compiled together: it is quicker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.dialects.interface import bounds_attribute
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.source_model import SourceModel
from dlc.ir.core import OPS, Builder
from dlc.ir.passes import Context
from dlc.runtime.model import Model
from tests import op_examples
from tests.op_examples.derivative import by_differences, derivative, inputs_of
from tests.op_examples.example import EXAMPLES, HERE, Example, Numbers
from tests.suites import every

assert op_examples.__doc__, "importing it makes the operations and their examples known"

MODELS = 30
"""Each has about 12 derivatives: of the cases whose numbers leave the same remainder."""
CASES = [
    (f"{name}-{number}", example, order)
    for name in sorted(EXAMPLES)
    for number, example in enumerate(EXAMPLES[name])
    for order in (1, 2)
    if example.is_smooth and order <= example.orders and not OPS[name].not_differentiable
]


def test_these_are_most_of_the_three_hundred_checks() -> None:
    assert len(CASES) > 300


@pytest.mark.parametrize(
    "number",
    every(10, [pytest.param(k, id=f"{n}-order{o}") for k, (n, _, o) in enumerate(CASES)]),
)
def test_its_compiled_derivative_is_that_of_differences(number: int) -> None:
    _, example, order = CASES[number]
    found = compiled(number)
    for one, wanted in zip(found, by_differences(example, order), strict=True):
        scale = max(1.0, float(np.max(np.abs(wanted), initial=0)))
        np.testing.assert_allclose(one, wanted, rtol=1e-6, atol=1e-6 * scale)


def compiled(number: int) -> list[Numbers]:
    """The derivative of a case from machine code."""
    _, example, order = CASES[number]
    entry = cast("Callable[..., object]", model(number % MODELS).entry_points[f"d{number}"])
    found = entry(*inputs_of(example, order), **_free(example))
    results = cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)
    return [np.asarray(result) for result in results]


@cache
def model(part: int) -> Model:
    """The derivatives of some of the cases, compiled; the quick ones at several levels."""
    module = Module.empty(HERE)
    cases = list(enumerate(CASES))[part::MODELS]
    for number, (_, example, order) in cases:
        Builder(module.body, HERE).place(_function(f"d{number}", example, order))
    opened = SourceModel(module, Context(), "examples.dlm", {"examples.dlm": "dlc 1\n"}, Path())
    return Model(compile_model(opened, Settings(level=(2, 0, 3)[part // 3 % 3])))


def _function(name: str, example: Example, order: int) -> func.Func:
    body = derivative(example, order)
    for number, argument in enumerate(body.arguments):
        argument.name = f"x{number}"
    made = func.Func(body, name, func.signature(body, body.terminator.operands))
    # A size below 0 where a dim is least is refused: at 0 only what an example gives as 0.
    bounds: dict[str, tuple[int, int | None]] = {
        name: (min(1, size), 64) for name, size in example.dims.items()
    }
    if bounds:
        made.attributes["dlc.dims"] = bounds_attribute(bounds)
    return made


def _free(example: Example) -> dict[str, int]:
    """The sizes that no input shows by itself."""
    shown = {str(size) for given in example.inputs for size in given.type.shape}
    return {name: value for name, value in example.dims.items() if name not in shown}
