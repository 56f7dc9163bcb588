"""The code of one kernel: loops, branches and memory, close to the machine but without its registers.

Values are scalars (`f32`, `index`, ...), registers (`vector<8xf32>`) and pointers. Arithmetic on scalars
and registers is `dlc.dialects.scalar`; what concerns registers only is `dlc.dialects.vec`. A pointer
has no element type: each access names one, and indices count elements of it. bools are bytes in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.loop.callees import CALLEES, imported
from dlc.dialects.loop.memory import as_int, machine
from dlc.ir.core import Array, Block, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands, region
from dlc.ir.types import BOOL, INDEX, POINTER, DType, Type
from dlc.runtime.abi import Status
from dlc.runtime.calling.status import failure

FAILURES = (Status.INDEX, Status.RANGE, Status.BOUND)
"""How a kernel can fail."""


@op("loop.func")
class Func(Op):
    """A kernel: its arguments are pointers and sizes, then the first tile and the one after the last."""

    body: Block = region()
    sym_name: str = attribute()

    pure = False
    isolated = True

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("loop.return")
class Return(Op):
    """End a kernel."""

    terminator = True
    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("loop.yield")
class Yield(Op):
    """End a loop body or a branch with the values it hands on."""

    values: Sequence[Value] = operands()

    terminator = True
    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("loop.for")
class For(Op):
    """Run the body for `lower, lower + step, ...` below `upper`; carried values go round.

    `parallel` says that iterations do not depend on each other.
    """

    lower: Value = operand()
    upper: Value = operand()
    step: Value = operand()
    initial: Sequence[Value] = operands()
    body: Block = region()
    parallel: bool = attribute(default=False)

    pure = False

    def infer(self) -> tuple[Type, ...]:
        types = tuple([value.type for value in self.initial])
        if tuple([argument.type for argument in self.body.arguments]) != (INDEX, *types):
            raise self.fail(f"the body of the loop takes {[a.type for a in self.body.arguments]}")
        return types

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        lower, upper, step, *carried = inputs
        for position in range(as_int(lower), as_int(upper), as_int(step)):
            carried = list(at.run(self.body, [np.asarray(position, np.int64), *carried]))
        return tuple(carried)


@op("loop.while")
class While(Op):
    """Run `body` as long as `condition` yields true; carried values go round."""

    initial: Sequence[Value] = operands()
    condition: Block = region()
    body: Block = region()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        (test,) = self.condition.terminator.operands
        if test.type is not BOOL:
            raise self.fail(f"the condition of the loop is a {test.type}")
        return tuple([value.type for value in self.initial])

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        carried = inputs
        while at.run(self.condition, carried)[0]:
            carried = at.run(self.body, carried)
        return carried


@op("loop.if")
class If(Op):
    """Run one of two branches; both yield values of the same types."""

    condition: Value = operand()
    then: Block = region()
    otherwise: Block = region()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        yes, no = (
            tuple([value.type for value in block.terminator.operands])
            for block in (self.then, self.otherwise)
        )
        if yes != no or self.condition.type is not BOOL:
            raise self.fail(f"the branches yield {list(yes)} and {list(no)}")
        return yes

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        return at.run(self.then if inputs[0] else self.otherwise, [])


@op("loop.offset")
class Offset(Op):
    """The pointer moved by `index` elements of a dtype."""

    pointer: Value = operand()
    index: Value = operand()
    dtype: DType = attribute()

    def infer(self) -> Type:
        return POINTER

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        pointer, index = inputs
        return np.asarray(as_int(pointer) + as_int(index) * self.dtype.bytes, np.int64)


@op("loop.load")
class Load(Op):
    """The element at `pointer[index]`. It has no effect, but what it reads may change."""

    pointer: Value = operand()
    index: Value = operand()
    dtype: DType = attribute()

    pure = False

    def infer(self) -> Type:
        return self.dtype

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        pointer, index = inputs
        return machine(at).read(self, pointer, index, self.dtype, 1).reshape(())


@op("loop.store")
class Store(Op):
    """Write a scalar to `pointer[index]`."""

    value: Value = operand()
    pointer: Value = operand()
    index: Value = operand()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        value, pointer, index = inputs
        machine(at).write(self, pointer, index, value)
        return ()


@op("loop.prefetch")
class Prefetch(Op):
    """Say that `pointer[index]` is wanted soon. It changes nothing, and may be anywhere."""

    pointer: Value = operand()
    index: Value = operand()
    dtype: DType = attribute()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        return ()


@op("loop.buffer")
class Buffer(Op):
    """Room for a fixed number of elements that lives as long as the kernel runs, 64-byte aligned."""

    elements: int = attribute()
    dtype: DType = attribute()

    pure = False

    def infer(self) -> Type:
        return POINTER

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return machine(at).buffer(self, self.elements * self.dtype.bytes)


@op("loop.call")
class Call(Op):
    """Call an imported function on the allow-list, with pointers and scalars; its result is not used."""

    arguments: Sequence[Value] = operands()
    callee: str = attribute()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        CALLEES[self.callee](machine(at), self, *inputs)
        return ()


@op("loop.imported")
class Imported(Op):
    """A word of the table of imports: a handle, or a number that the loader of the code knows."""

    symbol: str = attribute()

    def infer(self) -> Type:
        return INDEX

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return imported(machine(at), self.symbol)


@op("loop.fail")
class Fail(Op):
    """Note that the call failed at this tile, with two numbers that say how; execution goes on."""

    tile: Value = operand()
    first: Value = operand()
    second: Value = operand()
    code: int = attribute()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        if self.code not in FAILURES:
            raise self.fail(f"{self.code} is not a way in which a kernel fails")
        return ()

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        first, second = (int(np.ravel(value)[0]) for value in inputs[1:])
        raise failure(Status(self.code), first, second, self.location.own.place)
