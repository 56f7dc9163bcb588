"""Names for all values of a function, also for those that its text has not named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dlc.dialects import func
from dlc.ir.core import Value
from dlc.ir.types import TensorType
from dlc.ir.value_map import ValueMap


def track_all(
    values: ValueMap, function: func.Func, renamed: Mapping[str, str] | None = None
) -> set[str]:
    """Track the values that the frontend has given no name, and all those of IR that was read.

    `renamed` says what to call values that have other names in the IR. Returns the names that no user
    knows: those that follow from operations.
    """
    made = set[str]()
    for value in _results(function):
        if not values.origins_of(value):
            op = value.op
            named = (renamed or {}).get(value.name or "", value.name)
            name = named or ("argument" if op is None else op.name.rpartition(".")[2])
            values.track(
                value, function.sym_name, name, "-" if op is None else str(op.location.place)
            )
            if named is None:
                made.update(origin.name for origin in values.origins_of(value))
    return made


def track_named(
    values: ValueMap, function: func.Func, renamed: Mapping[str, str] | None = None
) -> None:
    """Track the values that have a name, arguments of loops and branches included.

    An argument that is called like a value outside is that value.
    """
    known = set(values.of(function.sym_name))
    for value in (*function.body.arguments, *_results(function), *_arguments(function)):
        if value.name is None or values.origins_of(value):
            continue
        name = (renamed or {}).get(value.name, value.name)
        if value.op is not None or name not in known:
            place = "-" if value.op is None else str(value.op.location.place)
            values.track(value, function.sym_name, name, place)
            known.add(name)


def _results(function: func.Func) -> Iterator[Value]:
    for op in function.walk():
        yield from _tensors(op.results)


def _arguments(function: func.Func) -> Iterator[Value]:
    for op in function.walk(formulas=False):
        for region in op.regions:
            yield from _tensors(region.arguments)


def _tensors(values: Iterable[Value]) -> Iterator[Value]:
    return (value for value in values if isinstance(value.type, TensorType))
