"""Watch an evaluation: values of the text, and the first one that is not finite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from dlc.dialects import weight
from dlc.errors import CallError, UsageError
from dlc.errors.suggest import did_you_mean
from dlc.ir.attributes import decode
from dlc.ir.core import Array, Evaluation, Op, Value
from dlc.ir.types import TensorType
from dlc.ir.value_map import ValueMap
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Input

Flaw: TypeAlias = Literal["NaN", "an infinity"]
"""The non-finite number that a value holds; NaN if it holds both."""

ALL = "all"


@dataclass(slots=True)
class Watch:
    """The values to observe during an evaluation, and those observed.

    `names` are values of the model's text, or `all`; with `check_nan` the first NaN ends the call, be it
    in an input, and the first infinity that is computed from finite numbers.
    """

    names: Sequence[str] = ()
    check_nan: bool = False
    seen: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """Values by name; one in a loop is there as it was last."""
    steps: dict[str, list[Tensor]] = field(default_factory=dict[str, list[Tensor]])
    """The same with all steps of values in loops, in order."""
    known: set[str] = field(default_factory=set[str])
    """Every name that came by."""
    remarks: list[str] = field(default_factory=list[str])
    """Warnings: inputs and weights that hold an infinity."""

    @property
    def watches(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.names) or self.check_nan

    def wants(self, name: str) -> bool:
        """Whether the user asked for the value."""
        return ALL in self.names or name in self.names

    def beside(self, shown: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The observed values, without those that the results show under the same name."""
        return {
            name: value
            for name, value in self.seen.items()
            if name not in shown or not _is_same(value, shown[name])
        }

    def check_found(self) -> None:
        """Raises UsageError (D0911) for names that did not come by."""
        missing = [name for name in self.names if name != ALL and name not in self.seen]
        if missing:
            raise UsageError(
                f"no value of the call is called {missing[0]}",
                code="D0911",
                help=did_you_mean(missing[0], self.known) or "--values all shows every one",
            )


def observing(
    values: ValueMap,
    watch: Watch,
    at: Evaluation,
    inputs: Mapping[Value, Input],
    renamed: Mapping[str, str],
) -> Callable[[Value, Array], None] | None:
    """The observer of an evaluation; None where nothing is watched.

    `renamed` says what the text calls values that have other names in the IR.
    """
    if not watch.watches:
        return None
    check = _Check(inputs, watch.remarks)

    def observe(value: Value, array: Array) -> None:
        if not isinstance(value.type, TensorType):
            return
        for name, seen in _names_of(value, array, values, at, renamed):
            watch.known.add(name)
            if watch.wants(name):
                tensor = Tensor.from_bits(np.array(seen), value.type.dtype.name)
                watch.seen[name] = tensor
                watch.steps.setdefault(name, []).append(tensor)
        if watch.check_nan:
            check.see(value, value.type, array)

    return observe


def _names_of(
    value: Value, array: Array, values: ValueMap, at: Evaluation, renamed: Mapping[str, str]
) -> list[tuple[str, Array]]:
    origins = values.origins_of(value)
    if origins:
        return [(origin.name, origin.recover(array, at)) for origin in origins]
    return [(renamed.get(value.name, value.name), array)] if value.name else []


def renamed_values(function: Op, texts: Iterable[str]) -> dict[str, str]:
    """The names of values that no text has and that only a number tells from others.

    In IR that was printed, as it is in an artifact, the second value called `h` is `h_1`; it is `h.1` for
    the value map of the text, and here.
    """
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    names = {value.name: 0 for value in _values_in(function) if value.name}
    found: dict[str, str] = {}
    for name in names:
        first, _, number = name.rpartition("_")
        if number.isdecimal() and first in names and name.rpartition(".")[2] not in words:
            names[first] += 1
            found[name] = f"{first}.{names[first]}"
    return found


def _values_in(function: Op) -> Iterator[Value]:
    for op in function.walk():
        yield from op.results
        for region in op.regions:
            yield from region.arguments


def _is_same(one: Tensor, other: Tensor) -> bool:
    alike = one.dtype == other.dtype and one.bits.shape == other.bits.shape
    return alike and one.bits.tobytes() == other.bits.tobytes()


@dataclass(slots=True)
class _Check:
    """Finds the operation that gave the first non-finite value.

    Constants may be what they like, and inputs and weights infinite, as masks are: what is computed from
    an infinity may be one too, but not NaN.
    """

    inputs: Mapping[Value, Input]
    remarks: list[str]
    flaws: dict[Value, Flaw] = field(default_factory=dict[Value, Flaw])
    """The values that are not finite; of a value in a loop, its last one."""

    def see(self, value: Value, type: TensorType, array: Array) -> None:
        flaw = _flaw(type, array)
        if flaw is None:
            self.flaws.pop(value, None)
            return
        self.flaws[value] = flaw
        op = value.op
        if value in self.inputs:
            self._check_given(f"the input {self.inputs[value].name}", type, array, flaw)
        elif isinstance(op, weight.Get):
            self._check_given(f"the weight {op.symbol.name}", type, array, flaw)
        elif op is not None and op.operands and not op.regions:  # what is in regions is seen itself
            self._check_made(op, value, type, flaw)

    def _check_given(self, what: str, type: TensorType, array: Array, flaw: Flaw) -> None:
        if flaw == "NaN":
            first = np.argwhere(np.isnan(decode(array, type.dtype)))[0].tolist()
            raise CallError(
                f"{what}: {type.text} holds NaN{f' at {first}' if first else ''}",
                code="D0912",
                help="give numbers for all of it",
            )
        remark = f"{what}: {type.text} holds {flaw}"
        if remark not in self.remarks:
            self.remarks.append(remark)

    def _check_made(self, op: Op, value: Value, type: TensorType, flaw: Flaw) -> None:
        before = {self.flaws.get(operand) for operand in op.operands}
        if flaw in before or "NaN" in before:
            return
        called = f" in {value.name}" if value.name else ""
        came = "operands that hold an infinity" if "an infinity" in before else "finite operands"
        raise CallError(
            f"{op.name} gives {flaw}{called}: {type.text}, from {came}",
            code="D0912",
            place=op.location.place,
            help="--values all shows what it was computed from",
        )


def _flaw(type: TensorType, array: Array) -> Flaw | None:
    if not type.dtype.is_float:
        return None
    numbers = decode(array, type.dtype)
    if np.isfinite(numbers).all():
        return None
    return "NaN" if np.isnan(numbers).any() else "an infinity"
