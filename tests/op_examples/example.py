"""An example of an operation: how it is made, what goes in, and what must come out.

`expected` is written without the evaluator: with Python's numbers and loops, or another formulation. It
gets the inputs as NumPy arrays in which bf16 is float32, and may answer in a wider dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.dialects.func import Return
from dlc.dialects.interface import bounds_attribute
from dlc.ir.attributes import decode, encode
from dlc.ir.core import Block, Builder, Evaluation, Op, Value
from dlc.ir.dims import Shape
from dlc.ir.location import UnknownLocation
from dlc.ir.types import BF16, F16, F32, F64, DType, TensorType

Numbers: TypeAlias = NDArray[Any]

Answer: TypeAlias = "Numbers | tuple[Numbers, ...]"
Build: TypeAlias = (
    Callable[[], Op]
    | Callable[[Value], Op]
    | Callable[[Value, Value], Op]
    | Callable[[Value, Value, Value], Op]
    | Callable[[Value, Value, Value, Value], Op]
    | Callable[[Value, Value, Value, Value, Value, Value], Op]
)
Reference: TypeAlias = (
    Callable[[], Answer]
    | Callable[[Numbers], Answer]
    | Callable[[Numbers, Numbers], Answer]
    | Callable[[Numbers, Numbers, Numbers], Answer]
    | Callable[[Numbers, Numbers, Numbers, Numbers], Answer]
    | Callable[[Numbers, Numbers, Numbers, Numbers, Numbers, Numbers], Answer]
)
Element: TypeAlias = (
    Callable[[int], Any]
    | Callable[[int, int], Any]
    | Callable[[int, int, int], Any]
    | Callable[[int, int, int, int], Any]
)

HERE = UnknownLocation("an example")

TOLERANCE = {F64: 1e-13, F32: 4e-7, F16: 1.1e-3, BF16: 9e-3}
"""Of results that are not exact, relative to the largest."""


@dataclass(frozen=True, slots=True)
class Input:
    """An operand: an array in the dtype that NumPy holds it in, and perhaps its symbolic shape."""

    dtype: DType
    array: Numbers
    shape: Shape | None = None

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.array.shape if self.shape is None else self.shape)

    @property
    def values(self) -> Numbers:
        return decode(self.array, self.dtype)


@dataclass(frozen=True, slots=True)
class Example:
    """One use of an operation."""

    build: Build
    inputs: Sequence[Input]
    expected: Reference
    exact: bool = False
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    least: int = 0
    """The lower bound of each of `dims`: `x[1:]` needs at least one element."""
    orders: int = 2
    """Up to which order its derivative is compared with differences; 0 for a place that has none."""

    @property
    def is_smooth(self) -> bool:
        """Whether derivatives are compared: all floats that go in are f64, and there are some."""
        floats = {given.dtype for given in self.inputs if given.dtype.is_float}
        return floats == {F64} and self.orders > 0

    def block(self) -> tuple[Block, Op]:
        """A block that takes the inputs and returns the results of the operation."""
        block = Block([given.type for given in self.inputs])
        emit = Builder(block, HERE)
        op = emit.place(self.build(*block.arguments))
        emit.place(Return(op.results))
        return block, op

    def module(self) -> Module:
        """The same as a function @main in a module."""
        block, op = self.block()
        main = func.Func(block, "main", func.signature(block, op.results))
        self.bound(main)
        module = Module.empty(HERE)
        Builder(module.body, HERE).place(main)
        return module

    def bound(self, function: func.Func, most: int | None = None) -> None:
        """Give a function the bounds of `dims` as its attribute."""
        if self.dims:
            bounds = dict.fromkeys(self.dims, (self.least, most))
            function.attributes["dlc.dims"] = bounds_attribute(bounds)

    def run(self, block: Block, *arrays: Sequence[Numbers]) -> tuple[Numbers, ...]:
        """What a block returns for all these arrays, by default the inputs."""
        chosen = arrays or ([given.array for given in self.inputs],)
        return Evaluation(self.dims).run(block, [array for group in chosen for array in group])

    def shape_of(self, value: Value) -> tuple[int, ...]:
        """The shape of a value in numbers."""
        assert isinstance(value.type, TensorType)
        return Evaluation(self.dims).shape(value.type.shape)


EXAMPLES: dict[str, list[Example]] = {}
"""Examples of each operation, by its name."""


def examples(name: str, *found: Example) -> None:
    """Add examples of an operation."""
    EXAMPLES.setdefault(name, []).extend(found)


def given(dtype: DType, values: object, shape: Shape | None = None) -> Input:
    """An operand from numbers, rounded to the dtype."""
    if dtype.is_float:
        return Input(dtype, encode(np.asarray(values, np.float64), dtype), shape)
    return Input(dtype, np.asarray(values, dtype.numpy), shape)


def drawn(
    dtype: DType,
    shape: tuple[int, ...],
    low: float = -2,
    high: float = 2,
    *,
    seed: int = 0,
    symbolic: Shape | None = None,
) -> Input:
    """An operand with random numbers between `low` and `high`, all different in f64."""
    random = np.random.default_rng([seed, *shape])
    if dtype.is_float:
        return given(dtype, random.uniform(low, high, shape), symbolic)
    return given(dtype, random.integers(int(low), int(high), shape, endpoint=True), symbolic)


def wrap(number: int, dtype: DType) -> int:
    """An integer modulo two to the width of the dtype."""
    number %= 1 << dtype.bits
    return (
        number - (1 << dtype.bits) if dtype.kind == "int" and number >> dtype.bits - 1 else number
    )


def loop(shape: tuple[int, ...], element: Element) -> Numbers:
    """An array from a function of the index."""
    result = np.empty(shape, object)
    for place in np.ndindex(shape):
        result[place] = element(*place)
    return result
