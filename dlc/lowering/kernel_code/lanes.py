"""Scalars of a kernel's body when several elements are computed at once.

Neighbouring elements differ in one index only, so most values need no register: they are the same in
every lane (`Uniform`) or count up from lane to lane (`Linear`), within bounds perhaps (`Clamped`). The
rest is a register (`Varying`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dlc.dialects import scalar
from dlc.dialects.expr import Expr, all_of, broadcast, maximum, minimum, ramp
from dlc.ir.clone import clone
from dlc.ir.core import Builder, Op
from dlc.ir.types import I32


@dataclass(frozen=True, slots=True)
class Uniform:
    """One scalar for all lanes."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Linear:
    """An index that is `base + lane`."""

    base: Expr


@dataclass(frozen=True, slots=True)
class Varying:
    """A register."""

    value: Expr


@dataclass(frozen=True, slots=True)
class Bound:
    """The least or the largest that an index may be."""

    value: Expr
    is_least: bool


@dataclass(frozen=True, slots=True)
class Clamped:
    """An index that is `base + lane`, kept within bounds, one after the other."""

    base: Expr
    bounds: tuple[Bound, ...]


Lane: TypeAlias = Uniform | Linear | Clamped | Varying


def neighbours(first: Expr, lanes: int) -> Uniform | Linear:
    """The index of neighbouring elements, or of one."""
    return Uniform(first) if lanes == 1 else Linear(first)


def varying(value: Expr, lanes: int) -> Uniform | Varying:
    """What code with `lanes` lanes has computed: a register, or a scalar for one lane."""
    return Uniform(value) if lanes == 1 else Varying(value)


def register(lane: Lane, lanes: int) -> Expr:
    """The value as a register of `lanes` elements."""
    match lane:
        case Uniform(value):
            return broadcast(value, lanes)
        case Linear(base):
            return ramp(base, lanes)
        case Clamped(base, bounds):
            value = ramp(base, lanes)
            for bound in bounds:
                limit = broadcast(bound.value, lanes)
                value = maximum(value, limit) if bound.is_least else minimum(value, limit)
            return value
        case Varying(value):
            return value


def in_lanes(lane: Lane, lanes: int) -> Expr:
    """The value in code with `lanes` lanes: a register, or a scalar for one lane."""
    if lanes > 1:
        return register(lane, lanes)
    assert isinstance(lane, Uniform)
    return lane.value


def compute(emit: Builder, op: Op, operands: list[Lane], lanes: int) -> Lane:
    """A scalar operation on lanes, with as few registers as possible."""
    match operands:
        case [Linear(base), Uniform(value)] if isinstance(op, scalar.Add):
            return Linear(base + value)
        case [Uniform(value), Linear(base)] if isinstance(op, scalar.Add):
            return Linear(base + value)
        case [Linear(base), Uniform(value)] if isinstance(op, scalar.Subtract):
            return Linear(base - value)
        case [Linear() | Clamped() as index, Uniform(value)] if isinstance(
            op, scalar.Minimum | scalar.Maximum
        ):
            before = index.bounds if isinstance(index, Clamped) else ()
            return Clamped(index.base, (*before, Bound(value, isinstance(op, scalar.Maximum))))
        case [Linear(base), Uniform(value)] if isinstance(op, scalar.Compare):
            # The number of a lane needs 32 bits, where an index has 64: half the registers.
            bound = minimum(maximum(value - base, -1), lanes).cast(I32)
            numbers = ramp(bound.constant(0), lanes), broadcast(bound, lanes)
            return Varying(Expr(emit, emit(clone(op, [each.value for each in numbers]))))
        case _:
            pass
    uniform = [lane.value.value for lane in operands if isinstance(lane, Uniform)]
    if len(uniform) == len(operands):
        return Uniform(Expr(emit, emit(clone(op, uniform))))
    registers = [register(lane, lanes).value for lane in operands]
    return Varying(Expr(emit, emit(clone(op, registers))))


def is_unclamped(lane: Clamped, lanes: int) -> Expr:
    """Whether no lane is changed by the bounds: the first one counts, or the last."""
    last = lane.base + (lanes - 1)
    within = all_of(
        lane.base >= bound.value if bound.is_least else last <= bound.value for bound in lane.bounds
    )
    assert isinstance(within, Expr)
    return within
