"""Checks, before the first step, that the functions that train take the batches that data is cut into."""

from __future__ import annotations

from collections.abc import Iterable

from dlc.errors import CallError, UsageError
from dlc.runtime.artifact.manifest import EVALUATE, STEP, Entry, Training
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.data import Dataset


def check_batches(facts: Training, entries: Iterable[Entry], data: Dataset) -> None:
    """Refuse data whose batches `train_step`, or whose test examples `evaluate`, would not take.

    Raises UsageError (D0553) with the size that does not fit: of a whole batch, or of the last one of an
    epoch, which may be shorter. Data that does not say how many examples it has is not checked.
    """
    by_name = {entry.name: entry for entry in entries}
    for name, part, what in (
        (STEP, data, "training"),
        (EVALUATE, data.test, "testing"),
    ):
        if part is not None and part.count is not None and name in by_name:
            _check_part(facts, by_name[name], part, part.count, what)


def first_axes(facts: Training, entry: Entry) -> list[str]:
    """The sizes that count the examples of one batch, of which a step may take several: `B` of `4*B`."""
    shapes = [item.shape for item in entry.inputs if item.name in facts.inputs and item.shape]
    several = f"{facts.accumulate}*" if facts.accumulate > 1 else ""
    return [first.removeprefix(several) for first, *_ in shapes]


def batch_of(facts: Training, entry: Entry) -> str | None:
    """The size that counts the examples of a batch: the first of what the data has."""
    names = {dim.name for dim in entry.dims}
    return next((size for size in first_axes(facts, entry) if size in names), None)


def _check_part(facts: Training, entry: Entry, data: Dataset, count: int, what: str) -> None:
    microbatches = facts.accumulate if entry.name == STEP else 1
    most = facts.batch * microbatches
    whole, last = min(most, count), count % most if count > most else 0
    whole, last = whole - whole % microbatches, last - last % microbatches
    if not whole:
        raise UsageError(
            f"{what} with {count:,} examples makes no step of {microbatches} batches",
            code="D0553",
            help=f"write accumulate = {count} or less",
        )
    for size, which in ((whole, "batches"), (last, "a last batch")):
        told = _refusal(facts, entry, data, size) if size else None
        if told is not None:
            raise UsageError(
                f"{what} with {count:,} examples makes {which} of {size}: {told}",
                code="D0553",
                help=_way_out(facts, entry, count, size, last=which != "batches"),
            )


def _refusal(facts: Training, entry: Entry, data: Dataset, size: int) -> str | None:
    """Why a batch of this size cannot be taken, or None."""
    batch = [item for item in entry.inputs if item.name in facts.inputs]
    examples = data.example_shapes()
    shapes = [(size, *examples[item.name]) for item in batch]
    try:
        DimBinder(entry._replace(inputs=tuple(batch), outputs=())).bind(shapes, {})
    except CallError as error:
        return error.diagnostics[0].message
    return None


def _way_out(facts: Training, entry: Entry, count: int, size: int, *, last: bool) -> str:
    firsts = first_axes(facts, entry)
    counting = [dim for dim in entry.dims if dim.name in firsts]
    if not counting:
        fixed = next((size for size in firsts if size.isdecimal()), None)
        return (
            f"write batch = {fixed}, with whole batches only, or a dim: dim B = 1..{facts.batch}"
            if fixed
            else "declare the first axis as a dim: dim B = 1..64"
        )
    beyond = (dim for dim in counting if not dim.lower <= size <= (dim.upper or size))
    dim = next(beyond, None)
    if dim is None:
        return "a batch has no sizes but those of its arrays: compute with the axes of an input"
    if last:
        return (
            f"let {dim.name} begin at {count % facts.batch}, take another batch, or limit the data"
        )
    if dim.upper is not None and facts.batch > dim.upper:
        return f"write batch = {dim.upper}, or dim {dim.name} = {dim.lower}..{facts.batch}"
    if count < dim.lower:
        return f"give {dim.lower} examples or more, or let {dim.name} begin at {count}"
    return f"write batch = {max(dim.lower, 1)}, or let {dim.name} begin at {facts.batch}"
