"""The context of an operator's importer: its node, its operands, and a builder for the results.

An operand is a value of the IR or a constant that is known while importing. Constants of integers may
have symbolic sizes among their elements: that is how computations with shapes are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from dlc.dialects import array
from dlc.dialects.array.shape import reshape
from dlc.errors import DlcError, ModelError, Unsupported
from dlc.importers.broadcasting import stretched
from dlc.importers.onnx.delayed_tensor import DelayedTensor
from dlc.importers.onnx.facts import DTYPES, Array, Graph, Node, Tensor
from dlc.importers.solved_sizes import agreed_size, with_sizes
from dlc.ir.attributes import INLINE_BYTES, Dense, decode
from dlc.ir.bounded import never_negative
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import Bounds, Dim, Shape, Size
from dlc.ir.location import Location
from dlc.ir.types import I64, DType, TensorType, Type

FOLDED = 4096
"""Nodes on constants are computed while importing if they make at most this many elements."""
LONGEST = 1 << 16
"""Numbers of one operand that decide a shape: none of ONNX needs more than a few for each axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor known while importing; one with symbolic sizes holds Python objects.

    `name` is that of the weight in the file, if it is one.
    """

    array: Array
    dtype: DType
    name: str | None = None

    @property
    def is_symbolic(self) -> bool:
        """Whether a symbolic size is among the elements."""
        return self.array.dtype == object

    @property
    def sizes(self) -> list[Size]:
        """The elements as sizes, row-major."""
        return [
            item if isinstance(item, Dim) else int(item) for item in self.array.ravel().tolist()
        ]

    @property
    def is_small(self) -> bool:
        """Whether it may be in the IR."""
        return self.is_symbolic or self.array.size * self.dtype.bytes <= INLINE_BYTES

    @classmethod
    def of_sizes(cls, sizes: Sequence[Size], shape: Sequence[int] | None = None) -> Constant:
        """Sizes as a tensor of i64, by default of one axis."""
        symbolic = any(isinstance(size, Dim) for size in sizes)
        elements = np.empty(len(sizes), object if symbolic else np.int64)
        elements[:] = list(sizes)
        return cls(elements.reshape(len(sizes) if shape is None else shape), I64)


Operand: TypeAlias = Value | Constant


@dataclass(frozen=True, slots=True, eq=False)
class TensorSequence:
    """A sequence of tensors. How many they are is known while importing: it is only its elements."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Absent:
    """An optional value that is not there; one that is there is the value itself."""


AnyValue: TypeAlias = Operand | TensorSequence | Absent | DelayedTensor
"""What a name of a graph may stand for: a tensor, which most operators take, or one of the others."""


class Regions(Protocol):
    """Imports the graphs inside a node, and knows what is around it."""

    @property
    def bounds(self) -> Bounds:
        """Lowest and highest values of the sizes that inputs have; those that are counted may be 0."""
        ...

    @property
    def conditions(self) -> list[Value]:
        """The computed conditions of the choices that the node is in, the outermost first."""
        ...

    def known(self, name: str) -> AnyValue | None:
        """What a name stands for where the node is; None for one that was not imported."""
        ...

    def inline(self, graph: Graph, operands: Sequence[AnyValue] = ()) -> list[AnyValue]:
        """Import the graph where its node stands, its inputs being the operands; return the results."""
        ...

    def block(
        self, graph: Graph, types: Sequence[Type], arguments: Sequence[int]
    ) -> tuple[Block, list[AnyValue]]:
        """As a block with arguments of these types; the graph's inputs are those of these numbers.

        Tensors among the results are values.
        """
        ...

    def attempted(
        self, graph: Graph, types: Sequence[Type], arguments: Sequence[int]
    ) -> tuple[Block, list[AnyValue]] | None:
        """The same, or None where something in the graph is not imported, which is not reported."""
        ...

    def require(self, size: Size, told: str, location: Location) -> None:
        """Let calls be checked for a size that must be 0 or more; `told` says what is wrong otherwise."""
        ...

    def fresh_dim(self, line: int) -> str:
        """The name of a size that a node of this line counts; each is given once."""
        ...

    def origins(self, value: Value) -> Sequence[str]:
        """The inputs of the model that a value follows from, if they are numbers or lists of them."""
        ...


Weights: TypeAlias = Callable[[Builder, Constant], Value]
"""Gives the value of a constant too large for the IR."""


class NodeContext:
    """One node while it is imported."""

    def __init__(
        self,
        node: Node,
        operands: Sequence[AnyValue | None],
        emit: Builder,
        weights: Weights,
        regions: Regions,
    ) -> None:
        self.node = node
        self.operands = operands
        self.emit = emit
        self.regions = regions
        self._weights = weights

    def emitting(self, emit: Builder, operands: Sequence[AnyValue | None] = ()) -> NodeContext:
        """The same node, imported to another place, perhaps of other operands."""
        return NodeContext(self.node, operands or self.operands, emit, self._weights, self.regions)

    @property
    def opset(self) -> int:
        """The version of the operators' meaning."""
        return self.node.opset

    # Operands.

    def any_value(self, index: int) -> AnyValue | None:
        """An operand of any kind; None where it is left out."""
        return self.operands[index] if index < len(self.operands) else None

    def operand(self, index: int) -> Operand | None:
        """A tensor as it is; None where it is left out."""
        found = self.any_value(index)
        if isinstance(found, DelayedTensor):
            raise found.undecided()
        if isinstance(found, TensorSequence | Absent):
            kind = "a sequence" if isinstance(found, TensorSequence) else "nothing"
            raise self.wrong(f"takes a tensor as its input {index}, found {kind}")
        return found

    def sequence(self, index: int) -> tuple[Operand, ...]:
        """The elements of a sequence."""
        found = self.any_value(index)
        if not isinstance(found, TensorSequence):
            raise self.wrong(f"takes a sequence as its input {index}")
        return found.items

    def needed(self, index: int) -> Operand:
        """An operand that must be there."""
        operand = self.operand(index)
        if operand is None:
            raise self.wrong(f"lacks its input {index}")
        return operand

    def value(self, index: int) -> Value:
        """An operand as a value of the IR."""
        return self.as_value(self.needed(index))

    def optional(self, index: int) -> Value | None:
        """An operand as a value of the IR, or None where it is left out."""
        operand = self.operand(index)
        return None if operand is None else self.as_value(operand)

    def values(self) -> list[Value]:
        """All operands; at least one."""
        return [self.value(index) for index in range(max(1, len(self.operands)))]

    def type(self, index: int) -> TensorType:
        """Type of an operand; raises for a symbolic constant only in its use as a value."""
        operand = self.needed(index)
        if isinstance(operand, Value):
            return array.tensor_type(operand)
        return TensorType(operand.dtype, operand.array.shape)

    def as_value(self, operand: Operand) -> Value:
        """The operand in the IR: small constants inline, others as weights, sizes from the call."""
        if isinstance(operand, Value):
            return operand
        if operand.is_symbolic:
            return self._extents(operand)
        if operand.is_small:
            data = np.ascontiguousarray(operand.array).reshape(operand.array.shape)
            return self.emit(array.Constant(Dense.of(data, operand.dtype)), operand.name or None)
        if not any(operand.array.strides):
            one = decode(operand.array.flat[:1], operand.dtype)
            type = TensorType(operand.dtype, operand.array.shape)
            return array.fill(self.emit, one.item(), type)
        return self._weights(self.emit, operand)

    def _extents(self, constant: Constant) -> Value:
        """Numbers of which some depend on the sizes of a call."""
        parts: list[Value] = []
        for size in constant.sizes:
            if isinstance(size, Dim):
                number = self.emit(array.Extent(size))
            else:
                number = array.fill(self.emit, size, TensorType(I64))
            parts.append(reshape(self.emit, number, (1,)))
        whole = parts[0] if len(parts) == 1 else self.emit(array.Concatenate(tuple(parts), 0))
        shaped = reshape(self.emit, whole, constant.array.shape)
        dtype = constant.dtype
        return shaped if dtype is I64 else self.emit(array.Cast(shaped, dtype))

    def constant(self, index: int) -> Constant:
        """An operand that decides a shape or a choice: it must be known while importing."""
        operand = self.needed(index)
        if isinstance(operand, Constant):
            return operand
        raise self.undecided(index)

    def _listed(self, index: int) -> Constant:
        """The same, few enough to be listed; a file of some bytes may hold any number of equal ones."""
        constant = self.constant(index)
        if constant.array.size > LONGEST:
            raise self.wrong(
                f"takes a few numbers as its input {index}, found {constant.array.size}"
            )
        return constant

    def sizes(self, index: int) -> list[Size]:
        """The elements of a constant operand as sizes."""
        constant = self._listed(index)
        if not constant.is_symbolic and not constant.dtype.is_integer:
            raise self.wrong(f"takes integers as its input {index}, found {constant.dtype.name}")
        return constant.sizes

    def integers(self, index: int) -> list[int]:
        """The elements of a constant operand as numbers."""
        sizes = self.sizes(index)
        numbers = [size for size in sizes if isinstance(size, int)]
        if len(numbers) != len(sizes):
            raise self.unsupported(f"by its input {index} depends on the size of another tensor")
        return numbers

    def floats(self, index: int) -> list[float]:
        """The elements of a constant operand as floats."""
        constant = self._listed(index)
        if constant.is_symbolic:
            raise self.unsupported(f"by its input {index} depends on the size of another tensor")
        return [float(number) for number in decode(constant.array, constant.dtype).ravel().tolist()]

    # Attributes.

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that is an integer."""
        value = self.node.attributes.get(name, default)
        if not isinstance(value, int):
            raise self._attribute(name, "an integer")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """An attribute that is 0 or 1."""
        return self.integer(name, int(default)) != 0

    def number(self, name: str, default: float | None = None) -> float:
        """An attribute that is a float."""
        value = self.node.attributes.get(name, default)
        if not isinstance(value, int | float):
            raise self._attribute(name, "a number")
        return float(value)

    def text(self, name: str, default: str) -> str:
        """An attribute that is a text."""
        value = self.node.attributes.get(name, default)
        if not isinstance(value, str):
            raise self._attribute(name, "a text")
        return value

    def texts(self, name: str) -> Sequence[str]:
        """An attribute that is a list of texts; empty where it is left out."""
        value = self.node.attributes.get(name, ())
        texts = (
            [item for item in value if isinstance(item, str)] if isinstance(value, tuple) else None
        )
        if texts is None or not isinstance(value, tuple) or len(texts) != len(value):
            raise self._attribute(name, "a list of texts")
        return texts

    def list(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers; None where it is left out."""
        value = self.node.attributes.get(name)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise self._attribute(name, "a list of integers")
        integers = tuple([item for item in value if isinstance(item, int)])
        if len(integers) != len(value):
            raise self._attribute(name, "a list of integers")
        return integers

    def numbers(self, name: str) -> list[float]:
        """An attribute that is a list of floats."""
        value = self.node.attributes.get(name)
        if not isinstance(value, tuple):
            raise self._attribute(name, "a list of numbers")
        return [float(number) for number in value]

    def dtype(self, name: str) -> DType:
        """An attribute that names an element type."""
        dtype = DTYPES.get(self.integer(name))
        if dtype is None:
            raise self.unsupported(f"makes the ONNX element type {self.integer(name)}")
        return dtype

    def tensor(self, name: str) -> Tensor | None:
        """An attribute that is a tensor; None where it is left out."""
        value = self.node.attributes.get(name)
        if value is None or isinstance(value, Tensor):
            return value
        raise self._attribute(name, "a tensor")

    def graph(self, name: str) -> Graph:
        """An attribute that is a graph."""
        value = self.node.attributes.get(name)
        if not isinstance(value, Graph):
            raise self._attribute(name, "a graph")
        return value

    def axis(self, axis: int, rank: int) -> int:
        """An axis that may count from the end, as one that counts from the start."""
        if not -rank <= axis < rank:
            raise self.wrong(f"speaks of axis {axis} of a tensor with {rank} axes")
        return axis % rank if rank else 0

    def permutation(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """All axes of a tensor in some order."""
        if sorted(axes) != list(range(rank)):
            raise self.wrong(f"puts the axes of a tensor with {rank} axes into the order {[*axes]}")
        return tuple(axes)

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Several axes, in rising order."""
        ordered = sorted({self.axis(axis, rank) for axis in axes})
        if len(ordered) != len(axes):
            raise self.wrong(f"names an axis twice: {list(axes)}")
        return tuple(ordered)

    # Sizes.

    def common_size(self, sizes: Collection[Size]) -> Size:
        """The size that all are, 1 for none. Raises ModelError (D0521) where two surely differ."""
        if not sizes:
            return 1
        size = agreed_size(sizes, self.regions.bounds)
        if size is None:
            texts = " and ".join(sorted(map(str, sizes)))
            raise self.wrong(f"combines axes of the sizes {texts}")
        return size

    def with_common_axis(self, *places: tuple[Value, int]) -> list[Value]:
        """Values with the same size along an axis of each. Raises as `common_size`."""
        size = self.common_size({array.tensor_type(value).shape[axis] for value, axis in places})
        return [self._with_axis(value, axis, size) for value, axis in places]

    def _with_axis(self, value: Value, axis: int, size: Size) -> Value:
        shape = list(array.tensor_type(value).shape)
        shape[axis] = size
        return with_sizes(self.emit, value, shape)

    def require(self, size: Size, told: str) -> None:
        """Let calls be checked for a size that must be 0 or more; `told` follows the name of the node."""
        if not never_negative(size, self.regions.bounds):
            self.regions.require(size, f"{self.node.kind} {told}", self.emit.location)

    # Refusals.

    def wrong(self, why: str, help: str | None = None) -> ModelError:
        """The error for a node that has no meaning; `why` follows its name."""
        return ModelError(f"{self.node.kind} {why}", code="D0521", help=help)

    def unsupported(self, what: str) -> DlcError:
        """The error for something that ONNX has and the importer lacks; `what` follows the name."""
        return Unsupported(f"{self.node.kind} {what}", code="D0710")

    def unknown(self, what: str, value: Value) -> DlcError:
        """The error for a decision that takes a value of a call; names the options that fix it, if any."""
        names = self.regions.origins(value)
        fixed = " ".join([f"--fix {name}=VALUE" for name in names])
        source = f" from its input {', '.join(names)}" if names else ""
        return Unsupported(
            f"{self.node.kind} {what}{source}",
            code="D0711",
            help=f"{fixed} takes one value for good" if names else None,
        )

    def undecided(self, index: int) -> DlcError:
        """The error for a shape that an operand decides in a call."""
        told = f"decides a shape by its input {index}, which is computed when the model runs"
        return self.unknown(told, self.value(index))

    def _attribute(self, name: str, kind: str) -> ModelError:
        problem = "is missing" if name not in self.node.attributes else f"is not {kind}"
        return self.wrong(f"has an attribute {name} that {problem}")


NodeResults: TypeAlias = AnyValue | Sequence[AnyValue]
Importer: TypeAlias = Callable[[NodeContext], NodeResults]


def broadcast(context: NodeContext, *values: Value) -> list[Value]:
    """Values in one shape, each stretched as NumPy does."""
    shapes = [array.tensor_type(value).shape for value in values]
    shape = common_shape(context, shapes)
    return [stretched(context.emit, narrowed(context, value, shape), shape) for value in values]


def narrowed(context: NodeContext, value: Value, shape: Shape) -> Value:
    """A value that is to be stretched to a shape: what is 1 at most, and not that of the shape, is 1."""
    own = array.tensor_type(value).shape
    wide = shape[len(shape) - len(own) :]
    return with_sizes(
        context.emit,
        value,
        [
            1 if size != other and _is_narrow(context, size) else size
            for size, other in zip(own, wide, strict=True)
        ],
    )


def _is_narrow(context: NodeContext, size: Size) -> bool:
    """Whether a size is surely 1 at most, as that of `w[S - 1:S]`, which is 0 where w is shorter."""
    return never_negative(1 - size, context.regions.bounds)


def common_shape(context: NodeContext, shapes: Sequence[Shape]) -> Shape:
    """The shape that shapes are stretched to; of sizes that only a call can compare, the simplest.

    One that is 1 at most is taken for 1 beside others. Raises ModelError (D0521) where two sizes surely
    differ.
    """
    found: list[Size] = []
    for axis in range(-max(map(len, shapes)), 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            sizes = {size for size in sizes if not _is_narrow(context, size)} or sizes
        found.append(context.common_size(sizes))
    return tuple(found)
