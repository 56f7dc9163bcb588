"""The context of importing one operation: its operands, its attributes, and where to emit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from dlc.dialects.array import tensor_type
from dlc.errors import DlcError, ModelError, Unsupported
from dlc.importers.solved_sizes import with_sizes
from dlc.importers.stablehlo.facts import Array, Attribute, Elements, Node, Region
from dlc.importers.stablehlo.known import Known
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Shape, Size
from dlc.ir.types import DType, TensorType, Type

Made: TypeAlias = "Value | Sequence[Value]"
"""What an operation makes: its one result, or all of them."""

Body: TypeAlias = Callable[[Builder, Sequence[Value]], Sequence[Value]]
"""Emits what a block computes from its arguments; gives what it hands over."""


class Regions(Protocol):
    """Imports what is inside an operation, and knows what is around it."""

    @property
    def known(self) -> Known:
        """What is known of values."""
        ...

    def block(self, types: Sequence[Type], body: Body) -> Block:
        """A block with arguments of these types, which hands over what `body` gives for them."""
        ...

    def inlined(self, region: Region, values: Sequence[Value], emit: Builder) -> list[Value]:
        """What a region hands over for these values."""
        ...

    def applied(self, region: Region, values: Sequence[Value], emit: Builder) -> list[Value]:
        """What a region on numbers hands over for whole tensors; a constant of it stays a number."""
        ...

    def outer(self, name: str) -> Value:
        """A value that is known around the operation."""
        ...

    def called(self, name: str, values: Sequence[Value], emit: Builder) -> list[Value]:
        """The results of a function of the module."""
        ...

    def function(self, name: str) -> Region:
        """The body of a function of the module."""
        ...

    def large_constant(self, elements: Array, type: TensorType) -> Value:
        """The elements of a large tensor, as a weight."""
        ...

    def required(self, condition: Value) -> None:
        """Note what JAX says that every call fulfils."""
        ...


class NodeContext:
    """One operation while it is imported."""

    def __init__(
        self, node: Node, operands: Sequence[Value], emit: Builder, regions: Regions
    ) -> None:
        self.node = node
        self.operands = operands
        self.emit = emit
        self.regions = regions

    @property
    def known(self) -> Known:
        """What is known of values."""
        return self.regions.known

    @property
    def dtype(self) -> DType:
        """The dtype of its first result."""
        return self.dtype_of(0)

    def dtype_of(self, index: int) -> DType:
        """The dtype of a result."""
        dtype = self.node.types[index].dtype
        assert dtype is not None, "types without a dtype were refused before"
        return dtype

    def shape(self, index: int = 0) -> Shape:
        """The sizes of a result, which the module knows."""
        found = [size for size in self.node.types[index].shape if size is not None]
        if len(found) != len(self.node.types[index].shape):
            raise self.unsupported("makes a tensor whose sizes only a call knows")
        return tuple(found)

    def value(self, index: int) -> Value:
        """An operand."""
        return self.operands[index]

    def type(self, index: int) -> TensorType:
        """The type of an operand."""
        return tensor_type(self.operands[index])

    # Attributes.

    def given(self, name: str) -> Attribute | None:
        """An attribute as it is; None where it is left out."""
        return self.node.attributes.get(name)

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        found = self.given(name)
        return found if isinstance(found, str) else default

    def integer(self, name: str, default: int = 0) -> int:
        """An integer."""
        found = self.given(name)
        return found if isinstance(found, int) else default

    def integers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """A list of integers, or a tensor of them in row-major order."""
        found = self.given(name)
        match found:
            case Elements(array=array, shape=shape):
                count = 1
                for size in shape:
                    count *= size
                flat = [int(item) for item in array.ravel().tolist()]
                return tuple(flat * count if array.ndim == 0 and shape else flat)
            case tuple():
                return tuple([item for item in found if isinstance(item, int)])
            case _:
                return tuple(default)

    def pairs(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """A list of `count` pairs of integers; zeros where it is left out."""
        flat = self.integers(name, (0,) * (2 * count))
        return tuple(zip(flat[::2], flat[1::2], strict=True))

    def pairs_of(self, name: str) -> list[tuple[str, Attribute]]:
        """The entries of a dictionary; none where it is left out."""
        found = self.given(name)
        pairs = (
            [entry for entry in found if isinstance(entry, tuple)]
            if isinstance(found, tuple)
            else []
        )
        return [(key, value) for key, value in pairs if isinstance(key, str)]

    def region(self, index: int = 0) -> Region:
        """A region."""
        return self.node.regions[index]

    # Sizes.

    def sizes(self, index: int) -> tuple[Size, ...]:
        """The elements of an operand as sizes. Raises Unsupported (D0711) for computed numbers."""
        found = self.known.sizes(self.value(index))
        if found is None:
            raise Unsupported(
                f"{self.node.kind} takes a shape from numbers that are computed in a call",
                code="D0711",
            )
        return found

    def like(self, value: Value, shape: Shape) -> Value:
        """A value with the sizes of another, which it has in every call."""
        return value if tensor_type(value).shape == shape else with_sizes(self.emit, value, shape)

    # Refusals.

    def unsupported(self, what: str) -> DlcError:
        """The error for something that StableHLO has and the importer lacks; `what` follows the name."""
        return Unsupported(f"{self.node.kind} {what}", code="D0710")

    def wrong(self, why: str) -> ModelError:
        """The error for an operation that has no meaning; `why` follows its name."""
        return ModelError(f"{self.node.kind} {why}", code="D0521")


Importer: TypeAlias = Callable[[NodeContext], Made]
