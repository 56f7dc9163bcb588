"""What must hold of every operation of the array, nn and rng dialects.

The examples are in `tests.op_examples`; an operation without one, or without a docstring or a derivative,
fails here by its name, and so does one that no lowering knows.
"""

from __future__ import annotations

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from dlc.dialects import flow
from dlc.ir.attributes import decode
from dlc.ir.core import OPS, Op
from dlc.ir.dims import evaluate
from dlc.ir.types import TensorType
from dlc.lowering.graph_to_kernel.lower import KEPT, find_lowering
from dlc.text.ir.parser import parse_module
from dlc.text.ir.printer import print_module
from tests import op_examples
from tests.op_examples.derivative import by_differences, by_rule
from tests.op_examples.example import EXAMPLES, TOLERANCE, Example, Numbers
from tests.suites import every, together

assert op_examples.__doc__, "importing it makes the operations and their examples known"
DIALECTS = ("array.", "nn.", "rng.")
NAMES = sorted(name for name in OPS if name.startswith(DIALECTS))
FLOW = sorted(name for name in OPS if name.startswith("flow.") and not OPS[name].terminator)
CASES = [
    pytest.param(example, id=f"{name}-{number}")
    for name in NAMES
    for number, example in enumerate(EXAMPLES.get(name, ()))
]


def differentiable(order: int) -> list[ParameterSet]:
    """The examples that have derivatives of this order, and the order."""
    return [
        pytest.param(example, order, id=f"{name}-{number}-order{order}")
        for name in NAMES
        for number, example in enumerate(EXAMPLES.get(name, ()))
        if example.is_smooth and order <= example.orders and not OPS[name].not_differentiable
    ]


@together("name", NAMES)
def test_it_is_documented(name: str) -> None:
    text = OPS[name].__doc__
    assert text and text.strip().endswith((".", "]", ")")), text


@together("name", NAMES)
def test_it_has_an_example(name: str) -> None:
    assert EXAMPLES.get(name)


@together("name", NAMES)
def test_it_has_a_derivative_or_a_reason_why_not(name: str) -> None:
    op = OPS[name]
    ruled = op.gradient is not Op.gradient or op.decompose is not Op.decompose
    takes_something = any(example.inputs for example in EXAMPLES[name])
    if op.not_differentiable:
        assert op.gradient is Op.gradient
    elif takes_something:
        assert ruled
        assert any(example.is_smooth for example in EXAMPLES[name])


@together("name", [*NAMES, *FLOW])
def test_machine_code_has_a_way_to_it(name: str) -> None:
    op = OPS[name]
    in_the_plan = name in KEPT or op in (flow.Scan, flow.While, flow.If)
    taken_apart = op.decompose is not Op.decompose
    assert find_lowering(op) or taken_apart or in_the_plan


@together("example", CASES)
def test_its_value_is_that_of_an_independent_formulation(example: Example) -> None:
    block, op = example.block()
    expected = example.expected(*[given.values for given in example.inputs])
    wanted = expected if isinstance(expected, tuple) else (expected,)
    found = example.run(block)
    assert len(found) == len(wanted) == len(op.results)
    for value, array, right in zip(op.results, found, wanted, strict=True):
        assert isinstance(value.type, TensorType)
        assert array.dtype == value.type.dtype.numpy
        same(
            decode(array, value.type.dtype),
            right,
            0 if example.exact else TOLERANCE[value.type.dtype],
        )


def same(found: Numbers, wanted: Numbers, tolerance: float) -> None:
    """Equal shapes and elements, NaN to NaN, within a tolerance relative to each element."""
    assert found.shape == wanted.shape
    for one, other in zip(found.ravel().tolist(), wanted.ravel().tolist(), strict=True):
        if other != other:
            assert one != one
        elif one != other:
            assert tolerance, (found, wanted)
            assert abs(one - other) <= tolerance * max(1, abs(other)), (found, wanted)


@together("example", CASES)
def test_its_shape_is_what_its_type_says(example: Example) -> None:
    block, op = example.block()
    for value, array in zip(op.results, example.run(block), strict=True):
        assert isinstance(value.type, TensorType)
        assert array.ndim == value.type.rank
        for size, extent in zip(value.type.shape, array.shape, strict=True):
            assert extent == (size if isinstance(size, int) else evaluate(size, example.dims))


@together("example", CASES)
def test_it_prints_parses_and_prints_the_same(example: Example) -> None:
    text = print_module(example.module())
    assert print_module(parse_module(text, "example.dlir")) == text


@together(("example", "order"), [*differentiable(1), *every(2, differentiable(2))])
def test_its_derivative_is_that_of_differences(example: Example, order: int) -> None:
    pairs = zip(by_rule(example, order), by_differences(example, order), strict=True)
    for found, wanted in pairs:
        scale = max(1.0, float(np.max(np.abs(wanted), initial=0)))
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * scale)
