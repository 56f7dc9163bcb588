"""What a program is: a function of JAX and its arguments, made for several sizes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Tree: TypeAlias = Any
"""Arrays nested in tuples, lists and dictionaries."""
Array: TypeAlias = Any
Function: TypeAlias = Callable[..., Tree]


class Draws:
    """Seeded random arrays."""

    def __init__(self) -> None:
        self._stream = np.random.default_rng(7)

    def __call__(self, *shape: int, scale: float = 1.0) -> Array:
        """Normal numbers in f32."""
        return (scale * self._stream.standard_normal(shape)).astype(np.float32)

    def layer(self, rows: int, columns: int) -> dict[str, Array]:
        """The weights of a dense layer."""
        return {"w": self(rows, columns, scale=rows**-0.5), "b": self(columns, scale=0.1)}

    def whole(self, below: int, *shape: int) -> Array:
        """Integers from 0 on, in i32."""
        return self._stream.integers(0, below, shape, np.int32)


Made: TypeAlias = tuple[Function, tuple[Tree, ...]]
"""A function and its arguments."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program: `make(size, draws)` gives the function and its arguments.

    With `dynamic`, which has for each argument the shape with names as `jax.export.symbolic_shape` takes
    it, one import serves all sizes. `has_gradient` unless it has no float that a float depends on;
    `traces_gradient` unless JAX itself has none in reverse mode, as for a loop without a bound.
    """

    name: str
    make: Callable[[int, Draws], Made]
    sizes: Sequence[int]
    dynamic: tuple[str, ...] | None = None
    has_gradient: bool = True
    traces_gradient: bool = True

    @property
    def gradient_size(self) -> int:
        """The size at which gradients are compared: the middle one."""
        return self.sizes[len(self.sizes) // 2]


PROGRAMS: dict[str, Program] = {}
"""The programs by name."""


def program(
    name: str,
    *sizes: int,
    dynamic: tuple[str, ...] | None = None,
    has_gradient: bool = True,
    traces_gradient: bool = True,
) -> Callable[[Callable[[int, Draws], Made]], Callable[[int, Draws], Made]]:
    """Add what a function makes to the programs."""

    def add(make: Callable[[int, Draws], Made]) -> Callable[[int, Draws], Made]:
        PROGRAMS[name] = Program(name, make, sizes, dynamic, has_gradient, traces_gradient)
        return make

    return add


def load_programs() -> dict[str, Program]:
    """All programs, of every family."""
    for path in sorted((Path(__file__).parent / "programs").glob("[a-z]*.py")):
        importlib.import_module(f"benchmarks.jax_programs.programs.{path.stem}")
    return PROGRAMS
