"""How much of the arena a kernel takes while it runs, whatever the order of the work and the plan.

What it reads is there when it begins, and what it writes when it ends. Only a kernel that computes
element by element could write over what it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc.dialects import kernel, mem
from dlc.ir.core import Value
from dlc.ir.dims import Size, maximum, product
from dlc.ir.types import ViewType


def needs(op: kernel.Kernel) -> Size:
    """Bytes of the arena that no plan can do without while this kernel, on views, runs."""
    written = op.targets
    read = op.operands[: len(op.operands) - len(written)]
    if isinstance(op, kernel.Generic):
        return maximum(_bytes(read), _bytes(written))
    return _bytes(op.operands)


def _bytes(views: Sequence[Value]) -> Size:
    """How much of the arena views take: of each root the largest one, since views may overlap."""
    largest: dict[Value, Size] = {}
    for view in _in_arena(views):
        type = view.type
        assert isinstance(type, ViewType)
        largest[view.root] = maximum(largest.get(view.root, 0), _elements(type) * type.dtype.bytes)
    total: Size = 0
    for size in largest.values():
        total = total + size
    return total


def _in_arena(views: Iterable[Value]) -> list[mem.View]:
    found = [view.op for view in views if isinstance(view.op, mem.View)]
    return [op for op in found if isinstance(op.root.op, mem.Root) and op.root.op.kind == "arena"]


def _elements(type: ViewType) -> Size:
    """How many different elements a view has: those along an axis of stride 0 are one."""
    pairs = zip(type.shape, type.strides, strict=True)
    return product(size for size, stride in pairs if stride != 0)
