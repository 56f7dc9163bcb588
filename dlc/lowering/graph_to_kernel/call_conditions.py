"""Conditions on the sizes of a call: refused when compiling where bounds show that none fits, else noted.

Sizes must not be below 0, and sizes that an operation says are equal must be.

All values have their memory before a call begins, also those in a branch that it does not take; so a shape
counts wherever it stands. What a call must look at is noted at its entry point before any pass removes an
operation: whether a call fails does not depend on what is left of the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dlc.dialects import array, flow, func
from dlc.dialects.array import show
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.dialects.interface import NEEDS
from dlc.dialects.measured import lower_bound
from dlc.errors import Diagnostic, ModelError
from dlc.errors.options import option
from dlc.ir.attributes import Attribute
from dlc.ir.bounded import never_negative
from dlc.ir.core import Op, Value
from dlc.ir.dims import Bounds, Dim, Size, evaluate, names
from dlc.ir.equal_sizes import least_value
from dlc.ir.needs import Need
from dlc.ir.types import TensorType
from dlc.runtime.artifact import manifest

MAY_NOT_RUN = (flow.If, flow.While, flow.Scan, flow.Custom)
"""What has regions that a call may leave out."""


def check_least(module: Module) -> None:
    """Raises ModelError (D0715) for values whose size is below 0 where the named sizes are least."""
    functions = [op for op in module.body if isinstance(op, func.Func)]
    if found := [each for function in functions for each in _below_zero(function)]:
        raise ModelError(found)


def check_counted(function: func.Func, limits: Mapping[str, Size]) -> None:
    """Raises ModelError (D0715) for values whose size is below 0 where a call counts few, or many.

    `limits` has the most that each measured dim can be.
    """
    if not limits:
        return
    least = {name: low for name, (low, _) in function.bounds.items()}
    found: list[Diagnostic] = []
    for op, value, size in _sizes(function):
        counted = sorted(names(size) & limits.keys())
        if counted and (number := evaluate(lower_bound(size, limits), least)) < 0:
            told = f"there is no {show(value)}: {size} may be {number}, as the call counts"
            found.append(
                Diagnostic(
                    "D0715",
                    f"{told} {', '.join(counted)}",
                    op.location.place,
                    help=_never_below(op, size),
                )
            )
    if found:
        raise ModelError(found)


def note_needs(function: func.Func, limits: Mapping[str, Size]) -> None:
    """Note at an entry point, in `dlc.needs`, which sizes its calls must look at.

    These are the ones that the bounds of the dims alone do not keep at 0 or above, and those that must be
    equal to another one. `limits` is as above. Raises ModelError (D0303) for a counted one of these.
    """
    bounds = function.bounds
    if not bounds:
        return
    before = function.attributes.get(NEEDS, ())
    assert isinstance(before, tuple)
    noted: dict[str, Attribute] = {
        need.condition: row for need, row in zip(function.call_needs, before, strict=True)
    }
    for op, need in _needs(function):
        if need.equals is not None:
            _refuse_counted(op, need, limits)
            row = _row(op, need)
            if row._replace(size=row.equals, equals=row.size).condition not in noted:
                noted.setdefault(row.condition, tuple(row))
            continue
        size = lower_bound(need.size, limits)
        if isinstance(size, int) or never_negative(size, bounds):
            continue
        row = _row(op, replace(need, size=size))
        noted.setdefault(row.condition, tuple(row))
    if noted:
        function.attributes[NEEDS] = tuple(noted.values())


def _row(op: Op, need: Need) -> manifest.Need:
    """The need as an entry point has it."""
    place = op.location.place
    equals = "" if need.equals is None else str(need.equals)
    end = 0 if place is None else place.end
    return manifest.Need(str(need.size), need.code, need.told, str(place or ""), end, equals)


def _refuse_counted(op: Op, need: Need, limits: Mapping[str, Size]) -> None:
    """Raises ModelError (D0303) where sizes must be equal of which one is counted during the call."""
    assert need.equals is not None
    counted = sorted((names(need.size) | names(need.equals)) & limits.keys())
    if counted:
        raise op.fail(
            f"{need.size} must be {need.equals}, which no call can check before it counts "
            f"{', '.join(counted)}",
            code="D0303",
        )


def _needs(function: func.Func) -> Iterator[tuple[Op, Need]]:
    """What operations need that are sure to run, and all shapes, each size once."""
    seen: set[tuple[Size, Size | None]] = set()
    for op in function.walk():
        for need in op.needs():
            key = need.size, need.equals
            if key not in seen and (need.code == "D0804" or runs_always(op)):
                seen.add(key)
                yield op, need
        for value, size in _shape_sizes(op):
            if (size, None) not in seen:
                seen.add((size, None))
                branch = "" if runs_always(op) else ", not even where it is not computed"
                yield op, Need(size, f"there is no {show(value)}{branch}: {size} is {{n}}")


def runs_always(op: Op) -> bool:
    """Whether every call of the function that an operation is in runs it."""
    around = op.parent
    while around is not None and around.parent is not None:
        if isinstance(around.parent, MAY_NOT_RUN):
            return False
        around = around.parent.parent
    return True


def _shape_sizes(op: Op) -> Iterator[tuple[Value, Dim]]:
    """The symbolic sizes of what an operation computes."""
    for result in op.results:
        for size in result.type.shape if isinstance(result.type, TensorType) else ():
            if isinstance(size, Dim):
                yield result, size


def _sizes(function: func.Func) -> Iterator[tuple[Op, Value, Dim]]:
    """Each symbolic size of what a function computes, where it first is."""
    seen: set[Dim] = set()
    for op in function.walk():
        for value, size in _shape_sizes(op):
            if size not in seen:
                seen.add(size)
                yield op, value, size


def _below_zero(function: func.Func) -> Iterator[Diagnostic]:
    """Each size that is below 0 at the lower bounds, where it first is.

    Of the sizes that a larger lower bound of one name repairs, only the one that needs the largest bound.
    """
    bounds = function.bounds
    if not bounds:
        return
    least = {name: low for name, (low, _) in bounds.items()}
    repaired: dict[str, tuple[int, Diagnostic]] = {}
    for op, value, size in _sizes(function):
        if not names(size) <= least.keys() or (number := evaluate(size, least)) >= 0:
            continue
        told = f"there is no {show(value)}: {size} is {number} where {_values(size, least)}"
        enough = _enough(size, bounds)
        help = "make the lower bounds of the dims larger" if enough is None else _larger(*enough)
        if not runs_always(op):
            help = f"{help}; for a branch that is not taken then, {_never_below(op, size)}"
        problem = Diagnostic("D0715", told, op.location.place, help=help)
        if enough is None or not runs_always(op):
            yield problem
        elif enough[0] not in repaired or repaired[enough[0]][0] < enough[1]:
            repaired[enough[0]] = enough[1], problem
    yield from [problem for _, problem in repaired.values()]


def _values(size: Size, dims: Mapping[str, int]) -> str:
    return " and ".join(f"{name} is {dims[name]}" for name in sorted(names(size)))


def _never_below(op: Op, size: Dim) -> str:
    """What to write for a size that is then 0 where it would be below."""
    if isinstance(op, array.Slice):
        extents = tensor_type(op.source).shape
        for start, limit, extent in zip(op.starts, op.limits, extents, strict=True):
            if limit - start == size and limit == extent:
                return f"begin the slice at minimum({start}, {extent})"
    return f"write maximum({size}, 0)"


def _enough(size: Dim, bounds: Bounds) -> tuple[str, int, int | None] | None:
    """The bounds of the only name in a size that leave it at 0 or above, if there are such."""
    name, *others = sorted(names(size))
    low, high = bounds[name]
    enough = None if others else least_value(size, name, low, high)
    return None if enough is None else (name, enough, high)


def _larger(name: str, low: int, high: int | None) -> str:
    most = "" if high is None else high
    bounds = option("dims", {name: (low, high)})
    return f"write dim {name} = {low}..{most}, or compile with {bounds}"
