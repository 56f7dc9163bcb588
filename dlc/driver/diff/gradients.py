"""Derivatives of the graph against finite differences of the differentiated function, in f64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
"""How far a derivative may be from the differences, relative to its terms."""
STEP = 1e-6
"""The step of the differences, relative to the argument; where both sides differ there is a kink."""


@dataclass(frozen=True, slots=True)
class WrongGradient:
    """The operation whose rule is wrong, its place, what shows it, and the derivative of it alone.

    `vjp` is that derivative and `arrays` its operands in f64; None where only the whole is wrong.
    """

    op: str
    place: str
    what: str
    vjp: flow.Vjp | None = None
    arrays: tuple[Array, ...] = ()


def wrong_gradient(case: Case) -> WrongGradient | None:
    """The first operation whose rule for the derivative is wrong, among those that are differentiated."""
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

    def __init__(self, dims: Mapping[str, int]) -> None:
        super().__init__(dims)
        self.found: WrongGradient | None = None

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
    gradients = vjp.evaluate(plain, *operands)[-len(vjp.wrt) :]
    random = np.random.default_rng(0)
    for _ in range(2):
        directions = [random.standard_normal(inputs[k].shape) for k in vjp.wrt]
        terms = [np.multiply(g, d) for g, d in zip(gradients, directions, strict=True)]
        expected = sum(float(np.sum(one)) for one in terms)
        size = float(np.sqrt(sum(float(np.sum(np.square(one))) for one in terms)))
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
            moved[k] = np.add(inputs[k], sign * STEP * size * direction)
        results = Evaluation(at.dims, at.weights).run(vjp.body, moved)
        floats = [one for one in results if one.dtype == np.float64]
        sums.append(
            sum(
                float(np.sum(np.multiply(one, c)))
                for one, c in zip(floats, cotangents, strict=True)
            )
        )
    return (sums[1] - sums[0]) / (STEP * size), (sums[2] - sums[1]) / (STEP * size)


def _blamed(at: Evaluation, vjp: flow.Vjp, operands: Sequence[Array]) -> WrongGradient:
    """The operation in the body whose own product is wrong; the product itself where none is."""
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
        alone = _alone(op, wrt)
        random = np.random.default_rng(1)
        values = [*arrays, *[random.standard_normal(seen[v].shape) for v in floats]]
        if not _agrees_if_it_can(at, alone, values):
            what = f"the derivative of {op.name} is not what differences of it say"
            return WrongGradient(op.name, str(op.location.place), what, alone, tuple(values))
    place = str(vjp.location.place)
    what = "a derivative is not what differences of the function say"
    return WrongGradient(vjp.name, place, what)


def _agrees_if_it_can(at: Evaluation, vjp: flow.Vjp, operands: Sequence[Array]) -> bool:
    try:
        return _agrees(at, vjp, operands)
    except (DlcError, AssertionError, LookupError, TypeError, ValueError):
        return True  # what has no derivative of its own is not to blame


def _alone(op: Op, wrt: Sequence[int]) -> flow.Vjp:
    """The product of a single operation, in a block of its own."""
    body = Block([v.type for v in op.operands])
    emit = Builder(body, op.location)
    regions = tuple([clone_block(region) for region in op.regions])
    values = emit.all(clone(op, body.arguments, regions))
    emit.place(flow.Yield([v for v in values if _is_float(v)]))
    floats = [v.type for v in op.results if _is_float(v)]
    outer = Block([*[v.type for v in op.operands], *floats])
    inputs, cotangents = outer.arguments[: len(op.operands)], outer.arguments[len(op.operands) :]
    made = flow.Vjp(tuple(inputs), tuple(cotangents), body, tuple(wrt))
    Builder(outer, op.location).place(made)
    return made


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float
