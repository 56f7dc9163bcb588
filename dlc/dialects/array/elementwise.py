"""The base classes of element-wise operations; constants; comparison, selection and conversion.

An element-wise operation applies a function of `dlc.dialects.scalar` to every element, which defines its
values, dtypes and lowering. `arithmetic` and `functions` have the operations, with their derivatives and
algebraic rules.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc.dialects import numeric, scalar
from dlc.dialects.measured import dims_of
from dlc.ir.attributes import INLINE_BYTES, Dense
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand
from dlc.ir.types import BOOL, DType, TensorType

__all__ = [
    "MANTISSA", "Binary", "Bitcast", "Cast", "Compare", "Constant", "Elementwise", "Fill", "Select",
    "Unary", "constant_like", "fill", "folded", "is_number", "show", "tensor_type",
]  # fmt: skip


def tensor_type(value: Value) -> TensorType:
    """The tensor type of a graph-level value."""
    type = value.type
    assert isinstance(type, TensorType), type
    return type


@op("array.constant")
class Constant(Op):
    """A tensor of known elements."""

    value: Dense = attribute()

    def infer(self) -> TensorType:
        return self.value.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return self.value.array


@op("array.fill")
class Fill(Op):
    """A tensor of the given type with the same number in every element; the type may be symbolic."""

    value: bool | int | float = attribute()
    type: TensorType = attribute()

    def infer(self) -> TensorType:
        return self.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = self.type.dtype
        number = np.asarray(self.value, np.float64 if dtype.is_float else dtype.numpy)
        return np.full(at.shape(self.type.shape), numeric.encode(number, dtype), dtype.numpy)


def fill(emit: Builder, value: float, type: TensorType) -> Value:
    """A tensor of `type` with `value` everywhere, placed by `emit`."""
    return emit(Fill(type_value(value, type.dtype), type))


def type_value(value: float, dtype: DType) -> bool | int | float:
    """A number as the attribute of a tensor of that dtype."""
    if dtype is BOOL:
        return bool(value)
    return float(value) if dtype.is_float else int(value)


def constant_like(emit: Builder, value: float, like: Value) -> Value:
    """A tensor of the type of `like` with `value` everywhere."""
    return fill(emit, value, tensor_type(like))


def show(value: Value) -> str:
    """The type of a value in the syntax of the language."""
    return value.type.text if isinstance(value.type, TensorType) else str(value.type)


def is_number(value: Value, number: float) -> bool:
    """Whether every element of the value is known to be that number."""
    match value.op:
        case Fill(value=known):
            return known == number
        case Constant(value=dense) if dense.is_splat:
            return bool(numeric.decode(dense.array, dense.type.dtype).flat[0] == number)
        case _:
            return False


def folded(op: Op) -> Dense | None:
    """The result as a constant, if all operands are constants and the result is small enough.

    Only for operations whose bits are the same on every target, which excludes sums of floats.
    """
    arrays: list[Array] = []
    at = Evaluation()
    for value in op.operands:
        source = value.op
        if not isinstance(source, Constant | Fill) or not _is_small(value):
            return None
        arrays.append(np.asarray(source.evaluate(at)))
    # A part of a table may begin at a size that only a call knows.
    if not _is_small(op.result) or dims_of(op):
        return None
    result = op.evaluate(at, *arrays)
    assert not isinstance(result, tuple)
    return Dense.of(result, tensor_type(op.result).dtype)


def _is_small(value: Value) -> bool:
    type = tensor_type(value)
    # An empty array may have axes of unknown size.
    return type.is_static and int(type.size) * type.dtype.bytes <= INLINE_BYTES  # pyright: ignore[reportArgumentType]


class Elementwise(Op):
    """The function `scalar` applied to every element; all operands and the result have one type."""

    scalar: ClassVar[type[scalar.Elementary]]
    approximate: ClassVar[bool] = False
    """Whether the last bit for floats depends on the formula of the target: then it is not folded."""

    def infer(self) -> TensorType:
        operands = self.operands
        first = operands[0].type
        if not isinstance(first, TensorType):
            raise self.fail(f"{self.name} takes tensors, found {first}")
        for other in operands:
            if other.type is not first:
                raise self.fail(
                    f"{self.name} takes tensors of one type, found {first.text} and {show(other)}",
                    help="convert or broadcast one of them",
                )
        if first.dtype.kind not in self.scalar.kinds:
            raise self.fail(f"{self.name} has no meaning for {first.dtype.name}", code="D0302")
        return first

    @property
    def is_exact(self) -> bool:
        """Whether NumPy gives the same bits as every target."""
        return not (self.approximate and tensor_type(self.result).dtype.is_float)

    def fold(self) -> Value | Dense | None:
        return self.simplified() or (folded(self) if self.is_exact else None)

    def simplified(self) -> Value | None:
        """An operand, or a value it is computed from, that equals the result by algebra; or None."""
        return None

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = tensor_type(self.operands[0]).dtype
        return numeric.in_single(self.scalar.function, dtype, *inputs)


class Unary(Elementwise):
    """A function of one tensor."""

    source: Value = operand()


class Binary(Elementwise):
    """A function of two tensors of one type."""

    lhs: Value = operand()
    rhs: Value = operand()


@op("array.compare")
class Compare(Op):
    """`lhs PREDICATE rhs` at each element, with eq, ne, lt, le, gt or ge; NaN compares false but for ne."""

    lhs: Value = operand()
    rhs: Value = operand()
    predicate: str = attribute()

    not_differentiable = "its result is a bool"

    def infer(self) -> TensorType:
        if self.predicate not in numeric.COMPARISONS:
            raise self.fail(f"{self.predicate!r} is not a predicate; use eq, ne, lt, le, gt or ge")
        type = self.lhs.type
        if type is not self.rhs.type or not isinstance(type, TensorType):
            raise self.fail(f"cannot compare {show(self.lhs)} with {show(self.rhs)}")
        return type.with_dtype(BOOL)

    def fold(self) -> Value | Dense | None:
        return folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        dtype = tensor_type(self.lhs).dtype
        wide = [numeric.decode(array, dtype) for array in inputs]
        return numeric.compare(self.predicate, *wide)


@op("array.select")
class Select(Op):
    """`yes` where the condition holds, else `no`."""

    condition: Value = operand()
    yes: Value = operand()
    no: Value = operand()

    def infer(self) -> TensorType:
        condition, type = self.condition.type, self.yes.type
        if not isinstance(type, TensorType) or type is not self.no.type:
            raise self.fail(f"the two choices are {show(self.yes)} and {show(self.no)}")
        if condition is not type.with_dtype(BOOL):
            raise self.fail(f"the condition is {show(self.condition)} for choices of {type.text}")
        return type

    def fold(self) -> Value | Dense | None:
        if self.yes is self.no or is_number(self.condition, True):
            return self.yes
        return self.no if is_number(self.condition, False) else folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.where(*inputs)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        (dy,) = cotangents
        zero = constant_like(emit, 0, dy)
        yes = emit(Select(self.condition, dy, zero))
        return None, yes, emit(Select(self.condition, zero, dy))


MANTISSA = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
"""Bits of the significand: integers of up to this many bits are exact."""


def holds(wide: DType, narrow: DType) -> bool:
    """Whether `wide` represents every value of `narrow`, so that a cast there and back is the identity."""
    if wide is narrow or narrow is BOOL:
        return True
    if narrow.is_float:
        return wide.is_float and wide.bits > narrow.bits
    digits = narrow.bits - (narrow.kind != "uint")
    if wide.is_float:
        return digits <= MANTISSA[wide.name]
    if wide.kind == narrow.kind:
        return wide.bits >= narrow.bits
    return narrow.kind == "uint" and wide.is_integer and wide.bits > narrow.bits


@op("array.cast")
class Cast(Op):
    """The elements in another dtype; floats to integers saturate and take NaN to 0."""

    source: Value = operand()
    dtype: DType = attribute()

    def infer(self) -> TensorType:
        return tensor_type(self.source).with_dtype(self.dtype)

    def fold(self) -> Value | Dense | None:
        if tensor_type(self.source).dtype is self.dtype:
            return self.source
        match self.source.op:
            case Cast(source=origin, dtype=between) if tensor_type(origin).dtype is self.dtype:
                return origin if holds(between, self.dtype) else None
            case _:
                return folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        with np.errstate(all="ignore"):
            return numeric.convert(inputs[0], tensor_type(self.source).dtype, self.dtype)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        source = tensor_type(self.source).dtype
        if not (source.is_float and self.dtype.is_float):
            return (None,)
        return (emit(Cast(cotangents[0], source)),)


@op("array.bitcast")
class Bitcast(Op):
    """The same bits as another dtype of the same width."""

    source: Value = operand()
    dtype: DType = attribute()

    not_differentiable = "it reinterprets bits"

    def infer(self) -> TensorType:
        type = tensor_type(self.source)
        if type.dtype.bits != self.dtype.bits:
            raise self.fail(
                f"{type.text} has {type.dtype.bits} bits, {self.dtype.name} another width"
            )
        return type.with_dtype(self.dtype)

    def fold(self) -> Value | Dense | None:
        if tensor_type(self.source).dtype is self.dtype:
            return self.source
        match self.source.op:
            case Bitcast(source=origin) if tensor_type(origin).dtype is self.dtype:
                return origin
            case _:
                return folded(self)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return inputs[0].view(self.dtype.numpy)
