"""Names for all values of a function, also for those that its text has not named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    for value in _tensors(function):
        if not values.origins_of(value):
            op = value.op
            named = (renamed or {}).get(value.name or "", value.name)
            name = named or ("argument" if op is None else op.name.rpartition(".")[2])
            values.track(value, name, "-" if op is None else str(op.location.place))
            if named is None:
                made.update(origin.name for origin in values.origins_of(value))
    return made


def _tensors(function: func.Func) -> Iterator[Value]:
    for op in function.walk():
        for value in op.results:
            if isinstance(value.type, TensorType):
                yield value
