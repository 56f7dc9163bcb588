"""The facts of a StableHLO module that the importer works on, in plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.importers.imported import ImportedScope
from dlc.ir.types import DType

Array: TypeAlias = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Declared:
    """A type as the module writes it: the dtype, None where dlc has none such, and the sizes.

    A size is None where only a call knows it. `text` is the type in MLIR's spelling.
    """

    dtype: DType | None
    shape: tuple[int | None, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a constant; a splat has one element, without axes. bf16 are its bits as uint16."""

    array: Array
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DotNumbers:
    """The axes of a product: those of the batch and the contracted ones, of both operands."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConvNumbers:
    """The axes of a convolution: of its source, its kernel and its result."""

    source: tuple[int, ...]
    """Batch, features, then the spatial axes."""
    kernel: tuple[int, ...]
    """Output features, input features, then the spatial axes."""
    result: tuple[int, ...]
    """Batch, features, then the spatial axes."""


@dataclass(frozen=True, slots=True)
class IndexNumbers:
    """The axes of a gather or a scatter.

    `window` are the axes of the result (of the updates) that number the elements of a slice, `collapsed`
    those of the operand that a slice lacks, `batch` those of the operand that are walked together with the
    axes `index_batch` of the indices, `indexed` the axis of the operand for each element of an index
    vector, which lies along `vector`.
    """

    window: tuple[int, ...]
    collapsed: tuple[int, ...]
    batch: tuple[int, ...]
    index_batch: tuple[int, ...]
    indexed: tuple[int, ...]
    vector: int


Simple: TypeAlias = (
    str | int | float | bool | Elements | DotNumbers | ConvNumbers | IndexNumbers | Declared
)
Attribute: TypeAlias = "Simple | tuple[Attribute, ...]"


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: `kind` is its name, such as `stablehlo.add`; a custom call has its target behind it.

    Operands and results are names of values. `line` is its line in the listing.
    """

    kind: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    operand_types: tuple[Declared, ...]
    types: tuple[Declared, ...]
    attributes: Mapping[str, Attribute]
    regions: tuple[Region, ...]
    line: int
    comment: str

    @property
    def label(self) -> str:
        """Its name in messages: that of its first result, and of the place in the program it came from."""
        name = ", ".join(self.results) or self.kind
        return f"{name} ({self.comment})" if self.comment else name

    @property
    def modules(self) -> tuple[ImportedScope, ...]:
        """None: a module of StableHLO says nothing of modules of layers."""
        return ()


@dataclass(frozen=True, slots=True)
class Region:
    """A block: its arguments, its operations, and what it hands over."""

    arguments: tuple[str, ...]
    types: tuple[Declared, ...]
    nodes: tuple[Node, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A function. `labels` are the names of its arguments in the program, empty where it has none;
    `globals` for each argument the name of the dim whose value it is; `result_labels` as `labels`.
    """

    name: str
    body: Region
    labels: tuple[str, ...]
    globals: tuple[str, ...]
    result_labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A module: its functions by name, the one that is called from outside, and all operations in order."""

    file: str
    functions: Mapping[str, Function]
    main: str
    nodes: tuple[Node, ...]

    @property
    def listing(self) -> str:
        """One line for each operation: places in messages are places in this text."""
        return "".join(f"{line_of(node)}\n" for node in self.nodes)


def line_of(node: Node) -> str:
    """An operation as one line, such as `%3 = stablehlo.add(%1, %2) : tensor<4xf32>  # jit(f)/add`."""
    made = f"{', '.join(node.results)} = " if node.results else ""
    types = f" : {', '.join(type.text for type in node.types)}" if node.types else ""
    comment = f"  # {node.comment}" if node.comment else ""
    text = f"{made}{node.kind}({', '.join(node.operands)}){types}{comment}"
    return "".join(sign if sign.isprintable() else "?" for sign in text)
