"""Expressions with operators for kernel code: a value together with the builder that computes with it.

`row * 4 + column` places a `scalar.multiply` and a `scalar.add`, in the order in which Python evaluates
them. A number in a formula becomes a constant of the expression's own type, so one formula serves scalars,
registers and indices. For integers `0 + x` and `x * 1` are `x`, so an offset can be written
`sum(index * stride for ...)` without an operation for a stride that is known to be 1.

One builder writes a function and inserts into the block that is being written (`Builder.into`), so an
expression of an outer block may be used inside a loop, and what is computed from it there is placed there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self, TypeAlias

from dlc.dialects import kernel, loop, scalar, vec
from dlc.dialects.scalar import element
from dlc.ir.core import Builder, Op, Value
from dlc.ir.dims import Dim
from dlc.ir.types import BOOL, INDEX, U8, U64, DType, Type, VectorType

Number: TypeAlias = "Expr | float | Dim"
"""An operand beside an expression; at kernel level it may be a symbolic size."""
Index: TypeAlias = "Expr | int"
"""An index, at compile time or at run time."""
Condition: TypeAlias = "Expr | bool"
"""A condition, at compile time or at run time."""

_NEUTRAL: dict[type[Op], int | bool] = {
    scalar.Multiply: 1,
    scalar.RawDivide: 1,
    scalar.FloorDivide: 1,
    scalar.Xor: 0,
}
"""The integer that, as the second operand, gives the first one back."""


MOST_INDEX = (1 << 63) - 1
"""The largest index: no axis has a place of this number."""


class Expr:
    """A scalar, an index or a register in a formula. Both operands of an operation have one type."""

    __slots__ = ("emit", "value")

    def __init__(self, emit: Builder, value: Value) -> None:
        self.emit = emit
        self.value = value

    def __eq__(self, other: object) -> bool:
        """Whether both are the same value; `equals` writes a comparison."""
        return isinstance(other, Expr) and other.value is self.value

    def __hash__(self) -> int:
        return hash(self.value)

    @property
    def type(self) -> Type:
        return self.value.type

    @property
    def dtype(self) -> DType:
        return element(self.value.type)

    def apply(self, op: Op) -> Self:
        """The result of an operation that takes this expression, placed."""
        return self._like(self.emit(op))

    def _like(self, value: Value) -> Self:
        return type(self)(self.emit, value)

    def constant(self, number: float | Dim) -> Self:
        """A number of this expression's type."""
        if isinstance(number, Dim):
            return self.apply(kernel.ExtentOf(number))
        return self.apply(scalar.Constant(_literal(number, self.dtype), self.value.type))

    def operand(self, other: Number) -> Value:
        """An operand beside this expression as a value."""
        return other.value if isinstance(other, Expr) else self.constant(other).value

    def _binary(self, cls: type[scalar.Binary], other: Number) -> Self:
        if not self.dtype.is_float and isinstance(other, int) and other == _NEUTRAL.get(cls):
            return self
        return self.apply(cls(self.value, self.operand(other)))

    def _swapped(self, cls: type[scalar.Binary], other: float | Dim) -> Self:
        if not self.dtype.is_float and cls is scalar.Add and isinstance(other, int) and other == 0:
            return self
        if cls.commutative and isinstance(other, int) and other == _NEUTRAL.get(cls):
            return self._binary(cls, other)
        return self.apply(cls(self.constant(other).value, self.value))

    # Arithmetic.

    def __add__(self, other: Number) -> Self:
        return self._binary(scalar.Add, other)

    def __radd__(self, other: float | Dim) -> Self:
        return self._swapped(scalar.Add, other)

    def __sub__(self, other: Number) -> Self:
        return self._binary(scalar.Subtract, other)

    def __rsub__(self, other: float | Dim) -> Self:
        return self._swapped(scalar.Subtract, other)

    def __mul__(self, other: Number) -> Self:
        return self._binary(scalar.Multiply, other)

    def __rmul__(self, other: float | Dim) -> Self:
        return self._swapped(scalar.Multiply, other)

    def __truediv__(self, other: Number) -> Self:
        return self._binary(scalar.Divide, other)

    def __rtruediv__(self, other: float) -> Self:
        return self._swapped(scalar.Divide, other)

    def __floordiv__(self, other: Number) -> Self:
        """The quotient of integers toward zero; the divisor is not 0, and it is not `MIN // -1`."""
        return self._binary(scalar.RawDivide, other)

    def floor_divide(self, other: Number) -> Self:
        """The quotient of integers rounded down."""
        return self._binary(scalar.FloorDivide, other)

    def __mod__(self, power: int) -> Self:
        """The remainder of an integer that is not negative by a power of two."""
        assert power & (power - 1) == 0, power
        return self & (power - 1)

    def __neg__(self) -> Self:
        return self.apply(scalar.Negate(self.value))

    def __abs__(self) -> Self:
        return self.apply(scalar.Abs(self.value))

    def sqrt(self) -> Self:
        return self.apply(scalar.Sqrt(self.value))

    def exp(self) -> Self:
        return self.apply(scalar.Exp(self.value))

    def log(self) -> Self:
        return self.apply(scalar.Log(self.value))

    def cast(self, dtype: DType) -> Self:
        """The value in another dtype; itself if it has that dtype."""
        return self if self.dtype is dtype else self.apply(scalar.Cast(self.value, dtype))

    # Bits.

    def __and__(self, other: Number) -> Self:
        return self if other is True else self._binary(scalar.And, other)

    def __rand__(self, other: float) -> Self:
        return self & other if other is True else self._swapped(scalar.And, other)

    def __or__(self, other: Number) -> Self:
        return self._binary(scalar.Or, other)

    def __xor__(self, other: Number) -> Self:
        return self._binary(scalar.Xor, other)

    def __invert__(self) -> Self:
        return self.apply(scalar.Not(self.value))

    def __lshift__(self, count: Number) -> Self:
        return self._binary(scalar.RawShiftLeft, count)

    def __rshift__(self, count: Number) -> Self:
        return self._binary(scalar.RawShiftRight, count)

    # Conditions.

    def _compare(self, other: Number, predicate: str) -> Self:
        return self.apply(scalar.Compare(self.value, self.operand(other), predicate))

    def __lt__(self, other: Number) -> Self:
        return self._compare(other, "lt")

    def __le__(self, other: Number) -> Self:
        return self._compare(other, "le")

    def __gt__(self, other: Number) -> Self:
        return self._compare(other, "gt")

    def __ge__(self, other: Number) -> Self:
        return self._compare(other, "ge")

    def equals(self, other: Number) -> Self:
        return self._compare(other, "eq")

    def differs(self, other: Number) -> Self:
        return self._compare(other, "ne")


class Pointer:
    """The address of elements: `p[i]` loads one, `p[i] = x` stores one, `p + i` is the address of one."""

    __slots__ = ("dtype", "emit", "value")

    def __init__(self, emit: Builder, value: Value, dtype: DType) -> None:
        self.emit = emit
        self.value = value
        self.dtype = dtype

    def of(self, dtype: DType) -> Pointer:
        """The same address, of elements of another dtype."""
        return Pointer(self.emit, self.value, dtype)

    def _at(self, position: Index) -> Value:
        return index(self.emit, position).value

    def __add__(self, index: Index) -> Pointer:
        offset = loop.Offset(self.value, self._at(index), self.dtype)
        return Pointer(self.emit, self.emit(offset), self.dtype)

    def skip(self, bytes: Index) -> Pointer:
        """The address `bytes` bytes further."""
        return (self.of(U8) + bytes).of(self.dtype)

    def __getitem__(self, index: Index) -> Expr:
        return Expr(self.emit, self.emit(loop.Load(self.value, self._at(index), self.dtype)))

    def __setitem__(self, index: Index, element: Expr) -> None:
        self.emit.place(loop.Store(element.value, self.value, self._at(index)))

    def load(self, index: Index, lanes: int) -> Expr:
        """The register of `lanes` elements from an index on; for one lane the element."""
        if lanes == 1:
            return self[index]
        load = vec.Load(self.value, self._at(index), VectorType(self.dtype, lanes))
        return Expr(self.emit, self.emit(load))

    def store(self, index: Index, register: Expr) -> None:
        """Write the elements of a register, or one element, from an index on."""
        if isinstance(register.type, VectorType):
            self.emit.place(vec.Store(register.value, self.value, self._at(index)))
        else:
            self[index] = register

    def prefetch(self, index: Index) -> None:
        """Prefetch an element into the cache."""
        self.emit.place(loop.Prefetch(self.value, self._at(index), self.dtype))


def constant(emit: Builder, number: float, type: Type) -> Expr:
    """A number as an expression."""
    return Expr(emit, emit(scalar.Constant(_literal(number, element(type)), type)))


def index(emit: Builder, position: Index) -> Expr:
    """An index as an expression."""
    return position if isinstance(position, Expr) else constant(emit, position, INDEX)


def exprs(emit: Builder, values: Sequence[Value]) -> list[Expr]:
    """Values as expressions."""
    return [Expr(emit, value) for value in values]


def values(expressions: Sequence[Expr]) -> list[Value]:
    """Expressions as operands of an operation."""
    return [expression.value for expression in expressions]


def as_index(number: Expr) -> Expr:
    """An integer as an index. A u64 beyond i64 becomes the largest index, not a negative one."""
    if number.dtype is U64:
        number = minimum(number, MOST_INDEX)
    return number.cast(INDEX)


def minimum(one: Expr, other: Number) -> Expr:
    """The smaller of two numbers, lane by lane."""
    return one.apply(scalar.Minimum(one.value, one.operand(other)))


def maximum(one: Expr, other: Number) -> Expr:
    """The larger of two numbers, lane by lane."""
    return one.apply(scalar.Maximum(one.value, one.operand(other)))


def broadcast(number: Expr, lanes: int) -> Expr:
    """A register that holds the number in every lane; for one lane the number."""
    return number if lanes == 1 else number.apply(vec.Broadcast(number.value, lanes))


def ramp(first: Expr, lanes: int) -> Expr:
    """The register `first, first + 1, ...`; for one lane the number."""
    return first if lanes == 1 else first.apply(vec.Ramp(first.value, lanes))


def reduce_lanes(name: str, register: Expr) -> Expr:
    """The lanes of a register combined."""
    return register.apply(vec.Reduce(register.value, name))


def combine(name: str, one: Expr, other: Expr) -> Expr:
    """Two partial results of a reduction combined; `name` is one of `scalar.COMBINERS`."""
    return one.apply(scalar.COMBINERS[name](one.value, other.value))


def fma(factor: Expr, other: Expr, addend: Expr) -> Expr:
    """`factor * other + addend`; floats are rounded once."""
    if not factor.dtype.is_float:
        return factor * other + addend
    return factor.apply(scalar.Fma(factor.value, other.value, addend.value))


def dot_pairs(lhs: Expr, rhs: Expr, sum: Expr) -> Expr:
    """`sum` plus the dot product of the pairs of i16 in each lane of two registers of i32; sums wrap."""
    return lhs.apply(vec.DotPairs(lhs.value, rhs.value, sum.value))


def all_of(conditions: Iterable[Condition]) -> Condition:
    """Whether all conditions hold."""
    result: Condition = True
    for condition in conditions:
        if isinstance(condition, Expr):
            result = result & condition
        else:
            assert condition, "a condition that never holds needs no code"
    return result


def select(condition: Condition, yes: Number, no: Number) -> Expr:
    """`yes` where the condition holds, else `no`; two integers are indices."""
    if condition is True:
        assert isinstance(yes, Expr)
        return yes
    assert isinstance(condition, Expr), "a value that is never selected needs no code"
    if not isinstance(yes, Expr):
        type = no.type if isinstance(no, Expr) else INDEX
        assert not isinstance(yes, Dim)
        yes = constant(condition.emit, yes, type)
    return yes.apply(scalar.Select(condition.value, yes.value, yes.operand(no)))


def select_pointer(condition: Condition, yes: Pointer, no: Pointer) -> Pointer:
    """One of two addresses of elements of the first one's dtype."""
    if condition is True:
        return yes
    assert isinstance(condition, Expr), "a value that is never selected needs no code"
    chosen = condition.emit(scalar.Select(condition.value, yes.value, no.value))
    return Pointer(condition.emit, chosen, yes.dtype)


def _literal(number: float, dtype: DType) -> float | int | bool:
    """The number as an attribute of a constant of the dtype."""
    if dtype is BOOL:
        return bool(number)
    return float(number) if dtype.is_float else int(number)
