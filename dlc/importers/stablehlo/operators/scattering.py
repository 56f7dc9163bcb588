"""Scatters: slices of an operand at computed starts, updated. A slice that is not inside is left alone."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import reshape, transpose
from dlc.dialects.nn.rows import in_dtype, numbers
from dlc.importers.stablehlo.facts import IndexNumbers, Region
from dlc.importers.stablehlo.node_context import Importer, Made, NodeContext
from dlc.importers.stablehlo.operators.formulas import formulas
from dlc.importers.stablehlo.operators.gathering import Indexed, clamped
from dlc.importers.stablehlo.operators.reductions import combination, identity
from dlc.ir.core import Value
from dlc.ir.dims import Size
from dlc.ir.types import BOOL, I64, DType

MODES = {"add": "add", "multiply": "multiply", "maximum": "max", "minimum": "min"}
ON_BOOLS = {"or": "max", "and": "min"}


def _scatter(context: NodeContext) -> Made:
    count = len(context.operands) // 2
    if count != 1:
        raise context.unsupported("of several tensors at once is not imported")
    target, indices, updates = context.operands
    given = context.given("scatter_dimension_numbers")
    assert isinstance(given, IndexNumbers)
    found = formulas(context.region())
    if found == (("argument", 0),) or 0 in tensor_type(target).shape:
        return target
    if 0 in tensor_type(updates).shape:
        return target
    return _Scatter(context, target, indices, updates, given).run()


class _Scatter:
    def __init__(
        self,
        context: NodeContext,
        target: Value,
        indices: Value,
        updates: Value,
        given: IndexNumbers,
    ) -> None:
        self.context = context
        self.emit = context.emit
        self.target = target
        type = tensor_type(target)
        sizes = _slice_sizes(type.rank, tensor_type(updates).shape, given)
        self.indexed = Indexed(context, type, indices, given, sizes)
        self.updates = self._laid_out(updates)

    def run(self) -> Value:
        """The updated target."""
        context, type = self.context, tensor_type(self.target)
        mode = _mode(context.region(), type.dtype)
        invalid = self._invalid()
        if mode is None:
            if not context.given("unique_indices") or invalid is not None:
                raise context.unsupported("by such a function is not imported")
            return self._at_unique()
        if mode == "set" and invalid is not None:
            return self._with_scratch(invalid)
        if invalid is not None:
            neutral = identity(_kind(mode), type.dtype)
            self._replace(invalid, neutral or 0)
        unique = bool(context.given("unique_indices")) and invalid is None
        return self._put(self.target, self._indices(), mode, unique=unique)

    def _laid_out(self, updates: Value) -> Value:
        """The updates with the axes of the batch, of the parts of slices, and of what is taken whole."""
        window = self.indexed.numbers.window
        rank = tensor_type(updates).rank
        batch = [axis for axis in range(rank) if axis not in window]
        laid = self.indexed.laid_out()
        rising = sorted(laid)
        return transpose(
            self.emit, updates, (*batch, *[window[rising.index(axis)] for axis in laid])
        )

    def _invalid(self) -> Value | None:
        """Which slices are not inside the target; None where all surely are."""
        found: Value | None = None
        emit = self.emit
        for axis, start in self.indexed.starts.items():
            last = self.indexed.last(axis)
            if self._is_inside(start, last):
                continue
            low = emit(array.Compare(start, array.constant_like(emit, 0, start), "lt"))
            limit = numbers(emit, last, tensor_type(start))
            wrong = emit(array.Or(low, emit(array.Compare(start, limit, "gt"))))
            found = wrong if found is None else emit(array.Or(found, wrong))
        return found

    def _is_inside(self, start: Value, last: Size) -> bool:
        known = self.context.known.integers(start)
        return (
            known is not None
            and isinstance(last, int)
            and bool(((known >= 0) & (known <= last)).all())
        )

    def _indices(self) -> list[Value]:
        found: list[Value] = []
        for axis in self.indexed.axes:
            start = self.indexed.starts.get(axis)
            if start is not None:
                start = clamped(self.context, start, self.indexed.last(axis))
            found.append(in_dtype(self.emit, self.indexed.index(axis, start), I64))
        return found

    def _replace(self, mask: Value, number: float) -> None:
        """Put a number in place of the updates of some slices."""
        emit, type = self.emit, tensor_type(self.updates)
        rank = len(self.indexed.batch)
        wide = emit(array.Broadcast(mask, type.shape, tuple(range(rank))))
        neutral = array.fill(emit, number, type)
        self.updates = emit(array.Select(wide, neutral, self.updates))

    def _put(self, target: Value, indices: Sequence[Value], mode: str, *, unique: bool) -> Value:
        axes = tuple(self.indexed.axes)
        if axes:
            return self.emit(
                array.Scatter(target, self.updates, tuple(indices), axes, mode, unique)
            )
        # Every slice is the whole target: it is the only row of a longer one.
        whole = reshape(self.emit, target, (1, *tensor_type(target).shape))
        row = array.fill(
            self.emit, 0, tensor_type(target).with_dtype(I64).with_shape(self.indexed.batch)
        )
        updated = self.emit(array.Scatter(whole, self.updates, (row,), (0,), mode))
        return reshape(self.emit, updated, tensor_type(target).shape)

    def _with_scratch(self, invalid: Value) -> Value:
        """Slices that are not inside are written to a row behind the target, which is then cut off."""
        emit, target = self.emit, self.target
        shape = tensor_type(target).shape
        indices, axes = self._indices(), self.indexed.axes
        if not axes:
            target, axes = reshape(emit, target, (1, *shape)), [0]
            indices = [
                array.fill(
                    emit, 0, tensor_type(target).with_dtype(I64).with_shape(self.indexed.batch)
                )
            ]
        type, first = tensor_type(target), axes[0]
        zero = array.fill(emit, 0, type.with_shape(()))
        none = (0,) * type.rank
        one_more = tuple([int(axis == first) for axis in range(type.rank)])
        longer = emit(array.Pad(target, zero, none, one_more, none))
        place = tensor_type(indices[0])
        mask = emit(array.Broadcast(invalid, place.shape, tuple(range(len(self.indexed.batch)))))
        behind = numbers(emit, type.shape[first], place)
        indices[0] = emit(array.Select(mask, behind, indices[0]))
        updated = emit(array.Scatter(longer, self.updates, tuple(indices), tuple(axes), "set"))
        kept = array.slice_axis(emit, updated, first, 0, type.shape[first])
        return reshape(emit, kept, shape)

    def _at_unique(self) -> Value:
        """By any function, where no element is updated twice."""
        emit, axes = self.emit, tuple(self.indexed.axes)
        if not axes:
            raise self.context.unsupported("by such a function is not imported")
        indices = tuple(self._indices())
        old = emit(array.Gather(self.target, indices, axes))
        (new,) = self.context.regions.applied(self.context.region(), [old, self.updates], emit)
        return emit(array.Scatter(self.target, new, indices, axes, "set", True))


def _slice_sizes(rank: int, updates: Sequence[Size], given: IndexNumbers) -> list[Size]:
    """The sizes of the slices that are updated, along each axis of the target."""
    lacking = (*given.collapsed, *given.batch)
    kept = [axis for axis in range(rank) if axis not in lacking]
    by_axis = {axis: updates[place] for axis, place in zip(kept, given.window, strict=True)}
    return [by_axis.get(axis, 1) for axis in range(rank)]


def _mode(region: Region, dtype: DType) -> str | None:
    """The mode of a scatter by a region; None for another function."""
    if formulas(region) == (("argument", 1),):
        return "set"
    kind = combination(region, dtype)
    if kind is None:
        return None
    return ON_BOOLS.get(kind) if dtype is BOOL else MODES.get(kind)


def _kind(mode: str) -> str:
    return {"max": "maximum", "min": "minimum"}.get(mode, mode)


IMPORTERS: dict[str, Importer] = {"stablehlo.scatter": _scatter}
