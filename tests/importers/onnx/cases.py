"""Cases of one operator: a node, its inputs and constants; what is compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import ModelProto, helper

from tests.importers.onnx.models import (
    Array,
    compiled,
    evaluated,
    expected,
    imported,
    model_of,
)


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.asarray(numbers, np.int64)


@dataclass(frozen=True)
class Case:
    """One node: its first inputs are those of the model, the others constants; an empty one is left out."""

    kind: str
    inputs: tuple[Array, ...]
    constants: tuple[Array, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])
    opset: int = 18
    outputs: int = 1


def case(
    kind: str,
    *inputs: Array,
    k: tuple[Array, ...] = (),
    opset: int = 18,
    outputs: int = 1,
    **a: object,
) -> Case:
    return Case(kind, inputs, k, a, opset, outputs)


def extended(one: Case, more: Mapping[str, object]) -> Case:
    """A case with more attributes."""
    return replace(one, attributes={**one.attributes, **more})


def model_and_inputs(
    one: Case, shapes: Mapping[str, Sequence[int | str]] | None = None
) -> tuple[ModelProto, dict[str, Array]]:
    """The model of a case, whose inputs are `x0`, `x1`, ..., perhaps with names for sizes; and they."""
    inputs = {f"x{k}": array for k, array in enumerate(one.inputs)}
    constants = {f"k{k}": array for k, array in enumerate(one.constants)}
    outputs = [f"y{k}" for k in range(one.outputs)]
    node = helper.make_node(one.kind, [*inputs, *constants], outputs, **one.attributes)  # pyright: ignore[reportArgumentType]
    model = model_of([node], inputs, outputs, constants, opset=one.opset, shapes=shapes)
    return model, inputs


def ids(cases: Sequence[Case]) -> list[str]:
    return [f"{one.kind}-{n}" for n, one in enumerate(cases)]


def check_evaluated(one: Case) -> None:
    """What the import of a case means is what onnxruntime computes."""
    model, inputs = model_and_inputs(one)
    check(evaluated(imported(model), inputs), expected(model, inputs), 1e-5)


def check_compiled(one: Case) -> None:
    """Machine code of a case computes the same."""
    model, inputs = model_and_inputs(one)
    check(compiled(model, inputs), expected(model, inputs), 2e-5)


def check_sized(one: Case, shapes: Mapping[str, Sequence[int | str]]) -> None:
    """The same where sizes have names."""
    model, inputs = model_and_inputs(one, shapes)
    check(compiled(model, inputs), expected(model, inputs), 2e-5)


def check(found: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> None:
    """Results agree within an absolute and a relative tolerance."""
    for got, right in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape) == (right.dtype, right.shape)
        np.testing.assert_allclose(got, right, rtol=tolerance, atol=tolerance)
