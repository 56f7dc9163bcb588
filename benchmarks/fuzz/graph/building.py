"""Random ONNX graphs while they are made: values with their shapes at two sizes, nodes and constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.fuzz.program import late_one

Array: TypeAlias = NDArray[Any]
Letter: TypeAlias = Literal["f", "i", "b"]
Size: TypeAlias = tuple[int, int]
"""A size of an axis at the first and at the second size of the graph."""
Shape: TypeAlias = tuple[Size, ...]

OPSETS = (11, 13, 15, 17, 18, 19, 20, 21, 22)
SIZES = (1, 2, 3, 4, 6)
NAMES: dict[str, Size] = {"N": (2, 5), "T": (4, 7), "S": (3, 1)}
"""Sizes that have names, at the first and at the second size."""


def same(size: int) -> Size:
    """A size that is the same at both."""
    return size, size


def fixed(*sizes: int) -> Shape:
    """A shape that is the same at both sizes."""
    return tuple([(size, size) for size in sizes])


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor: its name, its shape, and whether it has floats, integers or conditions."""

    name: str
    shape: Shape
    letter: Letter = "f"

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    def known(self, axis: int) -> bool:
        """Whether the size of an axis is the same at both sizes."""
        return self.shape[axis][0] == self.shape[axis][1]

    @property
    def is_fixed(self) -> bool:
        """Whether the whole shape is."""
        return all(one == two for one, two in self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape at the first size."""
        return tuple([one for one, _ in self.shape])

    @property
    def elements(self) -> int:
        """How many there are, at most."""
        return max(int(np.prod([size[k] for size in self.shape])) for k in (0, 1))


@dataclass(slots=True)
class Graph:
    """A graph that grows. Its floats are f32, or the same numbers in f64 for its exact meaning."""

    random: Random
    opset: int
    floats: np.dtype[Any]
    names: dict[str, Size] = field(default_factory=dict[str, Size])
    nodes: list[NodeProto] = field(default_factory=list[NodeProto])
    tensors: dict[str, Array] = field(default_factory=dict[str, Array])
    inputs: dict[str, tuple[Value, tuple[int | str, ...]]] = field(
        default_factory=dict[str, tuple[Value, tuple[int | str, ...]]]
    )
    values: list[Value] = field(default_factory=list[Value])
    count: int = 0

    # Numbers.

    def numbers(self, shape: Sequence[int], low: float = -2.0, high: float = 2.0) -> Array:
        """Floats between two bounds: in f64 the same as in f32."""
        stream = np.random.default_rng(self.random.getrandbits(32))
        return stream.uniform(low, high, tuple(shape)).astype(np.float32).astype(self.floats)

    def whole(self, shape: Sequence[int], low: int, high: int) -> Array:
        """Integers from `low` to `high`, without it."""
        stream = np.random.default_rng(self.random.getrandbits(32))
        return stream.integers(low, high, tuple(shape), np.int64)

    def scalar(self, number: float) -> Array:
        """A float without axes."""
        return np.asarray(number, self.floats)

    @property
    def onnx_float(self) -> int:
        """What ONNX calls the dtype of floats."""
        return helper.np_dtype_to_tensor_dtype(self.floats)

    # Building.

    def fresh(self, letter: str = "v") -> str:
        """A new name."""
        self.count += 1
        return f"{letter}{self.count}"

    def has(self, kind: str) -> bool:
        """Whether the version of the operators has this one."""
        return onnx.defs.has(kind, self.opset)

    def constant(self, array: Array) -> str:
        """A constant: of the file's, or made by a node."""
        name = self.fresh("k")
        if self.random.random() < 0.3:
            tensor = numpy_helper.from_array(array, name)
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.tensors[name] = array
        return name

    def ints(self, *numbers: int) -> str:
        """A constant of integers along one axis."""
        return self.constant(np.asarray(numbers, np.int64))

    def node(
        self, kind: str, inputs: Sequence[str], outputs: int = 1, /, **more: object
    ) -> list[str]:
        """A node; gives the names of its results."""
        made = [self.fresh() for _ in range(outputs)]
        node: Any = helper.make_node(kind, list(inputs), made, **more)  # pyright: ignore[reportArgumentType]
        self.nodes.append(node)
        return made

    def make(
        self,
        kind: str,
        inputs: Sequence[Value | str],
        shape: Shape,
        letter: Letter = "f",
        /,
        **more: object,
    ) -> Value:
        """The result of a node that has one."""
        names = [each if isinstance(each, str) else each.name for each in inputs]
        (name,) = self.node(kind, names, 1, **more)
        return Value(name, shape, letter)

    def keep(self, *values: Value) -> None:
        """Later nodes may use these."""
        self.values += values

    # Choosing.

    def pick(
        self, letter: Letter = "f", wanted: Callable[[Value], bool] | None = None
    ) -> Value | None:
        """One of the values so far, a late one rather than an early one."""
        return late_one(
            self.random,
            [v for v in self.values if v.letter == letter and (wanted is None or wanted(v))],
        )

    def axis(self, value: Value) -> int:
        """An axis of a value, counted from the front or from the end."""
        axis = self.random.randrange(value.rank)
        return axis - value.rank if self.random.random() < 0.3 else axis

    def input(self, letter: Letter = "f", rank: int | None = None) -> Value:
        """A new input with sizes that have names, perhaps."""
        if rank is None:
            rank = self.random.choice((1, 2, 2, 3, 3, 4))
        declared: list[int | str] = []
        for _ in range(rank):
            named = bool(self.names) and self.random.random() < 0.4
            declared.append(
                self.random.choice(sorted(self.names)) if named else self.random.choice(SIZES)
            )
        shape = tuple([self.names[s] if isinstance(s, str) else (s, s) for s in declared])
        value = Value(self.fresh("x"), shape, letter)
        self.inputs[value.name] = value, tuple(declared)
        self.keep(value)
        return value

    # What comes of it.

    def model(self, outputs: Sequence[Value]) -> ModelProto:
        """The model with these results."""
        declared = [
            helper.make_tensor_value_info(name, self._dtype(value.letter), shape)
            for name, (value, shape) in self.inputs.items()
        ]
        results = [
            helper.make_tensor_value_info(value.name, self._dtype(value.letter), None)
            for value in outputs
        ]
        held = [numpy_helper.from_array(array, name) for name, array in self.tensors.items()]
        graph = helper.make_graph(self.nodes, "fuzz", declared, results, held)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def _dtype(self, letter: str) -> int:
        return {"f": self.onnx_float, "i": TensorProto.INT64, "b": TensorProto.BOOL}[letter]

    def arrays(self, seed: int, at: int) -> dict[str, Array]:
        """Arrays for the inputs, at the first or the second size."""
        found: dict[str, Array] = {}
        for k, (name, (value, _)) in enumerate(self.inputs.items()):
            stream = np.random.default_rng([seed, at, k])
            shape = tuple([size[at] for size in value.shape])
            match value.letter:
                case "f":
                    array = stream.uniform(-2, 2, shape).astype(np.float32)
                    found[name] = array.astype(self.floats)
                case "i":
                    found[name] = stream.integers(-5, 6, shape, np.int64)
                case "b":
                    found[name] = stream.integers(0, 2, shape).astype(np.bool_)
        return found


Maker: TypeAlias = Callable[[Graph], Value | None]
"""Adds nodes to a graph and gives the result; None where nothing in the graph suits."""
