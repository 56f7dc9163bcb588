"""A model against the numbers of another program: the first layer that departs.

Values are paired by name, by path, or by order. Names are compared without regard to what separates their
parts, and a path may begin further inside, as `layers.0.norm` and `model.layers.0.norm` do. Values without
a counterpart of their name, or with one that differs, are paired in order with the nearest of the same
shape, so that a value departs only if it is like none of those that it may be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dlc.driver.compile.entries import find_entry
from dlc.driver.diff.case import Case, bits, case_of
from dlc.driver.diff.frameworks import values_of_onnx, values_of_pt2
from dlc.driver.diff.search import call_artifact, run_compiled
from dlc.driver.diff.tolerance import Expectations, Expected, expectations
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.source_model import SourceModel
from dlc.errors import NumbersDiffer, UsageError
from dlc.ir.core import Array
from dlc.runtime.model import load
from dlc.runtime.system.counts import counted
from dlc.runtime.weights.files import open_weights

OTHERS = 4.0
"""How many times more than ours the error of another program's algorithm may be."""

Values = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found, for people and for programs, and the error where numbers depart."""

    text: str
    data: dict[str, object]
    error: NumbersDiffer | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A value of the model and its counterpart, by how they were paired."""

    name: str
    other: str
    by: str
    excess: float
    expected: Expected
    found: Array

    @property
    def departs(self) -> bool:
        """Whether the two differ by more than rounding."""
        return self.excess > OTHERS


def with_file(request: CompileRequest, call_request: CallRequest, path: str) -> CallRequest:
    """A call whose inputs are the arrays of these names in a file.

    Raises UsageError (D0906) where the file has none of the inputs.
    """
    names = set(open_weights(path))
    entry = find_entry(request.open().module, call_request.entry)
    found = {name: path for name in entry.input_names if name in names}
    if not found:
        raise UsageError(
            f"{path} has none of the inputs of {entry.sym_name}",
            code="D0906",
            help=f"they are {', '.join(entry.input_names)}; it has {', '.join(sorted(names))}",
        )
    return replace(call_request, inputs={**found, **call_request.inputs})


def compare_with(request: CompileRequest, call_request: CallRequest, against: str) -> Comparison:
    """Compare a model with -O0 to -O3, an artifact, a network of another framework, or recorded values.

    Raises UsageError (D0901) for anything else.
    """
    case, model = case_of(request, call_request)
    with model.quoting():
        expected = expectations(case)
        others = _values_of(against, case)
        pairs = pair_values(expected, _result_names(case), others)
    if not pairs:
        raise UsageError(
            f"no value of {against} is like one of {case.entry}",
            code="D0906",
            help=f"it has {', '.join(list(others)[:8])}; values pair by name, or by shape in order",
        )
    return _told(case, against, pairs)


def _values_of(against: str, case: Case) -> Values:
    level = re.fullmatch(r"-O([0-3])", against)
    suffix = Path(against).suffix
    readers: dict[str, Callable[[str, Case], Values]] = {
        ".npz": _recorded,
        ".safetensors": _recorded,
        ".dlc": _of_artifact,
        ".onnx": values_of_onnx,
        ".pt2": values_of_pt2,
    }
    if level is not None:
        settings = replace(case.settings, level=int(level[1]))
        return _named(case, run_compiled(replace(case, settings=settings)))
    if suffix not in readers:
        raise UsageError(
            f"--against {against!r} is nothing to compare with",
            code="D0901",
            help=f"name a level, -O0 to -O3, or a file: {', '.join(readers)}",
        )
    return readers[suffix](against, case)


def _recorded(path: str, _: Case) -> Values:
    file = open_weights(path)
    return {name: bits(file[name]) for name in file}


def _of_artifact(path: str, case: Case) -> Values:
    with load(path) as model:
        if case.entry not in model.entry_points:
            raise UsageError(
                f"{path} has no entry point {case.entry}",
                code="D0904",
                help=f"it has {', '.join(model.entry_points)}",
            )
        return _named(case, call_artifact(model, case))


def _named(case: Case, results: Sequence[Array]) -> Values:
    return dict(zip(_result_names(case), results, strict=False))


def _result_names(case: Case) -> list[str]:
    function = case.function(case.open())
    count = len(function.function_type.results)
    names = list(function.result_names) or [case.entry]
    return names if len(names) == count else [f"result{k}" for k in range(count)]


# Pairing.


def pair_values(expected: Expectations, results: Sequence[str], others: Values) -> list[Pair]:
    """The pairs of values, in the order of the other program."""
    own = dict(expected.values)
    own |= dict(zip(results, expected.results, strict=False))
    named = {_key(name): name for name in own}
    pairs: list[Pair] = []
    position, order = -1, list(own)
    for other, array in others.items():
        name, by = _by_name(other, named), "name"
        if name is not None:
            array = _last_step(array, own[name].value.ndim)
        if name is None or _excess(own[name], array) > OTHERS:
            nearest = _by_order(array, own, order, position)
            agrees = nearest is not None and _excess(own[nearest], array) <= OTHERS
            if name is None or agrees:
                name, by = nearest, "order"
        if name is None or own[name].value.shape != array.shape:
            continue
        one = own[name]
        pairs.append(Pair(name, other, by, _excess(one, array), one, array))
        if not pairs[-1].departs:
            position = max(position, order.index(name))
    return pairs


def _last_step(array: Array, rank: int) -> Array:
    """The last step of a value in loops, which are axes in front of its own."""
    return array[(-1,) * (array.ndim - rank)] if array.ndim > rank else array


def _key(name: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[^0-9A-Za-z]+", name.lower()) if part)


def _by_name(other: str, named: Mapping[tuple[str, ...], str]) -> str | None:
    """The value of this name, or the only one whose path ends, or is ended, by it."""
    key = _key(other)
    if key in named:
        return named[key]
    ends = [
        name
        for path, name in named.items()
        if path and (path[-len(key) :] == key or (len(path) > 1 and key[-len(path) :] == path))
    ]
    return ends[0] if len(ends) == 1 else None


def _by_order(
    array: Array, own: Mapping[str, Expected], order: Sequence[str], position: int
) -> str | None:
    """The next value of the same shape that agrees, or an earlier one; where none does, the nearest."""
    alike = [name for name in order if own[name].value.shape == array.shape]
    after = [name for name in alike if order.index(name) > position]
    for name in (*after, *alike):
        if _excess(own[name], array) <= OTHERS:
            return name
    return min(after, key=lambda name: _excess(own[name], array), default=None)


def _excess(one: Expected, array: Array) -> float:
    if one.dtype.is_float != np.issubdtype(array.dtype, np.floating):
        return float("inf")
    return one.excess_of(array.astype(np.float64))


# Reporting.


def _told(case: Case, against: str, pairs: Sequence[Pair]) -> Comparison:
    first = next((pair for pair in pairs if pair.departs), None)
    data: dict[str, object] = {
        "entry": case.entry,
        "against": against,
        "compared": len(pairs),
        "departs": None,
    }
    if first is None:
        text = f"{case.entry} and {against} give the same: {counted(len(pairs), 'value')} compared"
        return Comparison(text, data, None)
    agreed = [pair for pair in pairs[: pairs.index(first)] if not pair.departs]
    model = case.open()
    place, op = _where(model, case.entry, first.name)
    message = f"{case.entry} departs from {against} at {first.other}"
    data["departs"] = {
        "value": first.name,
        "other": first.other,
        "by": first.by,
        "op": op,
        "place": place,
        "times_tolerance": first.excess,
        "agreed": len(agreed),
    }
    help = "compare what the two say about this layer: epsilon, padding, axis, activation"
    if first.name in case.function(model).input_names:
        help = (
            f"{first.name} is an input: give the numbers that {against} was made from by --inputs"
        )
    error = NumbersDiffer(
        f"{case.entry} departs from {against} at {first.name}", code="D0951", help=help
    )
    return Comparison("\n".join([message, *_lines(first, place, op, agreed)]), data, error)


def _lines(first: Pair, place: str, op: str, agreed: Sequence[Pair]) -> list[str]:
    """What is known of the first pair that departs, for people."""
    at = f" at {place}" if place else ""
    lines = [f"  value    {first.name}{f', {op}' if op else ''}{at} (paired by {first.by})"]
    worst = first.expected.worst_of(first.found.astype(np.float64))
    if worst is not None:
        index, found, wanted = worst
        where = f"[{', '.join(map(str, index))}]" if index else "it"
        lines.append(f"  found    {where} is {wanted:.9g} here and {found:.9g} there")
    if agreed:
        lines.append(
            f"  agreed   {counted(len(agreed), 'value')} before, the last {agreed[-1].name}"
        )
    return lines


def _where(model: SourceModel, entry: str, name: str) -> tuple[str, str]:
    """The place and the operation of a value, or of a result."""
    origin = model.context.values.of(entry).get(name)
    if origin is None:
        return "", ""
    op = origin.value.op if origin.value is not None else None
    return (str(op.location.place), op.name) if op is not None else ("", "")
