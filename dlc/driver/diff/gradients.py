"""Derivatives of the graph against differences of the function that they are of, in f64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import flow, func
from dlc.driver.diff.case import Case
from dlc.errors import DlcError
from dlc.ir.attributes import decode
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Array, Block, Builder, Evaluation, Op, Value
from dlc.ir.types import TensorType
from dlc.passes.graph.gradient_functions import weights_as_arguments
from dlc.passes.graph.widen import widen

LIMIT = 2e-4
"""How far a derivative may be from the differences, relative to what the differences would be of all terms."""
STEP = 1e-6
"""The step of the differences, relative to the argument; where both sides differ there is a kink."""

Found = tuple[str, str, str]
"""The operation whose rule is wrong, its place, and what shows it."""


def wrong_gradient(case: Case) -> Found | None:
    """The first operation whose rule for the derivative is wrong, among those that the model differentiates."""
    model = case.open()
    function = case.function(model)
    if not isinstance(function, func.Func) or not any(
        isinstance(op, flow.Vjp) for op in function.walk()
    ):
        return None
    own = len(function.body.arguments)
    weights_as_arguments(function)
    arguments = function.body.arguments
    arrays = [*case.inputs, *[case.weights[a.name or ""] for a in arguments[own:]]]
    wide = [_wide(array, a) for array, a in zip(arrays, arguments, strict=True)]
    try:
        widen(function)
    except (DlcError, AssertionError, TypeError, ValueError):
        return None
    run = _Checked(case.dims)
    with np.errstate(all="ignore"):
        run.run(function.body, wide)
    return run.found


def _wide(array: Array, value: Value) -> Array:
    assert isinstance(value.type, TensorType)
    found = decode(array, value.type.dtype)
    return found.astype(np.float64) if value.type.dtype.is_float else found


class _Checked(Evaluation):
    """An evaluation in f64 that checks every vector-Jacobian product that it comes by."""

    __slots__ = ("found",)

    def __init__(self, dims: object) -> None:
        assert isinstance(dims, dict)
        super().__init__(dims)
        self.found: Found | None = None

    def see(self, value: Value, array: Array) -> None:
        """Check a derivative when its first result is there."""
        op = value.op
        if self.found is None and isinstance(op, flow.Vjp) and value is op.results[0]:
            arrays = [self._scopes[-1].get(operand) for operand in op.operands]
            known = [one for one in arrays if one is not None]
            if len(known) == len(arrays) and not _agrees(self, op, known):
                self.found = _blamed(self, op, known)


def _agrees(at: Evaluation, vjp: flow.Vjp, operands: Sequence[Array]) -> bool:
    """Whether a product is what differences along two random directions say."""
    count = len(vjp.inputs)
    inputs, cotangents = operands[:count], operands[count:]
    plain = Evaluation(at.dims, at.weights)
    results = vjp.evaluate(plain, *operands)
    gradients = results[-len(vjp.wrt) :] if isinstance(results, tuple) else (results,)
    random = np.random.default_rng(0)
    for _ in range(2):
        directions = [random.standard_normal(inputs[k].shape) for k in vjp.wrt]
        terms = [g * d for g, d in zip(gradients, directions, strict=True)]
        expected = float(sum(one.sum() for one in terms))
        size = float(np.sqrt(sum(float(np.square(one).sum()) for one in terms)))
        slopes = _slopes(plain, vjp, inputs, directions, cotangents)
        slope = sum(slopes) / 2
        size = max(size, abs(expected), abs(slope), 1e-6)
        if not np.isfinite([expected, *slopes]).all() or abs(slopes[0] - slopes[1]) > LIMIT * size:
            return True  # a kink, where there is no derivative to compare
        if abs(expected - slope) > LIMIT * size:
            return False
    return True


def _slopes(
    at: Evaluation,
    vjp: flow.Vjp,
    inputs: Sequence[Array],
    directions: Sequence[NDArray[np.float64]],
    cotangents: Sequence[Array],
) -> tuple[float, float]:
    """The slopes of the results, contracted with the cotangents, on both sides along a direction."""
    size = max([1.0, *[float(np.abs(inputs[k]).max(initial=0.0)) for k in vjp.wrt]])
    sums: list[float] = []
    for sign in (-1, 0, 1):
        moved = list(inputs)
        for k, direction in zip(vjp.wrt, directions, strict=True):
            moved[k] = inputs[k] + sign * STEP * size * direction
        results = Evaluation(at.dims, at.weights).run(vjp.body, moved)
        floats = [one for one in results if one.dtype == np.float64]
        total = sum(float((one * c).sum()) for one, c in zip(floats, cotangents, strict=True))
        sums.append(float(total))
    return (sums[1] - sums[0]) / (STEP * size), (sums[2] - sums[1]) / (STEP * size)


def _blamed(at: Evaluation, vjp: flow.Vjp, operands: Sequence[Array]) -> Found:
    """The operation in the body whose own product is wrong; the product itself where each alone is right."""
    seen: dict[Value, Array] = {}
    watched = Evaluation(at.dims, at.weights, seen.__setitem__)
    watched.run(vjp.body, operands[: len(vjp.inputs)])
    for op in vjp.body:
        arrays = [seen[v] for v in op.operands if v in seen]
        if op.terminator or (op.regions and not isinstance(op, flow.Custom)):
            continue
        wrt = [k for k, v in enumerate(op.operands) if _is_float(v)]
        floats = [v for v in op.results if _is_float(v)]
        if len(arrays) < len(op.operands) or not wrt or not floats:
            continue
        if not _alone_agrees(at, op, arrays, wrt, [seen[v] for v in floats]):
            what = f"the derivative of {op.name} is not what differences of it say"
            return op.name, str(op.location.place), what
    place = str(vjp.location.place)
    return vjp.name, place, "a derivative is not what differences of the function say"


def _alone_agrees(
    at: Evaluation, op: Op, arrays: Sequence[Array], wrt: Sequence[int], results: Sequence[Array]
) -> bool:
    """Whether the product of a single operation is right, for random cotangents."""
    body = Block([v.type for v in op.operands])
    emit = Builder(body, op.location)
    values = emit.all(
        clone(op, body.arguments, op.regions and [clone_block(region) for region in op.regions])
    )
    emit.place(flow.Yield([v for v in values if _is_float(v)]))
    outer = Block([*[v.type for v in op.operands], *[v.type for v in op.results if _is_float(v)]])
    emit = Builder(outer, op.location)
    count = len(op.operands)
    inputs, cotangents = outer.arguments[:count], outer.arguments[count:]
    made = flow.Vjp(tuple(inputs), tuple(cotangents), body, tuple(wrt))
    emit.all(made)
    random = np.random.default_rng(1)
    seeds = [random.standard_normal(one.shape) for one in results]
    try:
        return _agrees(at, made, [*arrays, *seeds])
    except (DlcError, AssertionError, LookupError, TypeError, ValueError):
        return True


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float
