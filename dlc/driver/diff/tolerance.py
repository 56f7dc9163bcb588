"""The error that rounding may cause in each value: Monte Carlo arithmetic.

A function is evaluated in f64, once as it is and a few times with every result changed at random by about
the rounding of its dtype: by `u` of itself, and by `sqrt(n) u` where n terms are summed, which is how
rounding errors of sums grow with high probability (N. J. Higham and T. Mary, "A New Approach to
Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41, 2019). The terms of a sum are changed, too,
so that cancellation counts. How far the samples spread is the error to expect of every value, with all that
the operations before it contribute (D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997;
J. Vignes, "Discrete Stochastic Arithmetic for Validating Results of Numerical Software", Numer. Algorithms
37, 2004). The evaluation in the model's own dtypes is one more sample. Elements that the samples do not
agree about, as a comparison of nearly equal numbers or an overflow, are undetermined, and not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import array, func
from dlc.dialects.array.elementwise import Elementwise
from dlc.driver.diff.case import Case
from dlc.errors import DlcError
from dlc.evaluation.rounding_error import SAFETY, SAMPLES, SMALLEST, UNITS
from dlc.ir.attributes import decode
from dlc.ir.core import Array, Evaluation, Op, Value
from dlc.ir.passes import Manager
from dlc.ir.types import DType, TensorType
from dlc.passes.graph.autodiff import autodiff
from dlc.passes.graph.gradient_functions import weights_as_arguments
from dlc.passes.graph.widen import widen

Numbers = NDArray[np.float64]

PLAIN = 1e-3
"""The tolerance relative to the largest element where there is no spread, as below the graph."""
LARGEST = {
    "f64": float(np.finfo(np.float64).max),
    "f32": float(np.finfo(np.float32).max),
    "f16": 65504.0,
}
LARGEST["bf16"] = LARGEST["f32"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a value should be, and by how much each of its elements may differ.

    `slack` is infinite where an element is undetermined.
    """

    dtype: DType
    value: Array
    slack: Numbers

    def excess(self, bits: Array) -> float:
        """The largest difference as a multiple of the slack: above 1 it is more than rounding.

        Infinite for another shape, and for a NaN or infinity where a number is expected.
        """
        return self.excess_of(decode(bits, self.dtype).astype(np.float64))

    def excess_of(self, found: Numbers) -> float:
        """The same for numbers of any dtype."""
        if found.shape != self.value.shape:
            return float("inf")
        return float(self._excesses(found).max(initial=0.0))

    def worst(self, bits: Array) -> tuple[tuple[int, ...], float, float] | None:
        """The index of the worst element, and what is and should be there; None for another shape."""
        return self.worst_of(decode(bits, self.dtype).astype(np.float64))

    def worst_of(self, found: Numbers) -> tuple[tuple[int, ...], float, float] | None:
        """The same for numbers of any dtype."""
        if found.shape != self.value.shape or not found.size:
            return None
        at = np.unravel_index(int(self._excesses(found).argmax()), found.shape)
        return tuple(int(i) for i in at), float(found[at]), float(self.value[at])

    def _excesses(self, found: Numbers) -> Numbers:
        expected = self.value.astype(np.float64)
        with np.errstate(all="ignore"):
            apart = np.abs(found - expected)
            excess = np.where(apart == 0, 0.0, apart / self.slack)
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        excess = np.where(same | np.isinf(self.slack), 0.0, excess)
        return np.where(np.isnan(excess), np.inf, excess)


@dataclass(slots=True)
class Expectations:
    """The expected results of a call, and its expected inner values by what the value map calls them."""

    results: tuple[Expected, ...] = ()
    values: dict[str, Expected] = field(default_factory=dict[str, Expected])
    growth: dict[str, float] = field(default_factory=dict[str, float])
    """By how much each value multiplies the relative error of what it is computed from."""

    @property
    def contributors(self) -> list[tuple[str, float]]:
        """The values whose operations enlarge the relative error most, the worst first."""
        return sorted(self.growth.items(), key=lambda item: -item[1])


def expectations(case: Case) -> Expectations:
    """What a call should give. Of a model below the graph, it is what the model gives as it was read."""
    plain, results = _plain(case)
    try:
        wide = [_wide(case, sample) for sample in range(SAMPLES + 1)]
    except (DlcError, AssertionError, TypeError, ValueError):
        wide = None
    if wide is None:
        found = Expectations(tuple(_relative(dtype, one) for dtype, one in results))
        found.values = {name: _relative(dtype, one) for name, (dtype, one) in plain.items()}
        return found
    exact = wide[0]
    found = Expectations(
        tuple(
            _expected(dtype, one, [sample.results[k] for sample in wide])
            for k, (dtype, one) in enumerate(results)
        )
    )
    for name, (dtype, one) in plain.items():
        samples = [sample.values[name] for sample in wide if name in sample.values]
        if len(samples) == len(wide):
            found.values[name] = _expected(dtype, one, samples)
    found.growth = _growth(exact.operands, found.values)
    return found


def _plain(case: Case) -> tuple[dict[str, tuple[DType, Array]], list[tuple[DType, Array]]]:
    """The inner values and the results in their own dtypes."""
    model = case.open()
    if model.stage == "graph":
        Manager(model.context).run(model.module, (autodiff,))
    values: dict[str, tuple[DType, Array]] = {}
    at = Evaluation(case.dims)

    def observe(value: Value, seen: Array) -> None:
        for origin in model.context.values.origins_of(value):
            values[origin.name] = origin.type.dtype, np.array(origin.recover(seen, at))

    results = case.evaluate(model, observe)
    types = case.function(model).function_type.results
    pairs = [(_dtype(type), one) for type, one in zip(types, results, strict=True)]
    return values, pairs


@dataclass(frozen=True, slots=True)
class _Sample:
    results: tuple[Array, ...]
    values: Mapping[str, Array]
    operands: Mapping[str, Sequence[str]]
    """The names of the values that each one is computed from."""


def _wide(case: Case, sample: int) -> _Sample:
    """An evaluation in f64: exact for sample 0, with random errors for others."""
    model = case.open()
    Manager(model.context).run(model.module, (autodiff,))
    function = case.function(model)
    assert isinstance(function, func.Func)
    units = _units(function)
    own = [_dtype(argument.type) for argument in function.body.arguments]
    weights_as_arguments(function)
    arguments = list(function.body.arguments)
    inputs = [decode(one, dtype) for one, dtype in zip(case.inputs, own, strict=True)]
    for argument in arguments[len(own) :]:
        assert argument.name is not None
        inputs.append(decode(case.weights[argument.name], _dtype(argument.type)))
    widen(function)
    inputs = [one.astype(_dtype(v.type).numpy) for one, v in zip(inputs, arguments, strict=True)]
    values: dict[str, Array] = {}
    operands: dict[str, list[str]] = {}
    origins = model.context.values
    at = Evaluation(case.dims)

    def observe(value: Value, seen: Array) -> None:
        for origin in origins.origins_of(value):
            values[origin.name] = np.array(origin.recover(seen, at))
            used = value.op.operands if value.op is not None else ()
            operands[origin.name] = [o.name for v in used for o in origins.origins_of(v)[:1]]

    run = _Shaken(case.dims, units, np.random.default_rng(sample) if sample else None, observe)
    with np.errstate(all="ignore"):
        results = run.run(function.body, inputs)
    return _Sample(results, values, operands)


class _Shaken(Evaluation):
    """An evaluation in f64 that changes each result by about the rounding of its own dtype."""

    __slots__ = ("_random", "_unit", "_units", "_watch")

    def __init__(
        self,
        dims: Mapping[str, int],
        units: Mapping[Value, str],
        random: np.random.Generator | None,
        watch: object,
    ) -> None:
        super().__init__(dims)
        self._units = units
        self._unit = "f32"
        self._random = random
        self._watch = watch

    def see(self, value: Value, array: Array) -> None:
        """Change the value where the evaluation keeps it, before anything reads it."""
        self._unit = self._units.get(value, self._unit)
        scope = self._scopes[-1] if self._scopes else {}
        op = value.op
        if op is not None and array.dtype == np.float64 and scope.get(value) is array:
            array = scope[value] = self._rounded(op, array)
        assert callable(self._watch)
        self._watch(value, array)

    def _rounded(self, op: Op, exact: Array) -> Array:
        """The number beyond the dtype's largest as an infinity, and with a random error where wanted."""
        limit = LARGEST[self._unit]
        found = np.where(np.abs(exact) > limit, np.copysign(np.inf, exact), exact)
        if self._random is None or not _rounds(op):
            return found
        terms = _terms(op, [np.shape(self._scopes[-1].get(v, 0.0)) for v in op.operands])
        error = UNITS[self._unit] * np.sqrt(terms)
        if terms > 1:
            found = self._with_terms(op, found, error)
        return np.asarray(found * (1 + error * self._random.uniform(-1, 1, exact.shape)))

    def _with_terms(self, op: Op, found: Array, error: float) -> Array:
        """The result with the error of its terms: as it would be for operands that are a little off."""
        if op.regions or len(op.results) > 1:
            return found
        moved = [self._moved(self._scopes[-1][v], error) for v in op.operands]
        again = op.evaluate(self, *moved)
        return found if isinstance(again, tuple) else again

    def _moved(self, one: Array, error: float) -> Array:
        if self._random is None or one.dtype != np.float64:
            return one
        return np.multiply(one, 1 + error * self._random.uniform(-1, 1, one.shape))


def _units(function: func.Func) -> dict[Value, str]:
    """The dtype of each float of a function, before it is widened."""
    return {
        value: value.type.dtype.name
        for op in function.walk()
        for value in op.results
        if isinstance(value.type, TensorType) and value.type.dtype.is_float
    }


_EXACT = (
    "reshape transpose broadcast slice gather concatenate select pad reverse reduce_max reduce_min maximum "
    "minimum negate absolute fill constant sort top_k dynamic_slice dynamic_update_slice get iota"
)
_COPIES = frozenset(_EXACT.split())
"""Operations that round nothing: they copy elements, or choose among them."""


def _rounds(op: Op) -> bool:
    dialect, _, name = op.name.partition(".")
    return name not in _COPIES and dialect not in ("flow", "weight", "comm")


def _terms(op: Op, shapes: Sequence[tuple[int, ...]]) -> int:
    """About how many terms an element of the result sums."""
    if isinstance(op, Elementwise):
        return 1
    if isinstance(op, array.MatMul):
        return max(1, shapes[0][-1])
    if isinstance(op, array.Convolution):
        return max(1, int(np.prod(shapes[1])) // max(1, min(shapes[1])))
    return max([1, *[size for shape in shapes for size in shape]])


def _expected(dtype: DType, plain: Array, samples: Sequence[Array]) -> Expected:
    own = decode(plain, dtype)
    if not dtype.is_float:
        agreed = np.all([np.equal(own, sample) for sample in samples], axis=0)
        return Expected(dtype, own, np.where(agreed, 0.5, np.inf))
    exact = np.asarray(samples[0], np.float64)
    others = [own.astype(np.float64), *[np.asarray(one, np.float64) for one in samples[1:]]]
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(one - exact) for one in others], axis=0)
    finite = np.isfinite(spread)
    typical = _rms(spread[finite])
    unit = UNITS[dtype.name]
    slack = SAFETY * (spread + typical + unit * np.abs(exact)) + SMALLEST[dtype.name]
    same = np.all([(one == exact) | (np.isnan(one) & np.isnan(exact)) for one in others], axis=0)
    slack = np.where(finite, slack, np.where(same, 0.0, np.inf))
    return Expected(dtype, exact, slack)


def _relative(dtype: DType, plain: Array) -> Expected:
    """A tolerance relative to the largest element."""
    own = decode(plain, dtype)
    if not dtype.is_float:
        return Expected(dtype, own, np.full(own.shape, 0.5))
    finite = np.abs(own[np.isfinite(own)].astype(np.float64))
    scale = max(1.0, float(finite.max(initial=0.0)))
    slack = PLAIN * scale * max(1.0, UNITS[dtype.name] / UNITS["f32"] / 64)
    return Expected(dtype, own, np.full(own.shape, slack))


def _growth(
    operands: Mapping[str, Sequence[str]], values: Mapping[str, Expected]
) -> dict[str, float]:
    """The relative spread of each float over the largest of those that it is computed from."""
    relative = {name: _relative_spread(one) for name, one in values.items() if one.dtype.is_float}
    found: dict[str, float] = {}
    for name, used in operands.items():
        before = max([relative[u] for u in used if u in relative], default=0.0)
        if name in relative and before > 0:
            found[name] = relative[name] / before
    return found


def _relative_spread(one: Expected) -> float:
    finite = np.isfinite(one.slack)
    size, spread = _rms(one.value[finite]), _rms(one.slack[finite])
    return spread / size if size > 0 and np.isfinite(size) else 0.0


def _rms(numbers: Array) -> float:
    """The root mean square; 0 of nothing."""
    squares: Array = np.square(numbers.astype(np.float64))
    return float(np.sqrt(float(np.sum(squares)) / max(1, numbers.size)))


def _dtype(type: object) -> DType:
    assert isinstance(type, TensorType)
    return type.dtype
