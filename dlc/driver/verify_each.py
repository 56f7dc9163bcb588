"""Checking every pass: the module is still right, and every function still gives the same numbers.

Functions are evaluated in NumPy at small sizes on random inputs, before the first pass and after each
one. A pass may reorder sums and drop the sign of zero; more than rounding is an error.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlc.dialects import func, weight
from dlc.driver.weights import Array
from dlc.errors import DlcError, NumbersDiffer
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Op
from dlc.ir.evaluation import Evaluation
from dlc.ir.types import DType, TensorType
from dlc.ir.verify import verify

TOLERANCE: Mapping[str, float] = {"f64": 1e-9, "f32": 1e-3, "f16": 3e-2, "bf16": 1e-1}
"""How far results may be apart, relative to the largest; other dtypes must agree exactly."""

_USUAL_SIZE = 3


@dataclass(slots=True)
class EachPass:
    """Hang `before` and `after` on a pass manager.

    `skipped` names functions that cannot be evaluated on random inputs (an index out of range, say),
    with the reason: of those only the form is checked.
    """

    skipped: dict[str, str] = field(default_factory=dict[str, str])
    _expected: dict[str, tuple[Array, ...]] | None = None

    def before(self, name: str, module: Op) -> None:
        """Note what every function gives, before the first pass."""
        if self._expected is None:
            self._expected = {}
            for function in _functions(module):
                try:
                    self._expected[function.sym_name] = _evaluated(function, module)
                except DlcError as error:
                    self.skipped[function.sym_name] = str(error)

    def after(self, name: str, module: Op) -> None:
        """Verify the module and compare. Raises ModelError, or NumbersDiffer naming the pass."""
        verify(module)
        assert self._expected is not None
        for function in _functions(module):
            expected = self._expected.get(function.sym_name)
            if expected is not None:
                compare(name, function, expected, _evaluated(function, module))


def compare(
    name: str, function: func.Func, expected: Sequence[Array], found: Sequence[Array]
) -> None:
    """Raises NumbersDiffer (D0951) where results differ by more than rounding."""
    types = function.function_type.results
    for index, (type, one, other) in enumerate(zip(types, expected, found, strict=True)):
        assert isinstance(type, TensorType)
        apart = distance(one, other, type.dtype)
        if apart > TOLERANCE.get(type.dtype.name, 0.0):
            raise NumbersDiffer(
                f"pass {name} changes result {index} of {function.sym_name} by {apart:.3g} of its "
                "largest element",
                code="D0951",
                place=function.location.place,
                help=f"--disable-pass {name} leaves the pass out; please report the model",
            )


def distance(one: Array, other: Array, dtype: DType) -> float:
    """The largest difference relative to the largest finite element; infinite for other NaNs."""
    if one.shape != other.shape:
        return float("inf")
    left = decode(one, dtype).astype(np.float64)
    right = decode(other, dtype).astype(np.float64)
    finite = np.isfinite(left)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return float("inf")
    left, right = left[finite], right[finite]
    if left.size == 0:
        return 0.0
    apart = np.abs(left - right).max()
    if dtype.is_float:
        apart = apart / max(1.0, float(np.abs(left).max()))
    return float("inf") if np.isnan(apart) else float(apart)


def _functions(module: Op) -> list[func.Func]:
    return [op for op in module.regions[0] if isinstance(op, func.Func)]


def _evaluated(function: func.Func, module: Op) -> tuple[Array, ...]:
    dims = {
        name: max(low, _USUAL_SIZE if high is None else min(_USUAL_SIZE, high))
        for name, (low, high) in function.bounds.items()
    }
    at = Evaluation(dims, _weights(module))
    inputs = [
        _random(f"{function.sym_name}/{index}", argument.type, at)
        for index, argument in enumerate(function.body.arguments)
    ]
    with np.errstate(all="ignore"):
        return at.run(function.body, inputs)


def _weights(module: Op) -> dict[str, Array]:
    """Random source weights, and the derived ones computed from them."""
    found: dict[str, Array] = {}
    for op in module.regions[0]:
        if isinstance(op, weight.Source):
            found[op.sym_name] = _random(op.sym_name, op.type, Evaluation())
    for op in module.regions[0]:
        if isinstance(op, weight.Derived):
            sources = [found[symbol.name] for symbol in op.sources]
            (found[op.sym_name],) = Evaluation({}, found).run(op.body, sources)
    return found


def _random(name: str, type: object, at: Evaluation) -> Array:
    """Small numbers that depend on the name alone; integers are 0 or 1, to serve as indices."""
    assert isinstance(type, TensorType)
    stream = np.random.Generator(np.random.Philox(key=zlib.crc32(name.encode())))
    shape = at.shape(type.shape)
    if type.dtype.is_float:
        return encode(stream.standard_normal(shape), type.dtype)
    return stream.integers(0, 2, shape).astype(type.dtype.numpy)
