"""Random programs while they are made: every statement in our language and in Python for JAX.

`{F}` stands for the dtype of floats in our text, so that the same program can be evaluated in f64; the
Python text takes it from its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias, TypeVar

T = TypeVar("T")

Letter: TypeAlias = Literal["f", "i", "b"]
SIZES = (1, 2, 3, 4, 5)
DIMS: dict[str, tuple[int, int]] = {"N": (3, 4), "T": (5, 2)}
"""Sizes with names at the two sizes that a program is run at."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A size of an axis at the two sizes, and how our language writes it."""

    sizes: tuple[int, int]
    text: str

    @property
    def is_fixed(self) -> bool:
        """Whether it is a number in the text."""
        return self.text.isdecimal()


def axis_of(size: int) -> Axis:
    """An axis of a size that is a number."""
    return Axis((size, size), str(size))


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that has a name."""

    name: str
    shape: tuple[Axis, ...]
    letter: Letter = "f"

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """How many there are, at most."""
        most = 1
        for axis in self.shape:
            most *= max(axis.sizes)
        return most

    @property
    def sizes(self) -> str:
        """The shape in our language."""
        return ", ".join(axis.text for axis in self.shape)

    @property
    def type(self) -> str:
        """The type in our language."""
        dtype = {"f": "{F}", "i": "i32", "b": "bool"}[self.letter]
        return f"{dtype}[{self.sizes}]" if self.shape else dtype


def late_one(random: Random, values: Sequence[T]) -> T | None:
    """The last value half of the time, otherwise any, so that programs are deep; None of no values."""
    if not values:
        return None
    return values[-1] if random.random() < 0.5 else random.choice(values)


@dataclass(slots=True)
class Program:
    """The body of a function, statement by statement."""

    random: Random
    dims: dict[str, tuple[int, int]]
    inputs: list[Value] = field(default_factory=list[Value])
    values: list[Value] = field(default_factory=list[Value])
    ours: list[str] = field(default_factory=list[str])
    theirs: list[str] = field(default_factory=list[str])
    count: int = 0

    def input(self, letter: Letter = "f") -> Value:
        """One more input; floats always have at least one axis."""
        random = self.random
        shape: list[Axis] = []
        for _ in range(random.choice((1, 2, 2, 3))):
            if self.dims and random.random() < 0.35:
                name = random.choice(sorted(self.dims))
                shape.append(Axis(self.dims[name], name))
            else:
                shape.append(axis_of(random.choice(SIZES)))
        value = Value(f"{'x' if letter == 'f' else 'n'}{len(self.inputs)}", tuple(shape), letter)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def fresh(self) -> str:
        """A new name."""
        self.count += 1
        return f"v{self.count}"

    def let(self, ours: str, theirs: str, shape: Sequence[Axis], letter: Letter = "f") -> Value:
        """Name a value in both languages."""
        value = Value(self.fresh(), tuple(shape), letter)
        self.ours.append(f"let {value.name} = {ours}")
        self.theirs.append(f"{value.name} = {theirs}")
        self.values.append(value)
        return value

    def pick(
        self, letter: Letter = "f", wanted: Callable[[Value], bool] | None = None
    ) -> Value | None:
        """One of the values so far, a late one rather than an early one."""
        return late_one(
            self.random,
            [v for v in self.values if v.letter == letter and (wanted is None or wanted(v))],
        )


Step: TypeAlias = Callable[[Program], object]
"""Adds a statement to a program where something in it suits."""
