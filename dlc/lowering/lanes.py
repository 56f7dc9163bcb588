"""What a scalar of a kernel's body becomes when several elements are computed at once.

Neighbouring elements differ in one index only, so most values need no register: they are the same in
every lane (`Uniform`) or count up from lane to lane (`Linear`), within bounds perhaps (`Clamped`). The
rest is a register (`Varying`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects import scalar, vec
from dlc.dialects.scalar import element
from dlc.ir.builder import Builder
from dlc.ir.clone import clone
from dlc.ir.core import Op, Value
from dlc.ir.types import INDEX


@dataclass(frozen=True, slots=True)
class Uniform:
    """One scalar for all lanes."""

    value: Value


@dataclass(frozen=True, slots=True)
class Linear:
    """An index that is `base + lane`."""

    base: Value


@dataclass(frozen=True, slots=True)
class Varying:
    """A register."""

    value: Value


@dataclass(frozen=True, slots=True)
class Bound:
    """The least or the largest that an index may be."""

    value: Value
    is_least: bool


@dataclass(frozen=True, slots=True)
class Clamped:
    """An index that is `base + lane`, kept within bounds, one after the other."""

    base: Value
    bounds: tuple[Bound, ...]


Lane: TypeAlias = Uniform | Linear | Clamped | Varying


def register(emit: Builder, lane: Lane, lanes: int) -> Value:
    """The value as a register of `lanes` elements."""
    match lane:
        case Uniform(value):
            return emit(vec.Broadcast(value, lanes))
        case Linear(base):
            return emit(vec.Ramp(base, lanes))
        case Clamped(base, bounds):
            value = emit(vec.Ramp(base, lanes))
            for bound in bounds:
                limit = emit(vec.Broadcast(bound.value, lanes))
                keep = scalar.Maximum if bound.is_least else scalar.Minimum
                value = emit(keep(value, limit))
            return value
        case Varying(value):
            return value


def in_lanes(emit: Builder, lane: Lane, lanes: int) -> Value:
    """The value as code with so many lanes has it: a register, or a scalar for one lane."""
    if lanes > 1:
        return register(emit, lane, lanes)
    assert isinstance(lane, Uniform)
    return lane.value


def compute(emit: Builder, op: Op, operands: list[Lane], lanes: int) -> Lane:
    """A scalar operation on lanes, with as few registers as possible."""
    match operands:
        case []:
            return Uniform(emit(clone(op, [])))
        case [Linear(base), Uniform(value)] if isinstance(op, scalar.Add):
            return Linear(emit(scalar.Add(base, value)))
        case [Uniform(value), Linear(base)] if isinstance(op, scalar.Add):
            return Linear(emit(scalar.Add(base, value)))
        case [Linear(base), Uniform(value)] if isinstance(op, scalar.Subtract):
            return Linear(emit(scalar.Subtract(base, value)))
        case [Linear() | Clamped() as index, Uniform(value)] if isinstance(
            op, scalar.Minimum | scalar.Maximum
        ):
            before = index.bounds if isinstance(index, Clamped) else ()
            return Clamped(index.base, (*before, Bound(value, isinstance(op, scalar.Maximum))))
        case _:
            pass
    uniform = [lane.value for lane in operands if isinstance(lane, Uniform)]
    if len(uniform) == len(operands):
        return Uniform(emit(clone(op, uniform)))
    return Varying(emit(clone(op, [register(emit, lane, lanes) for lane in operands])))


def is_unclamped(emit: Builder, lane: Clamped, lanes: int) -> Value:
    """Whether no lane is changed by the bounds: the first one counts, or the last."""
    last = emit(scalar.Add(lane.base, emit(scalar.Constant(lanes - 1, INDEX))))
    found: Value | None = None
    for bound in lane.bounds:
        if bound.is_least:
            here = emit(scalar.Compare(lane.base, bound.value, "ge"))
        else:
            here = emit(scalar.Compare(last, bound.value, "le"))
        found = here if found is None else emit(scalar.And(found, here))
    assert found is not None
    return found


def combine(emit: Builder, name: str, lhs: Value, rhs: Value) -> Value:
    """Two partial results of a fold combined."""
    return emit(scalar.COMBINERS[name](lhs, rhs))


__all__ = [
    "Clamped",
    "Lane",
    "Linear",
    "Uniform",
    "Varying",
    "combine",
    "compute",
    "element",
    "in_lanes",
    "is_unclamped",
    "register",
]
