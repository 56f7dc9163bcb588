"""Types of expressions, and the operations that they become, noted while the compiler elaborates a text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dlc.dialects import array, nn
from dlc.errors import Diagnostic
from dlc.frontend.constructs import Evaluator
from dlc.frontend.elaborate import examine
from dlc.frontend.elaboration.scope import MISSING, Scope
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum, Record, describe
from dlc.frontend.modules.instances import Instance
from dlc.frontend.sources.files import File
from dlc.frontend.sources.imports import Loader
from dlc.ir.core import Op, Value
from dlc.ir.dims import Size, floor_divide, product
from dlc.ir.types import TensorType
from dlc.text.model import ast
from dlc.text.source import Source

__all__ = ["Cost", "Observed", "observe"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The operations of an expression: how many of each kind, and the arithmetic of its products.

    `flops` counts a multiplication and an addition as two; what is in a loop counts once.
    """

    kinds: Counter[str]
    flops: Size


@dataclass(slots=True, eq=False)
class Observed:
    """What elaboration found: every problem, and the value of each expression when it was first reached."""

    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    found: dict[ast.Node, tuple[Datum, int, int]] = field(
        default_factory=dict[ast.Node, tuple[Datum, int, int]]
    )
    """The value of each expression, and which operations were placed for it."""
    placed: list[Op] = field(default_factory=list[Op])
    """All operations, as a trace enters them."""

    def _value(self, node: ast.Node) -> Datum:
        """The value of an expression, MISSING if it was never reached."""
        return self.found[node][0] if node in self.found else MISSING

    def type_of(self, node: ast.Node) -> str | None:
        """The type of an expression as a text writes it; of what is not a tensor, what it is."""
        return shown(self.found[node][0]) if node in self.found else None

    def types_of_items(self, node: ast.Node) -> tuple[str | None, ...]:
        """The types of the items of a tuple."""
        value = self._value(node)
        return tuple([shown(item) for item in value.items]) if isinstance(value, Record) else ()

    def tensor_of(self, node: ast.Node) -> TensorType | None:
        """The type of an expression that is a tensor."""
        value = self._value(node)
        return (
            value.type if isinstance(value, Value) and isinstance(value.type, TensorType) else None
        )

    def module_of(self, node: ast.Expr) -> tuple[File, ast.Module] | None:
        """The module of an expression that is an instance of one."""
        value = self._value(node)
        if not isinstance(value, Instance):
            return None
        definition = value.core.definition
        return (
            (definition.home, definition.declaration) if isinstance(definition.home, File) else None
        )

    def cost_of(self, node: ast.Node) -> Cost | None:
        """The operations that an expression becomes; None if it becomes none."""
        if node not in self.found:
            return None
        _, start, stop = self.found[node]
        placed = self.placed[start:stop]
        if not placed:
            return None
        flops: Size = 0
        for op in placed:
            flops += _flops(op)
        return Cost(Counter(op.name for op in placed), flops)


def observe(loader: Loader, source: Source) -> Observed:
    """Elaborate a text, whatever is wrong in it; `loader` may have read it already."""
    observed = Observed()

    def evaluator(at: Trace) -> Evaluator:
        at.placed = observed.placed
        return _Observer(at, observed)

    observed.diagnostics = examine(loader, source, evaluator)
    return observed


class _Observer(Evaluator):
    __slots__ = ("_found", "_placed")

    def __init__(self, at: Trace, observed: Observed) -> None:
        super().__init__(at)
        self._found, self._placed = observed.found, observed.placed

    def eval(self, node: ast.Expr, scope: Scope) -> Datum:
        placed, found = self._placed, self._found
        start = len(placed)
        value = Evaluator.eval(self, node, scope)
        if node not in found:
            found[node] = value, start, len(placed)
        return value


def shown(value: Datum) -> str | None:
    """A value as its type, or as what it is."""
    if isinstance(value, Record):
        items = [shown(item) or "_" for item in value.items]
        named = [f"{n}: {i}" if n else i for n, i in zip(value.names, items, strict=True)]
        return f"({', '.join(named)})"
    return describe(value)


def _flops(op: Op) -> Size:
    """Multiplications and additions of a product or a convolution; 0 for other operations."""
    match op:
        case array.MatMul(lhs=source) | array.DotGeneral(lhs=source) | nn.Linear(source=source):
            inner = op.lhs_contract if isinstance(op, array.DotGeneral) else (-1,)
            shape = _shape(source)
            return 2 * _elements(op.results[0]) * product(shape[axis] for axis in inner)
        case nn.Conv(kernel=kernel, dims=dims) | array.Convolution(kernel=kernel, dims=dims):
            channels = _shape(op.results[0])[array.LAYOUTS[dims].channel]
            return 2 * _elements(op.results[0]) * floor_divide(_elements(kernel), channels)
        case _:
            return 0


def _shape(value: Value) -> tuple[Size, ...]:
    assert isinstance(value.type, TensorType)
    return value.type.shape


def _elements(value: Value) -> Size:
    return product(_shape(value))
