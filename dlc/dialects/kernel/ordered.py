"""Kernels without a formula, whose elements depend on each other: scans, sorts, scatters, updates, nonzero.

As in `dlc.dialects.kernel.generic`, each has a form on tensors and a destination form on views.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.dialects.array.checks import DECIDED
from dlc.dialects.array.index import MODES, check_range, in_front, in_order
from dlc.dialects.array.order import sorting
from dlc.dialects.array.pieces import placed
from dlc.dialects.kernel.generic import COMBINE, Kernel, array_type, identity
from dlc.dialects.measured import Measuring, nonzero_indices
from dlc.ir.core import Array, Evaluation, Value
from dlc.ir.define import attribute, op, operands
from dlc.ir.dims import Size, symbol
from dlc.ir.types import BOOL, I64, TensorType


@op("kernel.prefix_scan")
class PrefixScan(Kernel):
    """Prefix scan along an axis with a scalar operation such as `add`, inclusive unless `exclusive`.

    With `reverse` it runs from the last element to the first.
    """

    inputs: Sequence[Value] = operands(doc="the source")
    outs: Sequence[Value] = operands()
    combine: str = attribute()
    axis: int = attribute()
    reverse: bool = attribute(default=False)
    exclusive: bool = attribute(default=False)

    def result_types(self) -> tuple[TensorType, ...]:
        (source,) = self.inputs
        if self.combine not in COMBINE:
            raise self.fail(f"{self.combine!r} combines nothing; use one of {sorted(COMBINE)}")
        return (array_type(source),)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        source = np.flip(inputs[0], self.axis) if self.reverse else inputs[0]
        with np.errstate(all="ignore"):
            totals = COMBINE[self.combine].accumulate(source, self.axis, dtype=source.dtype)
        if self.exclusive:
            first = identity(self.combine, array_type(self.inputs[0]).dtype)
            totals = _shifted(totals, self.axis, first)
        return np.flip(totals, self.axis) if self.reverse else totals


def _shifted(array: Array, axis: int, first: float) -> Array:
    """The elements shifted by one along the axis, with `first` in front."""
    result = np.empty_like(array)
    moved, source = np.moveaxis(result, axis, 0), np.moveaxis(array, axis, 0)
    moved[:1] = np.asarray(first, array.dtype)
    moved[1:] = source[:-1]
    return result


@op("kernel.sort")
class Sort(Kernel):
    """The first `count` keys in ascending (or `descending`) order, and the other inputs in the same order.

    The sort is stable; NaN compares as the largest number.
    """

    inputs: Sequence[Value] = operands(doc="the keys, then tensors of the same shape")
    outs: Sequence[Value] = operands()
    axis: int = attribute()
    count: Size = attribute()
    descending: bool = attribute(default=False)

    def result_types(self) -> tuple[TensorType, ...]:
        types = [array_type(value) for value in self.inputs]
        if any(type.shape != types[0].shape for type in types):
            raise self.fail(f"{self.name} takes tensors of one shape, found {types}")
        front, behind = types[0].shape[: self.axis], types[0].shape[self.axis + 1 :]
        return tuple([type.with_shape((*front, self.count, *behind)) for type in types])

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        sources = inputs[: len(self.inputs)]
        dtype = array_type(self.inputs[0]).dtype
        order = sorting(sources[0], dtype, self.axis, descending=self.descending)
        first = order.take(range(at.size(self.count)), self.axis)
        return tuple([np.take_along_axis(source, first, self.axis) for source in sources])


@op("kernel.scatter")
class Scatter(Kernel):
    """The target with updates written to, or combined with, the elements at the given indices.

    Updates apply in row-major order of the index tensors, which index the axes `axes`. An index outside
    its axis fails the call.
    """

    inputs: Sequence[Value] = operands(doc="the target, the updates, an index tensor for each axis")
    outs: Sequence[Value] = operands()
    axes: tuple[int, ...] = attribute()
    mode: str = attribute(doc="set, add, multiply, max or min")
    decided: bool = attribute(default=False, doc=DECIDED)

    def result_types(self) -> tuple[TensorType, ...]:
        target, updates, *indices = [array_type(value) for value in self.inputs]
        rest = [size for axis, size in enumerate(target.shape) if axis not in self.axes]
        expected = target.with_shape((*indices[0].shape, *rest))
        if updates != expected or self.mode not in MODES or len(indices) != len(self.axes):
            raise self.fail(f"{self.name} needs updates of {expected}, found {updates}")
        return (target,)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        target, updates, *indices = inputs[: len(self.inputs)]
        check_range(self, indices, self.axes, target.shape)
        result = target.copy()
        positions = tuple([index.astype(np.int64) for index in indices])
        in_order(self.mode, in_front(result, self.axes), positions, updates)
        return result


@op("kernel.update")
class Update(Kernel):
    """The target with a slice, from a start along each axis on, replaced by the update.

    In place, over the target, it writes the slice only. An update that is not inside the target fails the
    call.
    """

    inputs: Sequence[Value] = operands(doc="the target, the update, an i64 start for each axis")
    outs: Sequence[Value] = operands()
    decided: bool = attribute(default=False, doc=DECIDED)

    def result_types(self) -> tuple[TensorType, ...]:
        target, update, *starts = [array_type(value) for value in self.inputs]
        if update.rank != target.rank or len(starts) != target.rank:
            raise self.fail(f"{self.name} puts {update} at {len(starts)} starts into {target}")
        return (target,)

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array:
        target, update, *starts = inputs[: len(self.inputs)]
        result = target.copy()
        result[placed(self, starts, update.shape, target.shape)] = update
        return result


@op("kernel.nonzero")
class NonZero(Kernel, Measuring):
    """The indices of the elements that are true, `[dim, rank]` in row-major order, and their count.

    `dim` names the count; a call with more than `bound` of them fails.
    """

    inputs: Sequence[Value] = operands(doc="the source, of bools")
    outs: Sequence[Value] = operands()
    dim: str = attribute()
    bound: Size = attribute()

    @property
    def dim_name(self) -> str:
        """The dim of the rows."""
        return self.dim

    @property
    def limit(self) -> Size:
        """The largest count that there is storage for."""
        return self.bound

    def result_types(self) -> tuple[TensorType, ...]:
        source = array_type(self.inputs[0])
        if source.dtype is not BOOL:
            raise self.fail(f"{self.name} takes bools, found {source}")
        if not self.dim.isidentifier():
            raise self.fail(f"{self.dim!r} is not a name of a dim")
        return TensorType(I64, (symbol(self.dim), source.rank)), TensorType(I64)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        return nonzero_indices(self, inputs[0], at.size(self.bound), at)
