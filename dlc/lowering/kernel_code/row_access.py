"""Analysis of a generic kernel's accesses to rows: staged ones, and those that reductions walk along."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import kernel, scalar
from dlc.dialects.expr import Expr, Index
from dlc.dialects.mem import same_place
from dlc.ir.core import Block, Op, Value
from dlc.ir.types import DType, TensorType
from dlc.lowering.kernel_code.body import Body, Point, Row
from dlc.lowering.kernel_code.lanes import Uniform

NARROW = 4
"""Columns that are written one after the other: the channels of pictures."""


def element_of(op: kernel.Stage) -> DType:
    """The dtype of a staged row."""
    type = op.result.type
    assert isinstance(type, TensorType)
    return type.dtype


def has_stage(block: Block) -> bool:
    """Whether a formula stages rows."""
    return any(isinstance(op, kernel.Stage) for op in block)


def checks_depend_on(op: kernel.Generic, indices: Sequence[Value]) -> bool:
    """Whether some index that is checked follows from these."""
    varying = set(indices)
    for inner in op.walk():
        if inner is not op and any(value in varying for value in inner.operands):
            if isinstance(inner, kernel.CheckIndex):
                return True
            varying.update(inner.results)
    return False


def turned_arrays(op: kernel.Generic) -> list[Value]:
    """What a formula reads along the last axis but one of its domain, where it writes along the last."""
    if len(op.domain) < 2 or not op.is_map:
        return []
    row, column = op.indices[-2:]
    loads = (load for load in op.body if isinstance(load, kernel.Load) and load.indices)
    return [load.array for load in loads if load.indices[-1] is row and column in load.indices]


def is_narrow(op: kernel.Generic) -> bool:
    """Whether a formula has few columns, and reads along its rows where it writes along the columns."""
    if len(op.domain) < 2 or not op.is_map or checks_depend_on(op, op.indices[-2:]):
        return False
    columns = op.domain[-1]
    if not isinstance(columns, int) or not 1 < columns <= NARROW:
        return False
    row, column = op.indices[-2:]
    loads = (load for load in op.body if isinstance(load, kernel.Load) and load.indices)
    return any(column in load.indices and _follows(load.indices[-1], row) for load in loads)


def _follows(place: Value, index: Value) -> bool:
    """Whether a place is the index, moved and kept within bounds perhaps."""
    match place.op:
        case scalar.Add() | scalar.Subtract() | scalar.Minimum() | scalar.Maximum() as op:
            return any(_follows(operand, index) for operand in op.operands)
        case _:
            return place is index


def dense_strides(extents: Sequence[Expr]) -> tuple[Index, ...]:
    """The strides of a row-major array."""
    strides: list[Index] = [1] * len(extents)
    for axis in range(len(extents) - 2, -1, -1):
        strides[axis] = extents[axis + 1] * strides[axis + 1]
    return tuple(strides)


def row_in_result(body: Body, op: kernel.Generic, stage: kernel.Stage, point: Point) -> Row | None:
    """The place of a staged row in the result that it is; None if it is not a result."""
    yielded = op.body.terminator.operands
    if stage.result not in yielded:
        return None
    view = len(op.inputs) + yielded.index(stage.result)
    indices = [point.lane(value) for value in op.indices]
    address = body.address(point, indices, body.strides(view)[: len(indices)])
    assert isinstance(address, Uniform)
    pointer = body.writer.pointer(view).of(element_of(stage)) + address.value
    return Row(pointer, tuple(body.strides(view)[len(indices) :]))


def before_results(op: kernel.Generic) -> tuple[list[Op], list[Op]]:
    """The operations that folds and rows need, these included, and those that only results need."""
    body = [inner for inner in op.body if not inner.terminator]
    needed: set[Op] = set()
    for inner in reversed(body):
        if isinstance(inner, kernel.Inner) or not needed.isdisjoint(_users(inner)):
            needed.add(inner)
    return [i for i in body if i in needed], [i for i in body if i not in needed]


def _users(op: Op) -> set[Op]:
    """The operations of the same block that use a result, or have one inside that does."""
    found: set[Op] = set()
    for result in op.results:
        for user in result.uses:
            at: Op | None = user
            while at is not None and at.parent is not op.parent:
                at = at.parent.parent if at.parent is not None else None
            if at is not None:
                found.add(at)
    return found


def read_where_it_writes(op: kernel.Generic, ops: Sequence[Op]) -> bool:
    """Whether some of the operations of a kernel in destination form load what a result lies over.

    Where threads share an element, one of them might write it before another has read it.
    """
    loaded = {load.array for inner in ops for load in inner.walk() if isinstance(load, kernel.Load)}
    views = [view for view, array in zip(op.inputs, op.arrays, strict=True) if array in loaded]
    return any(same_place(view, out) for view in views for out in op.outs)
