"""Small programs for tests: built, differentiated, evaluated, compared with central differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlc.dialects import array, flow, func
from dlc.dialects.builtin import Module
from dlc.dialects.interface import Bounds, bounds_attribute
from dlc.dialects.measured import dims_of
from dlc.ir.attributes import Dense
from dlc.ir.core import Array, Block, Builder, Evaluation, Op, Value
from dlc.ir.location import UnknownLocation
from dlc.ir.passes import Context
from dlc.ir.types import F64, DType, TensorType, Type
from dlc.ir.verify import verify
from dlc.passes.graph.autodiff import autodiff

HERE = UnknownLocation("a test")

Results: TypeAlias = "Value | tuple[Value, ...]"
# One by one, so that the type checker knows the parameters of a lambda.
Build: TypeAlias = (
    Callable[[Builder], Results]
    | Callable[[Builder, Value], Results]
    | Callable[[Builder, Value, Value], Results]
    | Callable[[Builder, Value, Value, Value], Results]
    | Callable[[Builder, Value, Value, Value, Value], Results]
    | Callable[[Builder, Value, Value, Value, Value, Value], Results]
    | Callable[[Builder, Value, Value, Value, Value, Value, Value], Results]
)
"""Emits operations: takes a builder and the arguments, gives the results."""


def tensor(*shape: int, dtype: DType = F64) -> TensorType:
    """The type of a tensor, f64 unless something else is said."""
    return TensorType(dtype, shape)


def emitted(build: Build, emit: Builder, arguments: Sequence[Value]) -> tuple[Value, ...]:
    """The results of a program whose operations `emit` places."""
    results = cast("Callable[..., Results]", build)(emit, *arguments)
    return (results,) if isinstance(results, Value) else results


def region(build: Build, types: Sequence[Type]) -> Block:
    """A region that takes arguments of these types."""
    block = Block(types)
    emit = Builder(block, HERE)
    emit.place(flow.Yield(emitted(build, emit, block.arguments)))
    return block


def types_of(arrays: Sequence[Array]) -> list[TensorType]:
    """Static types for arrays."""
    known = {dtype.numpy: dtype for dtype in DType.named.values() if dtype.name != "index"}
    return [TensorType(known[each.dtype], each.shape) for each in arrays]


def program(build: Build, types: Sequence[Type]) -> Module:
    """A module with one function `main`, whose named sizes may be anything."""
    module = Module.empty(HERE)
    block = Block(types)
    emit = Builder(block, HERE)
    results = emitted(build, emit, block.arguments)
    emit.place(func.Return(results))
    made = func.Func(block, "main", func.signature(block, results))
    bounds: Bounds = dict.fromkeys(sorted(dims_of(made)), (0, None))
    made.attributes["dlc.dims"] = bounds_attribute(bounds)
    Builder(module.body, HERE).place(made)
    return module


def main(module: Module) -> func.Func:
    """The function of a program."""
    found = module.symbol("main")
    assert isinstance(found, func.Func)
    return found


def expanded(build: Build, types: Sequence[Type]) -> Module:
    """A program without derivatives left, of which the verifier approves."""
    module = program(build, types)
    autodiff.run(module, Context())
    verify(module)
    return module


def run(module: Module, *inputs: Array, dims: Mapping[str, int] | None = None) -> tuple[Array, ...]:
    """The results of the program for these inputs."""
    return Evaluation(dims).run(main(module).body, inputs)


def evaluate(build: Build, *inputs: Array) -> tuple[Array, ...]:
    """What a program gives for inputs of exactly these types, derivatives expanded."""
    return run(expanded(build, types_of(inputs)), *inputs)


def gradient(build: Build, wrt: Sequence[int] | None = None) -> Build:
    """A program that gives the gradient of the sum of all results that are floats."""

    def built(emit: Builder, *arguments: Value) -> tuple[Value, ...]:
        body = region(build, [argument.type for argument in arguments])
        ones = tuple(
            array.constant_like(emit, 1, value)
            for value in body.terminator.operands
            if array.tensor_type(value).dtype.is_float
        )
        chosen = wrt
        if chosen is None:
            floats = [array.tensor_type(value).dtype.is_float for value in arguments]
            chosen = [index for index, yes in enumerate(floats) if yes]
        return emit.all(flow.Vjp(arguments, ones, body, tuple(chosen)))

    return built


def check_gradient(build: Build, *inputs: Array, order: int = 1, rtol: float = 1e-6) -> None:
    """Compare derivatives of order 1 up to `order` with central differences of the order before.

    The results are weighted at random, so that each element counts differently.
    """
    weighted = _weighted(build)
    for _ in range(order):
        _check_directions(weighted, inputs, rtol)
        weighted = _weighted(gradient(weighted))


def _weighted(build: Build) -> Build:
    """The program with results weighted by numbers that are drawn from a fixed seed."""

    def built(emit: Builder, *arguments: Value) -> tuple[Value, ...]:
        random = np.random.default_rng(1)
        found: list[Value] = []
        for value in emitted(build, emit, arguments):
            type = array.tensor_type(value)
            if type.dtype is F64:
                shape = tuple(int(size) for size in type.shape if isinstance(size, int))
                weights = Dense.of(random.uniform(0.5, 1.5, shape), F64)
                found.append(emit(array.Multiply(value, emit(array.Constant(weights)))))
        return tuple(found)

    return built


def _check_directions(build: Build, inputs: Sequence[Array], rtol: float) -> None:
    random = np.random.default_rng(2)
    module = expanded(build, types_of(inputs))
    floats = [index for index, value in enumerate(inputs) if value.dtype == np.float64]
    found = evaluate(gradient(build), *inputs)
    for index, slope in zip(floats, found, strict=True):
        for _ in range(3):
            direction = random.standard_normal(inputs[index].shape)
            expected = _slope(module, inputs, index, direction)
            along = np.sum(slope.astype(np.float64) * direction)
            np.testing.assert_allclose(
                along, expected, rtol=rtol, atol=rtol, err_msg=f"input {index}"
            )


def _slope(
    module: Module, inputs: Sequence[Array], index: int, direction: NDArray[np.float64]
) -> float:
    """The derivative of the sum of all results along a direction, with an error of order h**4."""

    def total(step: float) -> float:
        moved = list(inputs)
        moved[index] = inputs[index].astype(np.float64) + step * direction
        return float(sum(np.sum(result.astype(np.float64)) for result in run(module, *moved)))

    step = 1e-4
    near, far = total(step) - total(-step), total(2 * step) - total(-2 * step)
    return (8 * near - far) / (12 * step)


def assert_close(found: Array, expected: ArrayLike, rtol: float = 1e-12, atol: float = 0) -> None:
    """Refuse numbers that differ by more than `atol + rtol * |expected|`."""
    np.testing.assert_allclose(
        found.astype(np.float64), np.asarray(expected, np.float64), rtol=rtol, atol=atol
    )


def ops(module: Module, kind: type[Op]) -> list[Op]:
    """The operations of a kind anywhere in the module."""
    return [op for op in module.walk() if isinstance(op, kind)]
