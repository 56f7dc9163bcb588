"""Convolutions with gaps, with negative paddings, of signals and of narrow numbers, from simpler ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import array
from dlc.dialects.array.convolution import convolution
from dlc.ir.core import Builder, Evaluation, Value
from dlc.ir.dims import symbol
from dlc.ir.passes import Context, Manager, Options, parse_passes
from dlc.ir.types import F16, F32, F64, TensorType
from tests.lowering.everywhere import Program, check, function_of, random_inputs
from tests.suites import every, together


def wide(random: np.random.Generator) -> tuple[Program, list[TensorType]]:
    """Any convolution of pictures in f64 whose result is not empty."""
    groups, nchw = int(random.integers(1, 3)), bool(random.integers(2))
    while True:
        size, window, gaps, dilations = (random.integers(1, top, 2) for top in (6, 4, 4, 4))
        padding = random.integers(-2, 4, (2, 2))
        inside = (size - 1) * gaps + 1 + padding.sum(1) - ((window - 1) * dilations + 1)
        left = np.minimum(padding, 0).sum(1) + (size - 1) * gaps + 1
        if inside.min() >= 0 and left.min() > 0:
            break
    source, kernel = (2, *size, 3 * groups), (*window, 3, 2 * groups)
    if nchw:
        source, kernel = (2, 3 * groups, *size), (2 * groups, 3, *window)

    def program(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        made = convolution(
            emit,
            x,
            w,
            padding=[(int(low), int(high)) for low, high in padding],
            dilations=[int(step) for step in dilations],
            source_dilations=[int(step) for step in gaps],
            groups=groups,
            dims="nchw" if nchw else "nhwc",
        )
        return (made,)

    return program, [TensorType(F64, tuple(map(int, shape))) for shape in (source, kernel)]


@together("seed", range(60))
def test_a_convolution_with_gaps_is_several_without(seed: int) -> None:
    program, types = wide(np.random.default_rng(seed))
    module, function = function_of(program, types, {})
    given = random_inputs(types, {}, seed)
    (expected,) = Evaluation().run(function.body, given)
    Manager(Context(Options())).run(module, parse_passes("decompose"))
    (found,) = Evaluation().run(function.body, given)
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=1e-12, atol=1e-12)
    for op in module.walk():
        if isinstance(op, array.Convolution):
            assert op.source_dilations == (1, 1)
            assert all(isinstance(size, int) and size >= 0 for pair in op.padding for size in pair)


@pytest.mark.parametrize("seed", [1, 2])
def test_its_parts_are_machine_code(seed: int) -> None:
    program, types = wide(np.random.default_rng(seed))
    check(program, *types, rtol=1e-10)


def test_a_signal_is_a_picture_of_one_row() -> None:
    def program(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        return (convolution(emit, x, w, strides=(2,), padding=((1, 2),), dims="ncw"),)

    batch = symbol("B")
    types = TensorType(F32, (batch, 3, 11)), TensorType(F32, (4, 3, 3))
    check(program, *types, dims={"B": (1, 8)}, at=[{"B": 1}, {"B": 3}])


def test_narrow_numbers_are_summed_in_f32_and_rounded_once() -> None:
    def program(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        return (convolution(emit, x, w, padding=((1, 1), (1, 1))),)

    check(program, TensorType(F16, (1, 5, 5, 4)), TensorType(F16, (3, 3, 4, 6)), rtol=1e-3)


@pytest.mark.parametrize("low", every(3, [0, 1, 3]))
def test_gaps_in_a_signal_whose_length_is_known_when_it_is_called(low: int) -> None:
    """A transposed convolution: its result is as many times longer as there are phases."""

    def program(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        made = convolution(emit, x, w, padding=[(low, 3)], source_dilations=[3], dims="nwc")
        return (made,)

    types = [TensorType(F32, (2, symbol("W"), 4)), TensorType(F32, (4, 4, 5))]
    dims = {"W": (1, 20)}
    check(program, *types, dims=dims, at=[{"W": 2}, {"W": 7}])
    module, _ = function_of(program, types, dims)
    Manager(Context(Options())).run(module, parse_passes("decompose"))
    found = [op for op in module.walk() if isinstance(op, array.Convolution)]
    assert len(found) == 3 and all(op.source_dilations == (1, 1) for op in found)
