"""What addresses in a kernel for a GPU are surely multiples of: 16 bytes are moved at once where they are.

A register is loaded or stored by one instruction only where its address is a multiple of its size. That
follows from where the plan puts arrays, from sizes that are multiples of something, and from how places are
computed; nothing is tested when the kernel runs.
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
    """What the address of a view's first element is a multiple of, in bytes."""
    found = view.op
    if not isinstance(found, mem.View):
        return ACCESS
    sizes = [found.offset, *found.steps]
    return gcd(start_of(found.root), *[known_multiple(size) for size in sizes])


def in_units(view: Value, axis: int, unit: int) -> bool:
    """Whether a view consists of units of so many bytes, whole ones, each along one axis."""
    type = view.type
    assert isinstance(type, ViewType)
    others = [stride for k, stride in enumerate(type.strides) if k != axis]
    return (
        type.strides[axis] == 1
        and all(divides(unit // type.dtype.bytes, size) for size in (type.shape[axis], *others))
        and start_of(view) % unit == 0
    )


def unit_of(view: Value) -> int:
    """What the addresses of the rows of a view are multiples of, in bytes, up to those of an access."""
    type = view.type
    assert isinstance(type, ViewType)
    rows = [type.dtype.bytes * known_multiple(stride) for stride in type.strides[:-1]]
    return gcd(ACCESS, start_of(view), *rows)


def align_registers(function: simt.Func, arguments: Sequence[int]) -> None:
    """Note at each access to a register what its address is a multiple of.

    `arguments` says of each argument of the function what it is a multiple of, pointers in bytes.
    """
    multiples = _Multiples(dict(zip(function.body.arguments, arguments, strict=True)))
    for op in function.walk():
        if isinstance(op, vec.Load | vec.Store):
            type = op.type if isinstance(op, vec.Load) else op.value.type
            assert isinstance(type, VectorType)
            size = type.dtype.bytes
            known = gcd(multiples.address(op.pointer, op.index, size), ACCESS, size * type.lanes)
            if known > size:
                op.attributes["alignment"] = known


class _Multiples:
    """What values are multiples of, found from what computes them; 0 is a multiple of everything."""

    def __init__(self, known: dict[Value, int]) -> None:
        self._known = known

    def address(self, pointer: Value, index: Value, size: int) -> int:
        """Of the address of an element of so many bytes."""
        return gcd(self.of(pointer), self.of(index) * size)

    def of(self, value: Value) -> int:
        """Of a value; of a pointer in bytes."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._find(value)
        return found

    def _find(self, value: Value) -> int:
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
                known = self.of(source)
                return known & -known  # the bits above are cut off
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
        """The index of a loop goes from multiple to multiple; what it carries begins and goes on as one."""
        around: Op | None = value.block.parent if value.block is not None else None
        if not isinstance(around, loop.For):
            return 1
        if value.index == 0:
            return gcd(self.of(around.lower), self.of(around.step))
        self._known[value] = 1  # so much is sure where the next one is made of it
        carried = value.index - 1
        following = around.body.terminator.operands[carried]
        return gcd(self.of(around.initial[carried]), self.of(following))
