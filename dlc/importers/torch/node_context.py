"""The context of importing one ATen operator: its node, its operands, and where to emit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from dlc.dialects import array
from dlc.dialects.nn.rows import in_dtype
from dlc.errors import DlcError, ModelError, Unsupported
from dlc.importers.broadcasting import stretched
from dlc.importers.torch.facts import Argument, Calculated, Graph, Node, Ref
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Bounds, Dim, Shape, Size
from dlc.ir.types import F32, F64, DType, TensorType, Type

Operand: TypeAlias = "Value | tuple[Operand | None, ...] | None"
"""What a node makes: a value, several, or none for a result that nobody uses."""


class Regions(Protocol):
    """Imports the graphs inside a node, and knows what is around it."""

    @property
    def bounds(self) -> Bounds:
        """Lowest and highest values of the sizes that inputs have."""
        ...

    @property
    def counted(self) -> Bounds:
        """Those of the sizes that have been counted."""
        ...

    def operand(self, name: str) -> Operand:
        """What a node or an input made."""
        ...

    def block(self, graph: Graph, types: Sequence[Type]) -> tuple[Block, list[Value]]:
        """A graph as a block with arguments of these types, and its results in it."""
        ...

    def places(self, emit: Builder, mask: Value, names: Sequence[str]) -> Value:
        """Where a tensor is not 0, counted once; their number has the first of the names that is free."""
        ...

    def random_key(self, emit: Builder) -> Value:
        """A key for the random numbers of one node, which no other node has."""
        ...


CALCULATIONS: dict[str, Callable[[Value, Value], Op]] = {
    "add": array.Add,
    "divide": array.Divide,
    "multiply": array.Multiply,
}
"""What is calculated from sizes, by the function's name."""


class NodeContext:
    """One node while it is imported."""

    def __init__(self, node: Node, emit: Builder, regions: Regions) -> None:
        self.node = node
        self.emit = emit
        self.regions = regions

    # Results.

    @property
    def type(self) -> TensorType:
        """The type of its first result."""
        return self.type_of(0)

    @property
    def any_type(self) -> TensorType:
        """The type of the first of its results that anything reads."""
        return next((each for each in self.node.types if each is not None), None) or self.type

    def type_of(self, index: int) -> TensorType:
        """The type of a result, which is a tensor."""
        found = self.node.types[index] if index < len(self.node.types) else None
        if found is None:
            raise self.unsupported(f"has no tensor as its result {index}")
        return found

    # Operands.

    def given(self, name: str) -> Argument:
        """An argument as it is; None where the operator has none of that name."""
        return self.node.arguments.get(name)

    def value(self, name: str, dtype: DType | None = None) -> Value:
        """A tensor; a number becomes one, without axes. It is cast to the dtype that is asked for."""
        found = self.as_value(self.given(name), name, dtype)
        return found if dtype is None else in_dtype(self.emit, found, dtype)

    def optional(self, name: str, dtype: DType | None = None) -> Value | None:
        """A tensor, or None where it is left out."""
        return None if self.given(name) is None else self.value(name, dtype)

    def values(self, name: str, dtype: DType | None = None) -> list[Value]:
        """The tensors of a list."""
        found = self.given(name)
        if not isinstance(found, tuple):
            raise self.unsupported(f"has no list of tensors as {name}")
        values = [self.as_value(part, name, dtype) for part in found]
        return values if dtype is None else [in_dtype(self.emit, v, dtype) for v in values]

    def as_value(self, argument: Argument, name: str, dtype: DType | None = None) -> Value:
        """An argument as a value; a number in the given dtype, else in that of the first result."""
        match argument:
            case Ref(source):
                found = self.regions.operand(source)
                if isinstance(found, Value):
                    return found
                raise self.unsupported(f"reads {source} as {name}, which is not a tensor")
            case Dim():
                return in_dtype(self.emit, self.emit(array.Extent(argument)), dtype or self.dtype)
            case Calculated():
                return in_dtype(self.emit, self._calculated(argument), dtype or self.dtype)
            case int() | float():
                return array.fill(self.emit, argument, TensorType(dtype or self.dtype))
            case _:
                raise self.unsupported(f"takes {argument} as {name}, which is not imported")

    def _calculated(self, number: Calculated | Size | float) -> Value:
        """A number that is calculated from sizes, in f64."""
        type = TensorType(F64)
        match number:
            case Calculated("sqrt", (only,)):
                return self.emit(array.Sqrt(self._calculated(only)))
            case Calculated(function, parts):
                first, *rest = [self._calculated(part) for part in parts]
                for other in rest:
                    first = self.emit(CALCULATIONS[function](first, other))
                return first
            case Dim():
                return in_dtype(self.emit, self.emit(array.Extent(number)), F64)
            case _:
                return array.fill(self.emit, number, type)

    @property
    def dtype(self) -> DType:
        """That of its first result."""
        return self.type.dtype

    def stretched(self, name: str, shape: Shape | None = None, dtype: DType | None = None) -> Value:
        """A tensor or a number in the shape and the dtype of the result, or in others."""
        found = self.value(name, dtype or self.dtype)
        return stretched(self.emit, found, self.type.shape if shape is None else shape)

    def tensor(self, name: str) -> TensorType:
        """The type of an operand that is a tensor."""
        return array.tensor_type(self.value(name))

    # Arguments that are not tensors.

    def size(self, name: str, default: Size | None = None) -> Size:
        """An integer, which may be symbolic."""
        found = self.given(name)
        found = default if found is None else found
        if isinstance(found, int | Dim):
            return found
        raise self.unsupported(f"takes {found} as {name}, which is not imported")

    def sizes(self, name: str) -> tuple[Size, ...]:
        """A list of integers, which may be symbolic; one alone counts as a list."""
        found = self.given(name)
        parts = found if isinstance(found, tuple) else (found,)
        sizes = [part for part in parts if isinstance(part, int | Dim)]
        if len(sizes) != len(parts):
            raise self.unsupported(f"takes {found} as {name}, which is not imported")
        return tuple(sizes)

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer that is known while importing."""
        found = self.size(name, default)
        if isinstance(found, int):
            return found
        raise self.unsupported(f"by its {name} depends on the size of a tensor")

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of integers that are known while importing; empty where it is left out."""
        if self.given(name) is None:
            return ()
        sizes = self.sizes(name)
        found = [size for size in sizes if isinstance(size, int)]
        if len(found) != len(sizes):
            raise self.unsupported(f"by its {name} depends on the size of a tensor")
        return tuple(found)

    def flag(self, name: str) -> bool:
        """A bool; False where it is left out."""
        return bool(self.given(name))

    def number(self, name: str, default: float | None = None) -> float:
        """A number that is known while importing."""
        found = self.given(name)
        found = default if found is None else found
        if isinstance(found, int | float):
            return float(found)
        raise self.unsupported(f"takes {found} as {name}, which is not imported")

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        found = self.given(name)
        return found if isinstance(found, str) else default

    def graph(self, name: str) -> Graph:
        """A graph inside the node."""
        found = self.given(name)
        if isinstance(found, Graph):
            return found
        raise self.unsupported(f"has no graph as {name}")

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        """An axis that may count from the end, as one that counts from the start."""
        return self.integer(name, default) % max(rank, 1)

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """Several axes in rising order; all where the list is left out or empty."""
        found = {axis % max(rank, 1) for axis in self.integers(name)} if rank else set[int]()
        return tuple(sorted(found)) or tuple(range(rank))

    def spatial(self, name: str, count: int, default: int | None = None) -> tuple[int, ...]:
        """A list with one integer for each spatial axis; one alone counts for all of them."""
        found = self.integers(name)
        if not found and default is not None:
            found = (default,)
        return found * count if len(found) == 1 else found

    # Refusals.

    def unsupported(self, what: str) -> DlcError:
        """The error for something that ATen has and the importer lacks; `what` follows the name."""
        return Unsupported(f"{self.node.kind} {what}", code="D0710")

    def wrong(self, why: str) -> ModelError:
        """The error for a node that has no meaning; `why` follows its name."""
        return ModelError(f"{self.node.kind} {why}", code="D0521")


Importer: TypeAlias = Callable[[NodeContext], Operand]


def computed_dtype(*types: TensorType) -> DType:
    """The dtype in which tensors are compared: the one that holds all of them, as PyTorch promotes."""
    ranked = sorted(types, key=lambda type: (type.rank > 0, _class(type.dtype), type.dtype.bits))
    best = ranked[-1].dtype
    for type in types:
        if _class(type.dtype) > _class(best):
            best = type.dtype if type.rank else F32
    return best


def _class(dtype: DType) -> int:
    """bool, then integers, then floats."""
    return 2 if dtype.is_float else int(dtype.kind != "bool")


def finite(number: float) -> bool:
    """Whether a number is neither infinite nor NaN."""
    return math.isfinite(number)
