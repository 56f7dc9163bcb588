"""Measured (data-dependent) sizes: a *measuring* operation defines a dim and computes its size in a call.

The types of later values mention the dim. Memory is planned for its limit, a size over dims that are known
before the call or measured earlier; later operations process as many elements as were counted. (PyTorch
calls such dims unbacked symbolic sizes.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import count
from typing import overload

import numpy as np

from dlc.errors import CallError
from dlc.ir.attributes import Attribute, DialectAttribute, make_dialect_attribute
from dlc.ir.core import Array, Block, Evaluation, Op, Value
from dlc.ir.dims import (
    Atom,
    Dim,
    Extreme,
    Quotient,
    Shape,
    Size,
    floor_divide,
    maximum,
    minimum,
    names,
    product,
    substitute,
    symbol,
)
from dlc.ir.types import FunctionType, TensorType, Type, ViewType

PLAIN = frozenset({bool, int, float, str})
"""Classes of attributes that cannot mention sizes; most attributes are of one of these."""


class Measuring(Op):
    """An operation whose last result, an i64, is the size of its dim in this call."""

    # Types mention its dim even where nothing uses its results.
    pure = False

    @property
    def dim_name(self) -> str:
        """The name of the dim that it defines."""
        raise NotImplementedError

    @property
    def limit(self) -> Size:
        """The largest size that there is storage for; a call that counts more fails."""
        raise NotImplementedError

    @property
    def count(self) -> Value:
        """The size that was counted."""
        return self.results[-1]


def nonzero_indices(
    op: Measuring, values: Array, limit: int, at: Evaluation
) -> tuple[Array, Array]:
    """The indices of the values that are not 0, `[count, rank]`, and their count, which sets the dim.

    Raises CallError (D0810) if there are more than `limit`.
    """
    rows = np.argwhere(values).astype(np.int64)
    if len(rows) > limit:
        raise CallError(
            f"{len(rows)} elements are not 0, there is storage for {limit}",
            code="D0810",
            place=op.location.place,
        )
    at.dims[op.dim_name] = len(rows)
    return rows, np.asarray(len(rows), np.int64)


def measuring(function: Op) -> dict[str, Measuring]:
    """The measuring operations of a function, by dim. Raises ModelError where two define the same dim."""
    operations: dict[str, Measuring] = {}
    for op in function.walk(formulas=False):
        if isinstance(op, Measuring) and operations.setdefault(op.dim_name, op) is not op:
            raise op.fail(f"{op.name} counts {op.dim_name}, which another operation counts already")
    return operations


def rename_measured_dims(block: Block, taken: Iterable[str]) -> None:
    """Rename the dims that a block, a copy of another one, measures, so that none is in `taken`."""
    fresh = FreshNames(frozenset(taken))
    renamed: dict[str, Size] = {}
    for op in [op for outer in block for op in outer.walk() if isinstance(op, Measuring)]:
        name = fresh.take(op.dim_name)
        renamed[op.dim_name] = symbol(name)
        op.attributes["dim"] = name
    if renamed:
        substitute_dims(block, renamed)


def substitute_dims(block: Block, sizes: Mapping[str, Size]) -> None:
    """Substitute sizes for some dims in all operations of a block; its arguments keep their types."""
    for op in [op for outer in block for op in outer.walk()]:
        for key, attribute in op.attributes.items():
            op.attributes[key] = _substituted(attribute, sizes)
        arguments = [argument for region in op.regions for argument in region.arguments]
        for value in (*arguments, *op.results):
            value.type = _substituted(value.type, sizes)


class FreshNames:
    """Names for dims that are not in `taken`, each given once: `name`, or else `name_1`, `name_2`, ..."""

    def __init__(self, taken: Container[str] = ()) -> None:
        self.given: set[str] = set()
        self._taken = taken
        # From which number on a name has not been tried: thousands of equal ones take linear time.
        self._next: defaultdict[str, count[int]] = defaultdict(count)

    def take(self, name: str) -> str:
        """The first of these names that is neither taken nor given."""
        tried = (f"{name}_{k}" if k else name for k in self._next[name])
        fresh = next(each for each in tried if each not in self._taken and each not in self.given)
        self.given.add(fresh)
        return fresh


def upper_bounds(operations: Mapping[str, Measuring]) -> dict[str, Size]:
    """The limit of each measured dim, as a size over dims that are known before the call."""
    bounds: dict[str, Size] = {}
    for name, op in operations.items():
        bounds[name] = upper_bound(op.limit, bounds)
    return bounds


def upper_bound(size: Size, limits: Mapping[str, Size]) -> Size:
    """The largest value of a size while measured dims range from 0 to their limits."""
    return _bound(size, limits, high=True)


def lower_bound(size: Size, limits: Mapping[str, Size]) -> Size:
    """The smallest value of a size while measured dims range from 0 to their limits."""
    return _bound(size, limits, high=False)


def is_monotone(size: Size, limits: Mapping[str, Size]) -> bool:
    """Whether a size is surely largest where all measured dims are at their limits."""
    return not any(factor < 0 and _mentions(m, limits) for m, factor in _terms(size))


def _terms(size: Size) -> tuple[tuple[tuple[tuple[Atom, int], ...], int], ...]:
    return size.terms if isinstance(size, Dim) else ()


def _mentions(monomial: tuple[tuple[Atom, int], ...], limits: Mapping[str, Size]) -> bool:
    return any(not _atom_names(atom).isdisjoint(limits) for atom, _ in monomial)


def _atom_names(atom: Atom) -> frozenset[str]:
    match atom:
        case str():
            return frozenset((atom,))
        case Quotient(one, other) | Extreme(_, (one, other)):
            return names(one) | names(other)


def _bound(size: Size, limits: Mapping[str, Size], *, high: bool) -> Size:
    """The largest or smallest value of a size; dims are never negative."""
    if names(size).isdisjoint(limits):
        return size
    total: Size = 0
    for monomial, factor in _terms(size):
        upwards = high == (factor > 0)
        parts = [_atom_bound(atom, limits, high=upwards) for atom, n in monomial for _ in range(n)]
        total = total + factor * product(parts)
    return total


def _atom_bound(atom: Atom, limits: Mapping[str, Size], *, high: bool) -> Size:
    match atom:
        case str():
            return symbol(atom) if atom not in limits else limits[atom] if high else 0
        case Quotient(top, bottom):
            # A divisor is at least 1.
            divisor = maximum(1, _bound(bottom, limits, high=not high))
            return floor_divide(_bound(top, limits, high=high), divisor)
        case Extreme(which, (one, other)):
            bounds = _bound(one, limits, high=high), _bound(other, limits, high=high)
            return maximum(*bounds) if which == "max" else minimum(*bounds)


def dims_of(op: Op) -> set[str]:
    """The dims that an operation, its operands and all inside it mention."""
    # Many operations share few types and attributes; each is examined once.
    seen: set[Attribute | Type] = {value.type for value in op.operands}
    for inner in op.walk():
        for value in inner.results:
            seen.add(value.type)
        for region in inner.regions:
            seen.update([argument.type for argument in region.arguments])
        if inner.attributes:
            seen.update([a for a in inner.attributes.values() if a.__class__ not in PLAIN])
    return {name for each in seen for name in _names_in(each)}


def _names_in(what: Attribute | Type) -> Iterator[str]:
    match what:
        case Dim():
            yield from names(what)
        case TensorType(_, shape) | ViewType(_, shape):
            yield from _names_in(shape)
        case FunctionType(inputs, results):
            yield from _names_in((*inputs, *results))
        case tuple():
            for item in what:
                yield from _names_in(item)
        case DialectAttribute():
            yield from _names_in(what.sizes)
        case _:
            pass


@overload
def _substituted(what: Type, sizes: Mapping[str, Size]) -> Type: ...
@overload
def _substituted(what: Attribute, sizes: Mapping[str, Size]) -> Attribute: ...
def _substituted(what: Attribute | Type, sizes: Mapping[str, Size]) -> Attribute | Type:
    """The type or attribute with sizes substituted for some dims."""
    match what:
        case Dim():
            return substitute(what, sizes)
        case TensorType(dtype, shape):
            return TensorType(dtype, _shape(shape, sizes))
        case ViewType(dtype, shape, strides):
            return ViewType(dtype, _shape(shape, sizes), _shape(strides, sizes))
        case FunctionType(inputs, results):
            return FunctionType(
                tuple([_substituted(type, sizes) for type in inputs]),
                tuple([_substituted(type, sizes) for type in results]),
            )
        case tuple():
            return tuple([_substituted(item, sizes) for item in what])
        case DialectAttribute():
            return make_dialect_attribute(what.name, _shape(what.sizes, sizes))
        case _:
            return what


def _shape(shape: Shape, sizes: Mapping[str, Size]) -> Shape:
    return tuple([substitute(size, sizes) for size in shape])
