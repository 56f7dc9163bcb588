"""Watch an evaluation: values of the text, and the first one that is not finite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from dlc.dialects import flow, weight
from dlc.driver.run.seen import Seen, Source
from dlc.errors import CallError, UsageError
from dlc.errors.suggest import did_you_mean
from dlc.ir.attributes import decode
from dlc.ir.core import Array, Evaluation, Op, Value
from dlc.ir.types import TensorType
from dlc.ir.value_map import ValueMap
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Input

Flaw: TypeAlias = Literal["NaN", "an infinity"]
"""The non-finite number that a value holds; NaN if it holds both."""

ALL = "all"


@dataclass(frozen=True, slots=True)
class Selection:
    """Values that a user asks for: a name, where `*` is any text and `?` any character.

    `[3]` after a part of the name is a step of the loop that the value is in, of the outermost loop first.
    """

    text: str
    pattern: re.Pattern[str]
    steps: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Selection:
        """The selection that a text says.

        >>> Selection.of("blocks[7].h*").steps, Selection.of("blocks[7].h*").wants("blocks.h2")
        ((7,), True)
        """
        steps = tuple([int(step) for step in _STEP.findall(text)])
        letters = {"*": ".*", "?": "."}
        name = _STEP.sub("", "*" if text == ALL else text)
        pattern = "".join(letters.get(letter, re.escape(letter)) for letter in name)
        return cls(text, re.compile(pattern), steps)

    @property
    def is_name(self) -> bool:
        """Whether it names one value."""
        return self.text != ALL and not set("*?") & set(self.text)

    def wants(self, name: str) -> bool:
        """Whether the value of this name is among them."""
        return self.pattern.fullmatch(name) is not None


_STEP = re.compile(r"\[(\d+)\]")


@dataclass(slots=True)
class Watch:
    """The values to observe during an evaluation, and those observed.

    `names` are values of the model's text as `Selection` has them, or `all`; with `check_nan` the first NaN
    ends the call, be it in an input, and the first infinity that is computed from finite numbers.
    """

    names: Sequence[str] = ()
    check_nan: bool = False
    known: dict[str, str] = field(default_factory=dict[str, str])
    """The place of every value that came by, by name."""
    remarks: list[str] = field(default_factory=list[str])
    """Warnings: inputs and weights that hold an infinity."""
    sources: dict[str, Source] = field(default_factory=dict[str, Source])
    """What computed each value, where that is not NumPy from the inputs alone."""
    first: dict[Flaw, tuple[str, int]] = field(default_factory=dict["Flaw", "tuple[str, int]"])
    """The first value that was asked for and holds NaN, or an infinity, and in which of its steps."""
    hidden: set[str] = field(default_factory=set[str])
    """Names that no user knows."""
    _steps: dict[str, list[Tensor]] = field(default_factory=dict[str, list[Tensor]])
    _loops: dict[str, tuple[int | None, ...]] = field(
        default_factory=dict[str, tuple[int | None, ...]]
    )
    _selections: list[Selection] | None = None

    @property
    def watches(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.names) or self.check_nan

    @property
    def selections(self) -> list[Selection]:
        """What the user asked for."""
        if self._selections is None:
            self._selections = [Selection.of(name) for name in self.names]
        return self._selections

    def wants(self, name: str) -> bool:
        """Whether the user asked for the value."""
        return name not in self.hidden and any(each.wants(name) for each in self.selections)

    def add(self, name: str, tensor: Tensor, loops: tuple[int | None, ...]) -> None:
        """Note a value; in loops of these lengths (None where it is not known) the next step of it.

        Of several values of one name the first counts. So does a constant of a loop, which has the name of
        what it is; but the slices of a stacked weight are of more use than the whole.
        """
        if name in self._loops and len(loops) != len(self._loops[name]):
            is_slice = len(loops) > len(self._loops[name])
            if not is_slice or tensor.shape == self._steps[name][-1].shape:
                return
            self._steps.pop(name)
        self._loops[name] = loops
        steps = self._steps.setdefault(name, [])
        for flaw in _flaws(tensor):
            self.first.setdefault(flaw, (name, len(steps)))
        steps.append(tensor)

    def add_results(self, results: Mapping[str, Tensor], source: Source) -> None:
        """Note the results of the call to which the text gives no name, as callers call them."""
        for name, tensor in results.items():
            self.known.setdefault(name, "")
            if name not in self._steps and self.wants(name):
                self.add(name, tensor, ())
                self.sources[name] = source

    def forget(self) -> None:
        """Begin anew."""
        self.known.clear()
        self.first.clear()
        self._steps.clear()
        self._loops.clear()

    @property
    def seen(self) -> dict[str, Seen]:
        """The values that were asked for, in the order of the call; steps of a loop under their selection.

        Raises UsageError (D0911) for steps that there are not.
        """
        found: dict[str, Seen] = {}
        for name, steps in self._steps.items():
            seen = self._stacked(name, steps)
            for selection in self.selections:
                if self._selects(selection, name):
                    label = _with_steps(selection, name)
                    found[label] = _step(seen, selection, name) if selection.steps else seen
        return found

    def _selects(self, selection: Selection, name: str) -> bool:
        """Whether a value that came by is asked for.

        Of a pattern with steps those in fewer loops are not, such as the stacked weights beside the values
        of a loop; where one name is asked for, that is a mistake of the user's.
        """
        in_loops = selection.is_name or len(selection.steps) <= len(self.loops_of(name))
        return selection.wants(name) and in_loops

    def loops_of(self, name: str) -> tuple[int, ...]:
        """The lengths of the loops around a value, the outermost first."""
        return _lengths(self._loops[name], len(self._steps[name]))

    def _stacked(self, name: str, steps: Sequence[Tensor]) -> Seen:
        source = self.sources.get(name, "evaluated")
        loops = self.loops_of(name)
        if not loops or len({step.shape for step in steps}) > 1:
            return Seen(steps[-1], (), source)
        bits = np.stack([step.bits for step in steps])
        bits = bits.reshape((*loops, *bits.shape[1:]))
        return Seen(Tensor.from_bits(bits, steps[-1].dtype), loops, source)

    def check_found(self) -> None:
        """Raises UsageError (D0911) for names that did not come by."""
        known = [name for name in self.known if name not in self.hidden]
        for selection in self.selections:
            found = any(self._selects(selection, name) for name in self._steps)
            if selection.text != ALL and not found:
                raise UsageError(
                    f"no value of the call is called {selection.text}",
                    code="D0911",
                    help=did_you_mean(selection.text, known) or "--values all shows every one",
                )


def _flaws(tensor: Tensor) -> list[Flaw]:
    if DTYPES[tensor.dtype].kind != "f":
        return []
    numbers = tensor.values()
    found: list[tuple[Flaw, bool]] = [
        ("NaN", bool(np.isnan(numbers).any())),
        ("an infinity", bool(np.isinf(numbers).any())),
    ]
    return [flaw for flaw, is_there in found if is_there]


def beside(seen: Mapping[str, Seen], shown: Mapping[str, Tensor]) -> dict[str, Seen]:
    """Observed values without those that the results show under the same name."""
    return {
        name: one
        for name, one in seen.items()
        if name not in shown or not _is_same(one.value, shown[name])
    }


def _with_steps(selection: Selection, name: str) -> str:
    """What a value is called whose steps are selected: as the user wrote it, if that is one name."""
    if not selection.steps or selection.is_name:
        return selection.text if selection.steps else name
    return name + "".join(f"[{step}]" for step in selection.steps)


def _step(seen: Seen, selection: Selection, name: str) -> Seen:
    """A step of a value."""
    steps = selection.steps
    if len(steps) > len(seen.loops) or any(
        step >= length for step, length in zip(steps, seen.loops, strict=False)
    ):
        loops = " by ".join(map(str, seen.loops))
        there = f"is computed in {loops} steps, counted from 0" if loops else "is in no loop"
        raise UsageError(
            f"{name} {there}: there is no {selection.text}",
            code="D0911",
            help=f"--values {name} shows all of it",
        )
    bits = seen.value.bits[steps]
    return Seen(Tensor.from_bits(bits, seen.value.dtype), seen.loops[len(steps) :], seen.source)


def _lengths(loops: tuple[int | None, ...], count: int) -> tuple[int, ...]:
    """The lengths of the loops around a value that was computed `count` times."""
    known = [length for length in loops if length is not None]
    product = int(np.prod(known))
    if len(known) == len(loops) and product == count:
        return tuple(known)
    if len(known) == len(loops) - 1 and product and count % product == 0:
        return tuple([count // product if length is None else length for length in loops])
    return (count,)  # loops of which the length differs from round to round, or that were left


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
            watch.known.setdefault(name, _place_of(value))
            if watch.wants(name):
                tensor = Tensor.from_bits(np.array(seen), value.type.dtype.name)
                watch.add(name, tensor, _loops_around(value, at))
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


def _place_of(value: Value) -> str:
    place = value.op.location.place if value.op is not None else None
    return str(place) if place is not None else ""


def _loops_around(value: Value, at: Evaluation) -> tuple[int | None, ...]:
    """The lengths of the loops that a value is in, the outermost first; None for a `while`."""
    found: list[int | None] = []
    block = value.block
    while block is not None and block.parent is not None:
        match block.parent:
            case flow.Scan(length=length):
                found.append(at.size(length))
            case flow.While():
                found.append(None)
            case _:
                pass
        block = block.parent.parent
    return tuple(reversed(found))


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
