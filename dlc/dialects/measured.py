"""Sizes that a call finds out itself: a *measuring* operation names a new dim and counts how large it is.

The types of later values mention the dim. Storage is laid out for its limit, a size over dims known
before the call (or measured earlier); what follows works on as many elements as were counted.
"""

from __future__ import annotations

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
"""Kinds of attributes that mention no sizes; most are one of these."""


class Measuring(Op):
    """An operation whose last result, an i64, is how large its dim is in this call."""

    # Types refer to what it counts, also where nothing uses its results.
    pure = False

    @property
    def dim_name(self) -> str:
        """The name of the dim."""
        raise NotImplementedError

    @property
    def limit(self) -> Size:
        """The largest size that there is storage for; more fail the call."""
        raise NotImplementedError

    @property
    def count(self) -> Value:
        """The size that was counted."""
        return self.results[-1]


def nonzero_indices(
    op: Measuring, values: Array, limit: int, at: Evaluation
) -> tuple[Array, Array]:
    """Where values are not 0, one place in each row, and how many there are, which the dim is from now on.

    Raises CallError (D0810) for more than `limit`.
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
    """The operations of a function that bring dims, by dim. Raises ModelError where two bring the same."""
    found: dict[str, Measuring] = {}
    for op in function.walk(formulas=False):
        if isinstance(op, Measuring) and found.setdefault(op.dim_name, op) is not op:
            raise op.fail(f"{op.name} counts {op.dim_name}, which another operation counts already")
    return found


def rename_measured_dims(block: Block, taken: Iterable[str]) -> None:
    """Let what is measured in a block, a copy of another one, have names that are not `taken`."""
    known = set(taken)
    anew: dict[str, Size] = {}
    for op in [op for outer in block for op in outer.walk() if isinstance(op, Measuring)]:
        name = unused(op.dim_name, known)
        known.add(name)
        anew[op.dim_name] = symbol(name)
        op.attributes["dim"] = name
    if not anew:
        return
    for op in [op for outer in block for op in outer.walk()]:
        for key, attribute in op.attributes.items():
            op.attributes[key] = _mentioning(attribute, anew)
        arguments = [argument for region in op.regions for argument in region.arguments]
        for value in (*arguments, *op.results):
            value.type = _mentioning(value.type, anew)


def unused(name: str, taken: Container[str]) -> str:
    """A name for a dim: `n`, or else `n_1`, `n_2`, ..."""
    return next(each for k in count() if (each := f"{name}_{k}" if k else name) not in taken)


def upper_bounds(found: Mapping[str, Measuring]) -> dict[str, Size]:
    """The limit of each measured dim over dims that are known before the call."""
    known: dict[str, Size] = {}
    for name, op in found.items():
        known[name] = upper_bound(op.limit, known)
    return known


def upper_bound(size: Size, limits: Mapping[str, Size]) -> Size:
    """The largest that a size can be while measured dims go from 0 to their limits."""
    return _end(size, limits, high=True)


def lower_bound(size: Size, limits: Mapping[str, Size]) -> Size:
    """The smallest that a size can be while measured dims go from 0 to their limits."""
    return _end(size, limits, high=False)


def is_monotone(size: Size, limits: Mapping[str, Size]) -> bool:
    """Whether a size is at its largest where the measured dims are at their limits."""
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


def _end(size: Size, limits: Mapping[str, Size], *, high: bool) -> Size:
    """The largest or smallest that a size can be; dims are never negative."""
    if names(size).isdisjoint(limits):
        return size
    total: Size = 0
    for monomial, factor in _terms(size):
        upwards = high == (factor > 0)
        parts = [_atom_end(atom, limits, high=upwards) for atom, n in monomial for _ in range(n)]
        total = total + factor * product(parts)
    return total


def _atom_end(atom: Atom, limits: Mapping[str, Size], *, high: bool) -> Size:
    match atom:
        case str():
            return symbol(atom) if atom not in limits else limits[atom] if high else 0
        case Quotient(top, bottom):
            # Sizes are divided by what is at least 1.
            below = maximum(1, _end(bottom, limits, high=not high))
            return floor_divide(_end(top, limits, high=high), below)
        case Extreme(which, (one, other)):
            ends = _end(one, limits, high=high), _end(other, limits, high=high)
            return maximum(*ends) if which == "max" else minimum(*ends)


def dims_of(op: Op) -> set[str]:
    """The dims that an operation, its operands and all inside it mention."""
    # Many operations share few types and attributes: each is looked into once.
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
def _mentioning(what: Type, sizes: Mapping[str, Size]) -> Type: ...
@overload
def _mentioning(what: Attribute, sizes: Mapping[str, Size]) -> Attribute: ...
def _mentioning(what: Attribute | Type, sizes: Mapping[str, Size]) -> Attribute | Type:
    """The same with other sizes in the place of some dims."""
    match what:
        case Dim():
            return substitute(what, sizes)
        case TensorType(dtype, shape):
            return TensorType(dtype, _shape(shape, sizes))
        case ViewType(dtype, shape, strides):
            return ViewType(dtype, _shape(shape, sizes), _shape(strides, sizes))
        case FunctionType(inputs, results):
            return FunctionType(
                tuple([_mentioning(type, sizes) for type in inputs]),
                tuple([_mentioning(type, sizes) for type in results]),
            )
        case tuple():
            return tuple([_mentioning(item, sizes) for item in what])
        case DialectAttribute():
            return make_dialect_attribute(what.name, _shape(what.sizes, sizes))
        case _:
            return what


def _shape(shape: Shape, sizes: Mapping[str, Size]) -> Shape:
    return tuple([substitute(size, sizes) for size in shape])
