"""`dlc gradcheck`: gradients of compiled code against differences of the evaluated function in f64.

The function's float results are contracted with random numbers u to one number s. Along a direction v of
one argument, (s(x + h v) - s(x - h v)) / 2 h must be the inner product of v with the gradient that the
compiled reverse gives. Where halving h changes the difference, the function has a kink there, and the
place is left out. The second order does the same with the gradient in the function's place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import func, weight
from dlc.dialects.builtin import Module
from dlc.driver.build import interface_of
from dlc.driver.calls import Request
from dlc.driver.compile import Opened, Settings, compile_opened
from dlc.driver.entries import find_function, interfaces
from dlc.driver.make import Wanted
from dlc.driver.open import open_model, open_training
from dlc.driver.weights import gather
from dlc.errors import UsageError
from dlc.ir.attributes import decode, encode
from dlc.ir.builder import Builder
from dlc.ir.evaluation import Evaluation
from dlc.ir.passes import Context, Manager
from dlc.ir.types import DType, TensorType
from dlc.passes.gradient_functions import (
    COTANGENT,
    contracted,
    copied,
    gradient_function,
    weights_as_arguments,
)
from dlc.passes.widen import widen
from dlc.runtime.binding import Binder
from dlc.runtime.call_arguments import ArgumentReader
from dlc.runtime.model import Model
from dlc.runtime.tensor import Tensor
from dlc.runtime.weights import WeightViews

Numbers: TypeAlias = NDArray[np.float64]
Values: TypeAlias = "dict[str, NDArray[np.generic]]"

DIRECTIONS = 8
SAMPLES = 32
STEP = 5e-4
"""h, for numbers around 1."""
KINK = 1e-3
"""How much halving h may change a difference where the function is smooth."""
TINY = 1e-6
"""Gradients below it count as 0."""
LIMIT = 1e-6
"""How far a gradient in f64 may be from the difference, relative to the largest element."""
NARROW_LIMIT = 2e-3
"""How far the gradient of the function as it is may be from that in f64."""


@dataclass(frozen=True, slots=True)
class GradientRow:
    """The gradient by one argument: how it was checked and the worst place.

    `error` is relative to the largest element of the gradient, `narrow` that of the dtype of the model.
    `at` is the index of the worst element, or None where a direction through all of them was worse.
    """

    name: str
    place: str
    checked: int
    kinks: int
    error: float
    narrow: float
    at: tuple[int, ...] | None
    gradient: float
    difference: float

    @property
    def is_right(self) -> bool:
        """Whether both errors are within their limits."""
        return self.error <= LIMIT and self.narrow <= NARROW_LIMIT


def check_gradients(
    wanted: Wanted, request: Request, *, order: int = 1, full: bool = False
) -> list[GradientRow]:
    """Check the gradient of the loss of a model, or of an entry point, by every float it depends on.

    Without a name in `request` it is the loss of the `train` block, where there is one. With `full` every
    element is checked. Raises UsageError for a function without float arguments or results.
    """
    opened = _opened(wanted, request)
    function = find_function(opened.module, request.entry)
    values, dims = _values(opened, function, request, wanted)
    weights_as_arguments(function)
    subject = function
    for _ in range(order - 1):
        subject = gradient_function(subject, "gradient")
    if not any(_is_float(value.type) for value in subject.results_returned):
        raise _nothing(function)
    return _Check(opened, subject, values, dims, full).rows()


def _opened(wanted: Wanted, request: Request) -> Opened:
    if request.entry is None and wanted.path.endswith(".dlm"):
        plain = open_model(wanted.path, module=wanted.module, settings=wanted.parameters)
        if not plain.can_train:
            return plain
        return open_training(
            wanted.path, module=wanted.module, settings=wanted.parameters, purpose="loss"
        )
    return wanted.open()


def _nothing(function: func.Func) -> UsageError:
    return UsageError(
        f"{function.sym_name} has no float results, or none that depend on floats",
        code="D0905",
        help="name another entry point: --entry NAME",
    )


def _values(
    opened: Opened, function: func.Func, request: Request, wanted: Wanted
) -> tuple[Values, dict[str, int]]:
    """A value for every argument and weight, and the sizes."""
    arguments = request.arguments(interfaces(opened.module))
    entry = interface_of(function)
    binder = Binder(entry)
    arrays, given = ArgumentReader(entry, binder.free).read((), arguments.named)
    dims = binder.bind([array.shape for array in arrays], given)
    values: Values = {
        item.name: array if item.name in request.inputs else _small(array)
        for item, array in zip(entry.inputs, arrays, strict=True)
    }
    seed = 0 if opened.training is None else opened.training.seed
    gathered = gather(opened.module, wanted.weights, opened.folder, opened.arrays, seed)
    views = WeightViews(gathered.table, np.frombuffer(gathered.data, np.uint8))
    values |= {row.name: views.tensor(row.name).bits for row in gathered.table}
    dtypes = {item.name: item.dtype for item in entry.inputs}
    dtypes |= {row.name: row.dtype for row in gathered.table}
    return {name: _widened(value, dtypes[name]) for name, value in values.items()}, dict(dims)


def _small(value: NDArray[np.generic]) -> NDArray[np.generic]:
    """Random integers as 0 and 1, to serve as labels and indices."""
    if value.dtype.kind not in "iu":
        return value
    return (cast("NDArray[np.int64]", value) & 1).astype(value.dtype)


def _widened(value: NDArray[np.generic], dtype: str) -> NDArray[np.generic]:
    known = DType.named[dtype]
    return decode(value, known).astype(np.float64) if known.is_float else value


class _Check:
    """One function: evaluated in f64 as one number, and its compiled gradient in f64 and as it is."""

    def __init__(
        self,
        opened: Opened,
        subject: func.Func,
        values: Values,
        dims: Mapping[str, int],
        full: bool,
    ) -> None:
        self.places = {
            op.sym_name: str(op.location.place)
            for op in opened.module.body
            if isinstance(op, weight.Source)
        }
        self.place = str(subject.location.place)
        self.at = Evaluation(dims)
        self.full = full
        own = enumerate(subject.body.arguments)
        self.floats = [k for k, argument in own if _is_float(argument.type)]
        self.random = np.random.Generator(np.random.Philox(key=7))
        self.total = _evaluated(contracted(subject, "total"))
        self.names = [argument.name or "" for argument in self.total.body.arguments]
        self.values = [
            self._value(name, argument.type, values)
            for name, argument in zip(self.names, self.total.body.arguments, strict=True)
        ]
        self.here = self._at(0, self.values[0])
        gradient = gradient_function(subject, "narrow")
        types = [argument.type for argument in gradient.body.arguments]
        wide = copied(gradient, "wide")
        widen(wide)
        model = _compiled(opened, (gradient, wide))
        self.narrow = _called(
            model, "narrow", [_as(v, t) for v, t in zip(self.values, types, strict=True)]
        )
        self.wide = _called(model, "wide", self.values)

    def _value(self, name: str, type: object, values: Values) -> NDArray[np.generic]:
        """The value of an argument: floats as f64, random numbers for what a result receives."""
        assert isinstance(type, TensorType)
        if name.startswith(COTANGENT):
            return self.random.standard_normal(self.at.shape(type.shape))
        return values[name]

    def rows(self) -> list[GradientRow]:
        """A row for each float argument that is no cotangent."""
        found = zip(self.floats, self.wide, self.narrow, strict=True)
        return [
            self._row(k, wide, narrow)
            for k, wide, narrow in found
            if not self.names[k].startswith(COTANGENT)
        ]

    def _row(self, k: int, gradient: Numbers, narrow: Numbers) -> GradientRow:
        scale = max(float(np.abs(gradient).max(initial=0)), TINY)
        worst = _Worst()
        for direction, at in self._directions(gradient):
            if at is None:
                expected = float(np.vdot(gradient, direction))
                size = max(float(np.linalg.norm(gradient)), TINY)
            else:
                expected, size = float(gradient[at]), scale
            worst.see(self._difference(k, direction, size), expected, size, at)
        apart = float(np.abs(narrow - gradient).max(initial=0)) / scale
        return GradientRow(
            self.names[k],
            self.places.get(self.names[k], self.place),
            worst.checked,
            worst.kinks,
            worst.error,
            apart,
            worst.at,
            worst.gradient,
            worst.difference,
        )

    def _directions(self, like: Numbers) -> Iterator[tuple[Numbers, tuple[int, ...] | None]]:
        """Random directions through all elements, then single elements with their index."""
        if like.size == 0:
            return
        for _ in range(DIRECTIONS if like.size > 1 else 0):
            yield self.random.standard_normal(like.shape), None
        few = min(SAMPLES, like.size)
        chosen = (
            range(like.size) if self.full else self.random.choice(like.size, few, replace=False)
        )
        for place in chosen:
            at = tuple(int(i) for i in np.unravel_index(int(place), like.shape))
            direction = np.zeros(like.shape)
            direction[at] = 1
            yield direction, at

    def _difference(self, k: int, direction: Numbers, size: float) -> float | None:
        """The derivative along a direction by central differences; None where there is a kink.

        The slopes before and behind a smooth place differ half as much for half the step; at a kink as
        much as before.
        """
        (before, behind), (nearer, after) = (
            self._slopes(k, direction, h) for h in (STEP, STEP / 2)
        )
        if abs(after - nearer) > max(KINK * size, 0.75 * abs(behind - before)):
            return None
        coarse, fine = (before + behind) / 2, (nearer + after) / 2
        if not abs(coarse - fine) <= KINK * size:
            return None
        return (4 * fine - coarse) / 3

    def _slopes(self, k: int, direction: Numbers, h: float) -> tuple[float, float]:
        """The slopes of the function from `h` before to here, and from here to `h` behind."""
        low, high = (self._at(k, cast("Numbers", self.values[k]) + s * direction) for s in (-h, h))
        return (self.here - low) / h, (high - self.here) / h

    def _at(self, k: int, moved: NDArray[np.generic]) -> float:
        """The function with another value for one argument."""
        values = [*self.values[:k], moved, *self.values[k + 1 :]]
        with np.errstate(all="ignore"):
            (total,) = self.at.run(self.total.body, values)
        return float(total)


@dataclass(slots=True)
class _Worst:
    """The worst place so far."""

    checked: int = 0
    kinks: int = 0
    error: float = 0.0
    at: tuple[int, ...] | None = None
    gradient: float = 0.0
    difference: float = 0.0

    def see(
        self, difference: float | None, gradient: float, size: float, at: tuple[int, ...] | None
    ) -> None:
        """Compare a gradient with a difference, relative to `size`; None is a kink."""
        if difference is None:
            self.kinks += 1
            return
        self.checked += 1
        error = abs(difference - gradient) / size
        if not error <= self.error or self.checked == 1:
            self.error, self.at = error, at
            self.gradient, self.difference = gradient, difference


def _evaluated(function: func.Func) -> func.Func:
    """The function in f64, without derivatives: plain operations."""
    widen(function)
    _module([function])
    return function


def _module(functions: Sequence[func.Func]) -> tuple[Module, Context]:
    module, context = Module.empty(functions[0].location), Context()
    for function in functions:
        Builder(module.body, function.location).place(function)
    Manager(context).run(module, ("autodiff",))
    return module, context


def _compiled(opened: Opened, functions: Sequence[func.Func]) -> Model:
    module, context = _module(functions)
    made = Opened(module, context, opened.name, opened.texts, opened.folder)
    return Model(compile_opened(made, Settings()))


def _called(model: Model, name: str, values: Sequence[NDArray[np.generic]]) -> list[Numbers]:
    entry = model.entry_points[name]
    given = zip(entry.inputs, values, strict=True)
    arguments = [Tensor.from_bits(np.asarray(value), item.dtype) for item, value in given]
    found = entry(*arguments)
    results = cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)
    return [
        _numbers(result, DType.named[output.dtype])
        for output, result in zip(entry.outputs, results, strict=True)
    ]


def _numbers(result: object, dtype: DType) -> Numbers:
    """A result of a model as f64."""
    bits = result.bits if isinstance(result, Tensor) else np.asarray(result)
    return decode(bits.view(dtype.numpy), dtype).astype(np.float64)


def _as(value: NDArray[np.generic], type: object) -> NDArray[np.generic]:
    """A value in the dtype of the model."""
    assert isinstance(type, TensorType)
    return encode(value, type.dtype) if type.dtype.is_float else value


def _is_float(type: object) -> bool:
    return isinstance(type, TensorType) and type.dtype.is_float
