"""The largest value of a named size, such as the batch, for which a call stays within a number of bytes.

Counted is what a call takes on one thread: its arena and scratch, its results, and the weights. A step of
training is given its weights, the state of the optimizer and the batch, which are counted instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.driver.call_memory.facts import sizes_text
from dlc.driver.call_memory.needs import WORDS
from dlc.driver.call_memory.refuse import refusal
from dlc.driver.memory.asked import EntryPlan, MemoryRequest, plans_of
from dlc.driver.memory.report import exact
from dlc.driver.run.outputs import JSON
from dlc.errors import CallError, Unsupported, UsageError

BEYOND = 1 << 40
"""Of a size without an upper bound, where looking ends."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The largest value of a size that fits; `dims` are all sizes with it, `bytes` what a call takes then.

    `above` is what it takes with one more, None if the text allows no more.
    """

    entry: str
    dim: str
    size: int
    dims: Mapping[str, int]
    bytes: int
    parts: Mapping[str, int]
    above: int | None


def largest_fits(request: MemoryRequest, dim: str | None, most: int) -> list[Fit]:
    """The largest value of a size, for each entry point that has it, with at most `most` bytes.

    Without a name it is the size of which no value is given, in training the batch. Raises UsageError
    (D0932) where it is not clear which one, Unsupported (D0706) where even the least needs more.
    """
    planned = [each for each in plans_of(request) if dim is None or dim in each.usual]
    if not planned:
        raise UsageError(f"no entry point has a size {dim}", code="D0932", help="name another")
    return [_largest(each, _free(each, request.dims, dim), request.dims, most) for each in planned]


def fits_text(fits: Sequence[Fit], most: int) -> str:
    """The result as text."""
    return "\n\n".join(_fit_text(fit, most) for fit in fits)


def fits_data(fits: Sequence[Fit], most: int) -> JSON:
    """The result as data, for programs."""
    rows = [
        {
            "entry": fit.entry,
            "dim": fit.dim,
            "size": fit.size,
            "dims": dict(fit.dims),
            "bytes": fit.bytes,
            "parts": dict(fit.parts),
            "above": fit.above,
        }
        for fit in fits
    ]
    return {"most": most, "fits": rows}


def _fit_text(fit: Fit, most: int) -> str:
    others = {name: size for name, size in fit.dims.items() if name != fit.dim}
    head = f"{fit.entry}{sizes_text(others)}: {fit.dim} = {fit.size} is the largest"
    head += " that is possible" if fit.above is None else f" within {exact(most)}"
    lines = [head, f"  needs {exact(fit.bytes)} on one thread:"]
    lines += [f"    {size:>15,} {WORDS[name]}" for name, size in fit.parts.items() if size]
    if fit.above is not None:
        lines.append(f"  {fit.dim} = {fit.size + 1} needs {exact(fit.above)}")
    return "\n".join(lines)


def _free(planned: EntryPlan, dims: Mapping[str, int], dim: str | None) -> str:
    """The size that is looked for."""
    free = [name for name in planned.usual if name not in dims]
    if dim is not None:
        return dim
    if planned.batch in free:
        return planned.batch
    if len(free) == 1:
        return free[0]
    name = planned.entry.name
    if not free:
        raise UsageError(
            f"{name} has no named size that is free",
            code="D0932",
            help="give an axis a name in the text, as in x: f32[B, 3], or leave --dim out",
        )
    raise UsageError(
        f"{name} has {len(free)} sizes that are free: {', '.join(free)}",
        code="D0932",
        help=f"say which one is to grow, and how large the others are: --dim {free[0]} "
        f"--dim {free[1]}=64",
    )


def _largest(planned: EntryPlan, dim: str, chosen: Mapping[str, int], most: int) -> Fit:
    """Binary search: the memory of a call grows with its sizes."""
    (bounds,) = [each for each in planned.entry.dims if each.name == dim]
    least, upper = max(1, bounds.lower), BEYOND if bounds.upper is None else bounds.upper
    others = planned.dims({**chosen, dim: least})
    amounts: dict[int, int] = {}

    def fits(size: int) -> bool:
        try:
            amounts[size] = sum(_parts(planned, {**others, dim: size}).values())
        except CallError:  # beyond measure
            return False
        return amounts[size] <= most

    if not fits(least):
        raise _too_little(planned, {**others, dim: least}, dim, most)
    low, high = least, upper + 1
    while high - low > 1:
        # Without an upper bound the size doubles until it no longer fits.
        middle = min((low + high) // 2, 2 * low)
        low, high = (middle, high) if fits(middle) else (low, middle)
    dims = {**others, dim: low}
    above = amounts.get(low + 1)
    return Fit(planned.entry.name, dim, low, dims, amounts[low], _parts(planned, dims), above)


def _parts(planned: EntryPlan, dims: Mapping[str, int]) -> dict[str, int]:
    """The counted bytes, by kind."""
    need = planned.need(dims)
    if planned.batch is None:
        return need.parts
    kept = {name: size for name, size in need.parts.items() if name != "weights"}
    return {"given": need.given, **kept}


def _too_little(planned: EntryPlan, dims: Mapping[str, int], dim: str, most: int) -> Unsupported:
    way_out = f"{dim} = {dims[dim]} is the least there is: allow more, or make the model smaller"
    found = refusal(planned.at(dims), _parts(planned, dims), most, None, way_out)
    return Unsupported([found], sources=planned.artifact.texts())
