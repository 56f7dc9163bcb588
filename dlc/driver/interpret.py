"""Running an entry point without compiling it: each operation says in NumPy what it computes.

So every value of the user's text can be seen, and the first that is not finite can be named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlc.dialects import mem
from dlc.driver.build import interface_of
from dlc.driver.calls import Arguments, Request
from dlc.driver.entries import find_entry, interfaces, return_all_counts
from dlc.driver.opened import Opened
from dlc.driver.results import Results
from dlc.driver.weights import Given, Weights, derive, gather
from dlc.errors import CallError, UsageError
from dlc.ir.attributes import decode
from dlc.ir.core import Value
from dlc.ir.evaluation import Array, Evaluation
from dlc.ir.passes import Manager
from dlc.ir.types import TensorType
from dlc.ir.value_map import ValueMap
from dlc.lowering.plan_evaluation import evaluate_plan
from dlc.runtime.binding import Binder
from dlc.runtime.call_arguments import ArgumentReader
from dlc.runtime.tensor import Tensor
from dlc.runtime.weight_files import nearest
from dlc.runtime.weights import WeightViews

ALL = "all"


@dataclass(slots=True)
class Watch:
    """What to look at while an entry point is evaluated, and what was seen.

    `names` are values of the model's text, or `all`; with `check_nan` the first value that is not
    finite, though all it was computed from are, ends the call.
    """

    names: Sequence[str] = ()
    check_nan: bool = False
    seen: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Values by name; one in a loop is there as it was last."""
    known: set[str] = field(default_factory=set[str])
    """Every name that came by."""

    @property
    def watches(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.names) or self.check_nan

    def wants(self, name: str) -> bool:
        """Whether the user asked for the value."""
        return ALL in self.names or name in self.names

    def check_found(self) -> None:
        """Raises UsageError (D0911) for names that did not come by."""
        missing = [name for name in self.names if name != ALL and name not in self.seen]
        if missing:
            near = nearest(missing[0], self.known)
            raise UsageError(
                f"no value of the call is called {missing[0]}",
                code="D0911",
                help=f"did you mean {near[0]}?" if near else "--values all shows every one",
            )


def evaluate_entry(
    opened: Opened, request: Request, weights: Given = None, watch: Watch | None = None
) -> tuple[Results, tuple[str, ...]]:
    """Evaluate an entry point of a model at any level: its results, and notes about the weights.

    A plan is evaluated in the memory that it lays out. Raises UsageError (D0905) where values of a plan
    are to be watched, CallError as a compiled entry point would.
    """
    watch = watch or Watch()
    _check_watched(opened, watch)
    return_all_counts(opened.module)
    arguments = request.arguments(interfaces(opened.module))
    if opened.stage == "graph":
        Manager(opened.context).run(opened.module, ("autodiff",))
    gathered = gather(opened.module, weights, opened.folder, opened.arrays)
    results = evaluate_arguments(opened, arguments, gathered, watch)
    watch.check_found()
    return results, gathered.notes


def _check_watched(opened: Opened, watch: Watch) -> None:
    if watch.watches and opened.stage in ("plan", "loop"):
        raise UsageError(
            f"{opened.name} is at {opened.stage} level, where memory has no values of its own to watch",
            code="D0905",
            help="watch the graph or the kernels; --interpret alone evaluates a plan",
        )


def evaluate_arguments(
    opened: Opened, arguments: Arguments, weights: Weights, watch: Watch
) -> Results:
    """Evaluate an entry point, without derivatives any more, on arguments that were read."""
    function = find_entry(opened.module, arguments.entry)
    entry = interface_of(function)
    binder = Binder(entry)
    arrays, given = ArgumentReader(entry, binder.free).read((), arguments.named)
    dims = binder.bind([array.shape for array in arrays], given)
    views = WeightViews(weights.table, np.frombuffer(weights.data, np.uint8))
    stored = derive(opened.module, {row.name: _bits(views[row.name]) for row in weights.table})
    with np.errstate(all="ignore"):
        if isinstance(function, mem.Program):
            found = evaluate_plan(function, arrays, dims, stored)
        else:
            evaluation = Evaluation(dims, stored)
            observer = _observer(opened.context.values, watch, evaluation)
            found = Evaluation(dims, stored, observer).run(function.body, arrays)
    pairs = [
        (output, Tensor.from_bits(array, output.dtype))
        for output, array in zip(entry.outputs, found, strict=True)
        if not output.hidden
    ]
    return Results(entry.name, tuple(pairs))


def _bits(value: object) -> Array:
    return value.bits if isinstance(value, Tensor) else np.asarray(value)


def _observer(
    values: ValueMap, watch: Watch, at: Evaluation
) -> Callable[[Value, Array], None] | None:
    if not watch.watches:
        return None
    broken: set[Value] = set()

    def observe(value: Value, array: Array) -> None:
        if not isinstance(value.type, TensorType):
            return
        for name, seen in _names_of(value, array, values, at):
            watch.known.add(name)
            if watch.wants(name):
                watch.seen[name] = Tensor.from_bits(np.array(seen), value.type.dtype.name)
        if watch.check_nan and not _is_finite(value.type, array):
            _check_source(value, array, broken)
            broken.add(value)

    return observe


def _names_of(
    value: Value, array: Array, values: ValueMap, at: Evaluation
) -> list[tuple[str, Array]]:
    origins = values.origins_of(value)
    if origins:
        return [(origin.name, origin.recover(array, at)) for origin in origins]
    return [(value.name, array)] if value.name else []


def _is_finite(type: TensorType, array: Array) -> bool:
    return not type.dtype.is_float or bool(np.isfinite(decode(array, type.dtype)).all())


def _check_source(value: Value, array: Array, broken: set[Value]) -> None:
    """Stop at a value that was finite no more; constants and inputs may be what they like."""
    op = value.op
    if op is None or not op.operands or any(operand in broken for operand in op.operands):
        return
    assert isinstance(value.type, TensorType)
    numbers = decode(array, value.type.dtype)
    what = "NaN" if np.isnan(numbers).any() else "an infinity"
    called = f" {value.name}" if value.name else ""
    raise CallError(
        f"{op.name} gives {what}{called and ' in'}{called}: {value.type.text}, from finite operands",
        code="D0912",
        place=op.location.place,
        help="--values all shows what it was computed from",
    )
