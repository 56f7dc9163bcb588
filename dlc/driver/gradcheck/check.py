"""`dlc gradcheck`: gradients of compiled code against differences of the evaluated function in f64.

The function's float results are contracted with random numbers u to one number s. Along a direction v of
one argument, the slope of s must be the inner product of v with the gradient that the compiled reverse
gives. Where the function has a kink, the place is left out. The second order does the same with the
gradient in the function's place. Directions and elements are drawn from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import func, weight
from dlc.dialects.builtin import Module
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.entries import find_function
from dlc.driver.compile.settings import Settings
from dlc.driver.gradcheck.check_values import Values, values_of
from dlc.driver.gradcheck.finite_differences import slope
from dlc.driver.gradcheck.neighbourhood import Neighbourhood
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.open import open_model, open_training
from dlc.driver.source.source_model import SourceModel
from dlc.errors import UsageError
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Array, Builder, Evaluation
from dlc.ir.passes import Context, Manager
from dlc.ir.types import DType, TensorType
from dlc.passes.graph.autodiff import autodiff, differentiate
from dlc.passes.graph.dce import dce
from dlc.passes.graph.gradient_functions import (
    COTANGENT,
    contracted,
    copied,
    gradient_function,
    weights_as_arguments,
)
from dlc.passes.graph.widen import widen
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.cpu.blas import numpy_single_threaded
from dlc.runtime.model import Model

Numbers: TypeAlias = NDArray[np.float64]

LIMIT = 1e-6
"""The tolerance of an f64 gradient against differences, relative to the largest element."""
NARROW_LIMIT = 2e-3
"""The tolerance of the gradient in the function's own dtype against that in f64."""
FAINT = 1e-3
"""Gradients are measured by their largest element, but by no less than this part of the largest of all."""
TINY = 1e-6
"""And by no less than that."""
VANISHING = 1e-12
"""Below this part of the largest gradient of all one in f64 is what rounding left of 0."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Through how many random directions and single elements of each argument differences are taken."""

    directions: int = 8
    samples: int = 32
    full: bool = False
    """Every element instead of samples."""


@dataclass(frozen=True, slots=True)
class GradientRow:
    """The gradient by one argument: how it was checked and the worst place.

    `size` is how many elements it has, `checked` in how many places the differences had a slope. `error` is
    relative to the largest element of the gradient, `narrow` that of the dtype of the model.
    `at` is the index of the worst element, or None where a direction through all of them was worse.
    `vanishes` says that the gradient is 0 and what is left of it rounding, as by a bias that is
    normalised away: then the errors are relative to a part of the other gradients.
    """

    name: str
    place: str
    size: int
    checked: int
    kinks: int
    error: float
    narrow: float
    at: tuple[int, ...] | None
    gradient: float
    difference: float
    vanishes: bool

    @property
    def is_right_in_f64(self) -> bool:
        """Whether the gradient in f64 is that of the differences."""
        return self.error <= LIMIT

    @property
    def is_right(self) -> bool:
        """Whether both errors are within their limits."""
        return self.is_right_in_f64 and self.narrow <= NARROW_LIMIT


@dataclass(frozen=True, slots=True)
class Gradients:
    """The result of a gradient check: a row for each argument, the point, and the effort."""

    rows: Sequence[GradientRow]
    source: str
    effort: Effort

    @property
    def sampled(self) -> bool:
        """Whether an argument has elements that were seen along random directions only."""
        largest = max((row.size for row in self.rows), default=0)
        return not self.effort.full and largest > self.effort.samples


def check_gradients(
    request: CompileRequest, call_request: CallRequest, *, order: int = 1, full: bool = False
) -> Gradients:
    """Check the gradient of the loss of a model, or of an entry point, by every float it depends on.

    Without a name in `request` it is the loss of the `train` block, where there is one, for the first
    examples of its data, where they can be read. With `full` every element is checked. Raises UsageError
    (D0905) for a function without float arguments or results, or that is not finite at that place.
    """
    source = _opened(request, call_request)
    call_request = replace(call_request, dims=source.open_sizes(call_request.dims))
    function = find_function(source.module, call_request.entry)
    function.forget_updates()
    effort = Effort(full=full)
    with source.quoting():
        values = values_of(source, function, call_request, request.weights)
        check = Check(source.module, function, values, order)
        model = compile_gradients(source, [check], Settings())
        return Gradients(check.rows(model, effort), values.source, effort)


def _opened(request: CompileRequest, call_request: CallRequest) -> SourceModel:
    if call_request.entry is None and request.path.endswith(".dlm"):
        plain = open_model(
            request.path, text=request.text, module=request.module, settings=request.parameters
        )
        if plain.can_train:
            return open_training(
                request.path,
                text=request.text,
                module=request.module,
                settings=request.parameters,
                purpose="loss",
                block=request.block,
            )
        return plain
    return request.open()


class Check:
    """One function: evaluated in f64 as one number, and its gradient, in f64 and as it is, to compile.

    `name` begins the names of its entry points; the module is that of the function.
    """

    def __init__(
        self,
        module: Module,
        function: func.Func,
        values: Values,
        order: int = 1,
        name: str = "",
    ) -> None:
        places = {op.sym_name: op.location for op in module.body if isinstance(op, weight.Source)}
        self.places = {name: str(location.place) for name, location in places.items()}
        self.place = str(function.location.place)
        self.name = f"{name or function.sym_name} {order}"
        self.subject = _subject(function, order)
        self.dims = values.dims
        self.random = np.random.Generator(np.random.Philox(key=7))
        self.total = _evaluated(contracted(self.subject, "total"))
        arguments = self.total.body.arguments
        self.names = [argument.name or "" for argument in arguments]
        self.values = [
            self._value(argument.name or "", argument.type, values.named) for argument in arguments
        ]

    def _value(self, name: str, type: object, values: Mapping[str, Array]) -> Array:
        """The value of an argument: floats as f64, random numbers for what a result receives."""
        assert isinstance(type, TensorType)
        if name.startswith(COTANGENT):
            return self.random.standard_normal(Evaluation(self.dims).shape(type.shape))
        return values[name]

    def functions(self) -> tuple[func.Func, func.Func]:
        """The gradient with the dtypes of the function, and in f64."""
        narrow = gradient_function(self.subject, f"{self.name} as it is")
        wide = copied(narrow, f"{self.name} in f64")
        widen(wide)
        return narrow, wide

    def gradients(self, model: Model) -> dict[str, Numbers]:
        """The f64 gradient of each float argument, by name, from a model as in `rows`.

        The cotangents are `values` of their names.
        """
        floats = [a.name or "" for a in self.subject.body.arguments if _is_float(a.type)]
        gradients = _called(model, f"{self.name} in f64", self.values)
        return dict(zip(floats, gradients, strict=True))

    def rows(self, model: Model, effort: Effort) -> list[GradientRow]:
        """A row for each float that the function depends on, but for cotangents.

        `model` has `functions` among its entry points. Raises UsageError (D0905) where the function is
        not finite.
        """
        around = Neighbourhood(self.total.body, self.values, self.dims)
        if not np.isfinite(around.here):
            raise UsageError(
                f"{self.name.rpartition(' ')[0]} is {around.here} here, where it has no derivative",
                code="D0905",
                help="give other values: --input NAME=VALUE, or --random-inputs 1",
            )
        wide = _called(model, f"{self.name} in f64", self.values)
        narrow = _called(model, f"{self.name} as it is", self.values)
        floats = [k for k, v in enumerate(self.subject.body.arguments) if _is_float(v.type)]
        own = [row for row in zip(floats, wide, narrow, strict=True) if self._matters(row[0])]
        least = max([TINY, *[FAINT * _largest(gradient) for _, gradient, _ in own]])
        with numpy_single_threaded:
            return [self._row(k, around, gradient, n, least, effort) for k, gradient, n in own]

    def _matters(self, k: int) -> bool:
        """Whether an argument is one of the function that was given, which depends on it."""
        return bool(self.total.body.arguments[k].uses) and not self.names[k].startswith(COTANGENT)

    def _row(
        self,
        k: int,
        around: Neighbourhood,
        gradient: Numbers,
        narrow: Numbers,
        least: float,
        effort: Effort,
    ) -> GradientRow:
        scale = max(_largest(gradient), least)
        worst = _Worst()
        for direction, at in self._directions(gradient, effort):
            if at is None:
                expected = float(np.vdot(gradient, direction))
                size = max(float(np.linalg.norm(gradient)), scale)
            else:
                expected, size = float(gradient[at]), scale
            difference = slope(
                lambda moved: around.moved(k, moved),
                cast("Numbers", self.values[k]),
                around.here,
                direction,
                LIMIT / 2 * size,
            )
            worst.see(difference, expected, size, at)
        return GradientRow(
            self.names[k],
            self.places.get(self.names[k], self.place),
            gradient.size,
            worst.checked,
            worst.kinks,
            worst.error,
            _largest(narrow - gradient) / scale,
            worst.at,
            worst.gradient,
            worst.difference,
            vanishes=_largest(gradient) <= VANISHING / FAINT * least,
        )

    def _directions(
        self, like: Numbers, effort: Effort
    ) -> Iterator[tuple[Numbers, tuple[int, ...] | None]]:
        """Random directions through all elements, then single elements with their index."""
        if like.size == 0:
            return
        for _ in range(effort.directions if like.size > 1 else 0):
            yield self.random.standard_normal(like.shape), None
        few = like.size if effort.full else min(effort.samples, like.size)
        for number in self.random.choice(like.size, few, replace=False):
            at = tuple(int(i) for i in np.unravel_index(int(number), like.shape))
            direction = np.zeros(like.shape)
            direction[at] = 1
            yield direction, at


def _subject(function: func.Func, order: int) -> func.Func:
    """A function of all that it depends on, or its gradient for the second order."""
    subject = copied(function, function.sym_name)
    weights_as_arguments(subject)
    missing = None
    if not any(_is_float(value.type) for value in subject.results_returned):
        missing = "no float results, or none that depend on floats"
    elif not any(_is_float(argument.type) for argument in subject.body.arguments):
        missing = "no float inputs or weights"
    if missing is not None:
        raise UsageError(
            f"{function.sym_name} has {missing}",
            code="D0905",
            help="name another entry point: --entry NAME",
        )
    for _ in range(order - 1):
        subject = gradient_function(subject, "gradient")
    return subject


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


def compile_gradients(source: SourceModel, checks: Sequence[Check], settings: Settings) -> Model:
    """The functions of all these checks of one model, compiled together."""
    functions = [function for check in checks for function in check.functions()]
    module, context = _module(functions)
    Manager(context).run(module, (autodiff,))
    model = SourceModel(
        module, context, source.name, source.texts, source.folder, listings=source.listings
    )
    return Model(compile_model(model, settings))


def _evaluated(function: func.Func) -> func.Func:
    """The function in f64, without derivatives but with what says that it is a constant for them."""
    widen(function)
    module, context = _module([function])
    differentiate(module, context)
    Manager(context).run(module, (dce,))
    return function


def _module(functions: Sequence[func.Func]) -> tuple[Module, Context]:
    module, context = Module.empty(functions[0].location), Context()
    for function in functions:
        Builder(module.body, function.location).place(function)
    return module, context


def _called(model: Model, name: str, values: Sequence[Array]) -> list[Numbers]:
    """The results of an entry point for these f64 values, in f64."""
    entry = model.entry_points[name]
    pairs = zip(entry.inputs, values, strict=True)
    returned = entry(*[_as(value, DType.named[item.dtype]) for item, value in pairs])
    results = cast("tuple[object, ...]", returned) if isinstance(returned, tuple) else (returned,)
    return [
        _numbers(result, DType.named[output.dtype])
        for output, result in zip(entry.outputs, results, strict=True)
    ]


def _as(value: Array, dtype: DType) -> Tensor:
    """A value in the dtype of the model."""
    return Tensor.from_bits(encode(value, dtype) if dtype.is_float else value, dtype.name)


def _numbers(result: object, dtype: DType) -> Numbers:
    """A result of a model as f64."""
    bits = result.bits if isinstance(result, Tensor) else np.asarray(result)
    return decode(bits.view(dtype.numpy), dtype).astype(np.float64)


def _largest(values: Numbers) -> float:
    return float(np.abs(values).max(initial=0))


def _is_float(type: object) -> bool:
    return isinstance(type, TensorType) and type.dtype.is_float
