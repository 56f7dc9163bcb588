"""Alignment analysis of GPU kernels: the largest known divisors of addresses, for accesses of 16 bytes.

A register is loaded or stored by one instruction only where its address is a multiple of its size. That
follows from the offsets of arrays in the plan, from known divisors of sizes, and from how indices are
computed (LLVM: known bits and alignment assumptions); nothing is tested when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from dlc.dialects import loop, mem, scalar, simt, vec
from dlc.dialects.scalar import element
from dlc.ir.core import Op, Value
from dlc.ir.dims import divides, known_multiple
from dlc.ir.types import VectorType, ViewType
from dlc.target.gpu import ACCESS


def start_of(view: Value) -> int:
    """The alignment of a view's first element, in bytes."""
    op = view.op
    if not isinstance(op, mem.View):
        return ACCESS
    sizes = [op.offset, *op.steps]
    return gcd(start_of(op.root), *[known_multiple(size) for size in sizes])


def in_units(view: Value, axis: int, unit: int) -> bool:
    """Whether a view consists of whole aligned units of `unit` bytes along one axis."""
    type = view.type
    assert isinstance(type, ViewType)
    others = [stride for k, stride in enumerate(type.strides) if k != axis]
    return (
        type.strides[axis] == 1
        and all(divides(unit // type.dtype.bytes, size) for size in (type.shape[axis], *others))
        and start_of(view) % unit == 0
    )


def unit_of(view: Value) -> int:
    """The alignment of the rows of a view in bytes, at most that of the widest access."""
    type = view.type
    assert isinstance(type, ViewType)
    rows = [type.dtype.bytes * known_multiple(stride) for stride in type.strides[:-1]]
    return gcd(ACCESS, start_of(view), *rows)


def align_registers(function: simt.Func, arguments: Sequence[int]) -> None:
    """Note the alignment of each vector load and store of a function.

    `arguments` has a divisor of each argument of the function, for pointers in bytes.
    """
    multiples = _Multiples(dict(zip(function.body.arguments, arguments, strict=True)))
    for op in function.walk():
        if isinstance(op, vec.Load | vec.Store):
            type = op.type if isinstance(op, vec.Load) else op.value.type
            assert isinstance(type, VectorType)
            size = type.dtype.bytes
            multiple = gcd(multiples.address(op.pointer, op.index, size), ACCESS, size * type.lanes)
            if multiple > size:
                op.attributes["alignment"] = multiple


class _Multiples:
    """Known divisors of values, from the operations that compute them; 0 is a multiple of everything."""

    def __init__(self, multiple: dict[Value, int]) -> None:
        self._multiples = multiple

    def address(self, pointer: Value, index: Value, size: int) -> int:
        """The divisor of the address of an element of `size` bytes."""
        return gcd(self.of(pointer), self.of(index) * size)

    def of(self, value: Value) -> int:
        """The divisor of a value; of a pointer in bytes."""
        multiple = self._multiples.get(value)
        if multiple is None:
            multiple = self._multiples[value] = self._compute(value)
        return multiple

    def _compute(self, value: Value) -> int:
        match value.op:
            case scalar.Constant(value=int() as number):
                return abs(number)
            case scalar.Add() | scalar.Subtract() | scalar.Minimum() | scalar.Maximum() as op:
                return gcd(*[self.of(operand) for operand in op.operands])
            case scalar.Select(yes=yes, no=no):
                return gcd(self.of(yes), self.of(no))
            case scalar.Multiply(lhs=lhs, rhs=rhs):
                return self.of(lhs) * self.of(rhs)
            case scalar.Cast(source=source) if element(source.type).kind != "float":
                multiple = self.of(source)
                return multiple & -multiple  # the bits above are cut off
            case loop.Offset(pointer=pointer, index=index, dtype=dtype):
                return self.address(pointer, index, dtype.bytes)
            case simt.Shared():
                return ACCESS
            case loop.For() as op:
                return self.of(op.body.arguments[1 + value.index])
            case None:
                return self._of_argument(value)
            case _:
                return 1

    def _of_argument(self, value: Value) -> int:
        """The divisor of a loop's index, or of a carried value from its initial and its next one."""
        parent: Op | None = value.block.parent if value.block is not None else None
        if not isinstance(parent, loop.For):
            return 1
        if value.index == 0:
            return gcd(self.of(parent.lower), self.of(parent.step))
        self._multiples[value] = 1  # assumed where the next value is computed from this one
        carried = value.index - 1
        next_value = parent.body.terminator.operands[carried]
        return gcd(self.of(parent.initial[carried]), self.of(next_value))
