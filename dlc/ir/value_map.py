"""The value map: where the user's values are, at any level of lowering.

Every value that the user named, or that the frontend made for one expression, is an *origin*. When a
rewrite replaces a value it says how the new one relates to the old one; the map follows. So a probe, a
profile or a comparison can find the value `h` of the model in the graph, in a fused kernel's result, in
a buffer, or learn that it is gone and from what it can be computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from dlc.ir.core import Array, Evaluation, Value
from dlc.ir.dims import Shape
from dlc.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Equal:
    """The new value is the old one, up to rounding that the optimisation level allows."""

    def recover(self, array: Array, at: Evaluation) -> Array:
        """The old value from the new one."""
        return array


@dataclass(frozen=True, slots=True)
class Permuted:
    """`new = transpose(old, axes)`."""

    axes: tuple[int, ...]

    def recover(self, array: Array, at: Evaluation) -> Array:
        return array.transpose(tuple(sorted(range(len(self.axes)), key=self.axes.__getitem__)))


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The same elements in row-major order; the old value had `shape`."""

    shape: Shape

    def recover(self, array: Array, at: Evaluation) -> Array:
        return array.reshape(at.shape(self.shape))


@dataclass(frozen=True, slots=True)
class Slice:
    """The old value is the part of the new one at `start`, of shape `shape`."""

    start: Shape
    shape: Shape

    def recover(self, array: Array, at: Evaluation) -> Array:
        starts, sizes = at.shape(self.start), at.shape(self.shape)
        return array[tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))]


@dataclass(frozen=True, slots=True)
class Scaled:
    """`new = factor * old`."""

    factor: float

    def recover(self, array: Array, at: Evaluation) -> Array:
        return np.divide(array.astype(np.float64), self.factor).astype(array.dtype)


Step: TypeAlias = Equal | Permuted | Reshaped | Slice | Scaled

EQUAL = Equal()


@dataclass(frozen=True, slots=True)
class Gone:
    """The value no longer exists; `why` says which rewrite removed it.

    The evaluator computes it again from the nearest values that are left (`sources`, their names). Where
    the kernel of another value computes it on the way, that is `into`.
    """

    why: str
    sources: tuple[str, ...] = ()
    into: Value | None = None


Relation: TypeAlias = Step | Gone


@dataclass(slots=True)
class Origin:
    """A value of the user's program: its name, its type, and what became of it.

    `value` is what it is now and `steps` leads from the old to the new, oldest first; `gone` is set
    instead when nothing holds it any more. The name is unique in its function.
    """

    function: str
    name: str
    type: TensorType
    place: str
    value: Value | None
    steps: tuple[Step, ...] = ()
    gone: Gone | None = None

    def recover(self, array: Array, at: Evaluation) -> Array:
        """The user's value, from the array that `value` is now."""
        for step in reversed(self.steps):
            array = step.recover(array, at)
        return array


@runtime_checkable
class Rearrangement(Protocol):
    """An operation whose result has elements of its source alone, so that it can be had from that."""

    @property
    def source(self) -> Value: ...

    def relation(self) -> Step | None:
        """What the source is to the result; None where that has no name."""
        ...


_Key: TypeAlias = tuple[str, str]
"""A function and a name."""


def _named(origins: Iterable[Origin]) -> dict[_Key, Origin]:
    return {(origin.function, origin.name): origin for origin in origins}


class ValueMap:
    """All origins of a module, found by function and name or by what they are now."""

    __slots__ = ("_by_value", "_counts", "_inside", "_origins", "_unread")

    def __init__(self) -> None:
        self._origins: dict[str, dict[str, Origin]] = {}
        self._by_value: dict[Value, list[Origin]] = {}
        self._counts: dict[_Key, int] = {}
        self._inside: dict[Value, dict[_Key, Origin]] = {}
        self._unread: dict[Value, Gone] = {}

    def track(self, value: Value, function: str, name: str, place: str = "-") -> None:
        """Follow a value of a function under a name; a second one of the same name is called `name.1`."""
        assert isinstance(value.type, TensorType)
        origins = self._origins.setdefault(function, {})
        unique, count = name, self._counts.get((function, name), 0)
        while unique in origins:
            count += 1
            unique = f"{name}.{count}"
        self._counts[function, name] = count
        origin = Origin(function, unique, value.type, place, value)
        origins[unique] = origin
        self._by_value.setdefault(value, []).append(origin)

    def of(self, function: str) -> Mapping[str, Origin]:
        """The origins of a function by name, in the order in which they were tracked."""
        return self._origins.get(function, {})

    def replaced(self, old: Value, new: Value | None, relation: Relation) -> None:
        """Note what became of a value; `new` is None exactly when it is gone."""
        moved, inside = self._by_value.pop(old, []), self._inside.pop(old, {})
        if isinstance(relation, Gone) or new is None:
            assert isinstance(relation, Gone) and new is None
            for origin in moved:
                origin.value, origin.gone = None, relation
            if relation.into is not None:
                self._enter(relation.into, {**inside, **_named(moved)})
                return
            for origin in inside.values():
                origin.gone = relation if origin.value is None else None
            return
        self._enter(new, inside)
        for origin in moved:
            origin.value = new
            if not isinstance(relation, Equal):
                origin.steps = (*origin.steps, relation)
        if moved:
            self._by_value.setdefault(new, []).extend(moved)

    def unread(self, value: Value, why: Gone) -> None:
        """Note what has taken the last reader of a value, which is about to be dropped."""
        self._unread[value] = Gone(why.why, why.sources)

    def why_unread(self, value: Value) -> Gone | None:
        """What was noted, which is forgotten then; None where nothing was."""
        return self._unread.pop(value, None)

    def shared(self, old: Value, by: Value) -> None:
        """Note that the kernel of another value computes a value on its way, too; the old one may stay."""
        self._enter(by, {**self._inside.get(old, {}), **_named(self.origins_of(old))})

    def _enter(self, value: Value, origins: Mapping[_Key, Origin]) -> None:
        if origins:
            self._inside.setdefault(value, {}).update(origins)

    def inside(self, value: Value) -> list[Origin]:
        """The user's values that the kernel of this value computes on its way, and does not store."""
        return list(self._inside.get(value, {}).values())

    def rearranged(self, result: Value, op: Rearrangement) -> None:
        """Note that the result of an operation is had from its source, which stays."""
        relation = op.relation()
        if relation is not None:
            self.replaced(result, op.source, relation)

    def origins_of(self, value: Value) -> list[Origin]:
        """The user's values that this value now stands for."""
        return self._by_value.get(value, [])

    def __iter__(self) -> Iterator[Origin]:
        return (origin for origins in self._origins.values() for origin in origins.values())
