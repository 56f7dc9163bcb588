"""Kernels, each compiled to one piece of machine code, and `kernel.generic`, a formula for each element.

`kernel.generic` computes every element of its results by a formula of the element's index (compare MLIR's
`linalg.generic`). Its body is scalar code that loads from its inputs at computed indices; inside,
`kernel.reduce` reduces over inner indices and `kernel.stage` materializes a row that later formulas of the
same element read again (softmax is reduce, stage, reduce, stage). Products are in
`dlc.dialects.kernel.products`.

Every kernel has two forms: on tensors it has results; in destination-passing form (at plan level) its
inputs and `outs` are views and it has no results.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

import numpy as np

from dlc.dialects import scalar
from dlc.dialects.array.checks import check_places
from dlc.ir.core import OPS, Array, Block, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands, region
from dlc.ir.dims import Shape, Size
from dlc.ir.types import BOOL, INDEX, DType, TensorType, Type, ViewType, row_major_strides


def array_type(value: Value) -> TensorType:
    """The type of a value as a tensor: its own, or that of the array that a view holds."""
    match value.type:
        case TensorType() as type:
            return type
        case ViewType() as type:
            return type.tensor
        case other:
            raise AssertionError(f"{other} is not an array")


class Access(Enum):
    """The strides with which a kernel can read or write an array.

    Strides of axes of size 1 never matter.
    """

    STRIDED = "any strides"
    UNIT_STRIDE = "stride 1 along the last axis"
    CONTIGUOUS = "the strides of a row-major array"

    def allows(self, shape: Shape, strides: Shape) -> bool:
        """Whether an array of this shape may have these strides, in elements."""
        dense = row_major_strides(shape)
        axes = [k for k, size in enumerate(shape) if size != 1]
        match self:
            case Access.STRIDED:
                return True
            case Access.UNIT_STRIDE:
                last = len(shape) - 1
                return last not in axes or strides[last] == 1
            case Access.CONTIGUOUS:
                return all(strides[k] == dense[k] for k in axes)


class Kernel(Op):
    """An operation of the kernel level, on tensors or in destination form.

    In destination form the verifier checks that the kernel can read or write the strides of each view, so
    that a pass that changes the layout of an array is refused instead of giving wrong numbers.
    """

    writes: ClassVar[Access] = Access.UNIT_STRIDE
    """The strides that its results may have."""

    def reads(self, number: int) -> Access:
        """The strides that its operand `number` may have."""
        return Access.CONTIGUOUS

    @property
    def targets(self) -> Sequence[Value]:
        """The views that the results are written to, in destination form; empty in tensor form."""
        return self.operands[len(self.operands) - self.segments[-1] :]

    def result_types(self) -> tuple[TensorType, ...]:
        """The types of the results as tensors, in both forms."""
        raise NotImplementedError

    def into(self, operands: Sequence[Value], outs: Sequence[Value]) -> Kernel:
        """This kernel in destination form, on these views. The regions move to the new operation."""
        if self.regions:
            reads = self.segments[-2]
            arrays = self.formula.arguments[len(self.formula.arguments) - reads :]
            for argument, view in zip(arrays, operands[len(operands) - reads :], strict=True):
                argument.type = view.type
        attributes = dict(self.attributes)
        attributes["segments"] = (*self.segments[:-1], len(outs))
        op = object.__new__(type(self))
        Op.__init__(op, (*operands, *outs), attributes, self.take_regions(), self.location)
        return op

    @property
    def formula(self) -> Block:
        """The region whose trailing arguments stand for arrays that the kernel reads."""
        return self.regions[0]

    def add_input(self, value: Value) -> Value:
        """Read one more array; returns the argument of the formula that stands for it."""
        *sizes, inputs, outs = self.segments
        assert not outs, "inputs are added before there is a plan"
        self.attributes["segments"] = (*sizes, inputs + 1, outs)
        self.set_operands([*self.operands, value])
        return self.formula.add_argument(value.type)

    def argument_for(self, value: Value) -> Value:
        """The argument of the formula that stands for an array, which becomes an input if it is not one."""
        count = len(self.formula.arguments)
        reads = self.segments[-2]
        extras = self.operands[len(self.operands) - reads :] if reads else ()
        for position, extra in enumerate(extras):
            if extra is value:
                return self.formula.arguments[count - reads + position]
        return self.add_input(value)

    def remove_input(self, argument: Value) -> None:
        """Stop reading the array that an unused argument of the formula stands for."""
        formula = self.formula
        from_end = len(formula.arguments) - argument.index
        position = len(self.operands) - from_end
        *sizes, inputs, outs = self.segments
        self.attributes["segments"] = (*sizes, inputs - 1, outs)
        self.set_operands([v for k, v in enumerate(self.operands) if k != position])
        formula.remove_argument(argument.index)

    def infer(self) -> tuple[Type, ...]:
        types = self.result_types()
        if not self.targets:
            return types
        targets = tuple([array_type(out) for out in self.targets])
        if targets != types:
            raise self.fail(f"{self.name} writes {list(types)} into {list(targets)}")
        self._check_strides()
        return ()

    def _check_strides(self) -> None:
        """Fail if a view has strides that the kernel cannot read or write."""
        inputs = len(self.operands) - len(self.targets)
        for number, view in enumerate(self.operands):
            access = self.reads(number) if number < inputs else self.writes
            if isinstance(view.type, ViewType) and not access.allows(
                view.type.shape, view.type.strides
            ):
                raise self.fail(
                    f"operand {number} of {self.name} is {view.type} and needs {access.value}"
                )


@op("kernel.yield")
class Yield(Op):
    """End the body of a formula with the values of one element."""

    values: Sequence[Value] = operands()

    terminator = True
    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("kernel.load")
class Load(Op):
    """The element of an array at these indices, which are inside it."""

    array: Value = operand()
    indices: Sequence[Value] = operands()

    def infer(self) -> DType:
        type = array_type(self.array)
        if len(self.indices) != type.rank:
            raise self.fail(f"{len(self.indices)} indices into {type}")
        return type.dtype

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        array, *indices = inputs
        if isinstance(self.array.op, Stage):
            # A staged row belongs to one element of the kernel: it has the domain's axes in front.
            domain = enclosing(self).indices
            indices = [at.value(index) for index in domain] + indices
        if not indices:
            return array
        if not array.size:
            # A formula may load an element and not select it; an empty array has none to load.
            return np.zeros(np.broadcast_shapes(*[index.shape for index in indices]), array.dtype)
        return array[tuple([index.astype(np.intp) for index in indices])]


@op("kernel.size")
class ExtentOf(Op):
    """A symbolic size as an index."""

    size: Size = attribute()

    def infer(self) -> DType:
        return INDEX

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        return np.asarray(at.size(self.size), np.int64)


@op("kernel.check_index")
class CheckIndex(Op):
    """The index if `0 <= index <= extent - part`; otherwise the call fails and the index is taken as 0.

    `part` is the length of the slice that begins there. `decided` says that an earlier check has found the
    index to be inside.
    """

    index: Value = operand()
    extent: Size = attribute()
    part: Size = attribute(default=1)
    decided: bool = attribute(default=False)

    pure = False

    def infer(self) -> DType:
        return INDEX

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        check_places(self, inputs[0], at.size(self.extent), at.size(self.part))
        return inputs[0]


def enclosing(op: Op) -> Generic:
    """The kernel whose body contains an operation."""
    current: Op | None = op
    while current is not None and not isinstance(current, Generic):
        current = current.parent.parent if current.parent is not None else None
    assert current is not None
    return current


def grid(extents: Sequence[int], rank: int) -> list[Array]:
    """Index arrays for the last axes of `rank` axes, each shaped to broadcast along its own."""
    first = rank - len(extents)
    grids: list[Array] = []
    for k, extent in enumerate(extents):
        shape = [1] * rank
        shape[first + k] = extent
        grids.append(np.arange(extent).reshape(shape))
    return grids


class Inner(Op):
    """A formula evaluated for all inner indices of one element."""

    body: Block = region()
    extents: Shape = attribute()

    def run_inner(self, at: Evaluation) -> tuple[Array, tuple[int, ...]]:
        """The body's value at all inner indices, as new trailing axes, and their extents."""
        extents = at.shape(self.extents)
        outer = len(enclosing(self).domain) + _depth(self)

        def lift(value: Value, array: Array) -> Array:
            if isinstance(value.type, DType) and array.ndim:
                return array.reshape(array.shape + (1,) * len(extents))
            return array

        (values,) = at.run(self.body, grid(extents, outer + len(extents)), lift)
        lead = np.broadcast_shapes(values.shape, (1,) * outer + extents)
        return np.broadcast_to(values, lead), extents


def _depth(op: Op) -> int:
    """The number of inner indices around an operation."""
    depth = 0
    around = op.parent.parent if op.parent is not None else None
    while isinstance(around, Inner):
        depth += len(around.extents)
        around = around.parent.parent if around.parent is not None else None
    return depth


@op("kernel.reduce")
class Reduce(Inner):
    """The body's value combined over all inner indices by a scalar operation such as `add`.

    It starts from the identity (0, 1, the lowest or highest value), which is the result of an empty one.
    """

    combine: str = attribute()

    def infer(self) -> Type:
        (value,) = self.body.terminator.operands
        if f"scalar.{self.combine}" not in OPS:
            raise self.fail(
                f"{self.combine!r} combines nothing; use add, multiply, maximum, minimum"
            )
        return value.type

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        values, extents = self.run_inner(at)
        axes = tuple(range(values.ndim - len(extents), values.ndim))
        reduce = COMBINE[self.combine]
        start = np.asarray(identity(self.combine, scalar.element(self.result.type)), values.dtype)
        return np.asarray(reduce.reduce(values, axis=axes, initial=start, dtype=values.dtype))


COMBINE: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def identity(combine: str, dtype: DType) -> bool | int | float:
    """The identity of a combination: 0 for add, -inf for maximum of floats, and so on."""
    match combine:
        case "add" | "or":
            return False if dtype is BOOL else 0.0 if dtype.is_float else 0
        case "multiply":
            return 1.0 if dtype.is_float else 1
        case "and":
            return True if dtype is BOOL else -1 if dtype.kind == "int" else (1 << dtype.bits) - 1
        case "maximum" | "minimum":
            lowest = combine == "maximum"
            if dtype.is_float:
                return float("-inf") if lowest else float("inf")
            if dtype is BOOL:
                return not lowest
            signed = dtype.kind != "uint"
            low = -(1 << (dtype.bits - 1)) if signed else 0
            high = (1 << (dtype.bits - signed)) - 1
            return low if lowest else high
        case _:
            raise AssertionError(combine)


@op("kernel.stage")
class Stage(Inner):
    """A row of values, one for each inner index, that later parts of the same element can load."""

    def infer(self) -> TensorType:
        (value,) = self.body.terminator.operands
        assert isinstance(value.type, DType)
        return TensorType(value.type, self.extents)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        values, extents = self.run_inner(at)
        domain = at.shape(enclosing(self).domain)
        return np.broadcast_to(values, domain + extents)


@op("kernel.generic")
class Generic(Kernel):
    """Computes every element of its results by a formula of the element's index.

    The body has an index for each axis of the domain and an argument for each input. It yields, for
    each result, a scalar (the result has the shape of the domain) or a staged row (the result has
    its extents behind those of the domain).
    """

    inputs: Sequence[Value] = operands()
    outs: Sequence[Value] = operands()
    body: Block = region()
    domain: Shape = attribute()

    isolated = True
    writes = Access.STRIDED

    def reads(self, number: int) -> Access:
        return Access.STRIDED

    @property
    def indices(self) -> list[Value]:
        """The index arguments of the body."""
        return self.body.arguments[: len(self.domain)]

    @property
    def arrays(self) -> list[Value]:
        """The arguments of the body that stand for the inputs."""
        return self.body.arguments[len(self.domain) :]

    @property
    def is_map(self) -> bool:
        """Whether each element is a formula of elements, without reductions, staged rows or checks."""
        return not any(isinstance(op, Inner | CheckIndex) for op in self.body)

    @property
    def adds_floats(self) -> bool:
        """Whether the bits of its results depend on the order in which it combines elements."""
        return any(
            isinstance(op, Reduce)
            and op.combine in ("add", "multiply")
            and scalar.element(op.result.type).is_float
            for op in self.walk()
        )

    def fold(self) -> Value | None:
        """Its input, if it is a copy."""
        (first, *more) = self.body
        if not (isinstance(first, Load) and len(more) == 1 and len(self.inputs) == 1):
            return None
        same = list(first.indices) == self.indices and more[0].operands[0] is first.result
        copied = self.inputs[0]
        return copied if same and not self.outs and copied.type is self.results[0].type else None

    def result_types(self) -> tuple[TensorType, ...]:
        if [argument.type for argument in self.arrays] != [value.type for value in self.inputs]:
            raise self.fail(f"{self.name}: the body takes {[a.type for a in self.arrays]}")
        types: list[TensorType] = []
        for value in self.body.terminator.operands:
            match value.type:
                case DType() as dtype:
                    types.append(TensorType(dtype, self.domain))
                case TensorType(dtype, extents):
                    types.append(TensorType(dtype, self.domain + extents))
                case other:
                    raise self.fail(f"{self.name} yields a {other}")
        return tuple(types)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        domain = at.shape(self.domain)
        grids = grid(domain, len(domain))
        values = at.run(self.body, [*grids, *inputs[: len(self.inputs)]])
        types = self.result_types()
        return tuple(
            [
                np.array(np.broadcast_to(value, at.shape(type.shape)), order="C")
                for value, type in zip(values, types, strict=True)
            ]
        )


FEW = 16
"""Registers are worth nothing along an axis that is known to be shorter."""


def reduces_along_memory(op: Generic) -> bool:
    """Whether a reduction is best made along memory: over neighbouring elements of an array (loop index on
    the last axis), rather than for neighbouring results together.

    A sum of each column of a matrix times a number for each row reads neighbours along the vector of
    numbers; but along the columns the matrix is contiguous, and the numbers are the same for all of them.
    """
    return any(
        isinstance(inner, Reduce) and inner.extents and _is_along_memory(op, inner)
        for inner in op.walk()
    )


def _is_along_memory(op: Generic, reduce: Reduce) -> bool:
    loads = [load for load in reduce.body if isinstance(load, Load) and load.indices]
    step = reduce.body.arguments[-1]
    if not any(counts_up(load.indices[-1], step) for load in loads):
        return False
    if not op.domain or _is_short(op.domain[-1]):
        return True
    along, across = _jumps(loads, step), _jumps(loads, op.indices[-1])
    return along < across or (along == across and not _is_short(reduce.extents[-1]))


def _is_short(extent: Size) -> bool:
    return isinstance(extent, int) and extent < FEW


def _jumps(loads: Sequence[Load], index: Value) -> int:
    """How many loads read elements far from each other as an index counts up."""
    moving = [[place for place in load.indices if _follows(place, index)] for load in loads]
    return sum(
        bool(places) and not (places == [load.indices[-1]] and counts_up(places[0], index))
        for load, places in zip(loads, moving, strict=True)
    )


def _follows(position: Value, index: Value) -> bool:
    """Whether a position is computed from an index."""
    return position is index or (
        position.op is not None and any(_follows(value, index) for value in position.op.operands)
    )


def counts_up(position: Value, index: Value) -> bool:
    """Whether a position is the index, or the sum of the index and something else."""
    return position is index or (
        isinstance(position.op, scalar.Add) and index in position.op.operands
    )
